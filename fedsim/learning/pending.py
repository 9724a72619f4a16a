"""Instructions that have been submitted but not executed, and the vectors that dispatches received."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from torch import Tensor

from fedsim.methods.base import ServerState
from fedsim.vocabulary.timeline import Aggregate, Evaluate, Instruction, Train


class Pending:
    """The queue of the deferred learner: the waiting instructions, and the dispatches that can be trained next.

    Args:
        one_per_client: whether clients keep memories, so that a client's dispatches are trained one by one, in order.
        evaluations_in_order: whether evaluations read memories, so that no later dispatch may be trained before them.
        has_cloud: whether the aggregations of the top server are of edge servers, whose updates are not trained.

    Attributes:
        trains: submitted dispatches that are not aggregated, by number.
        contributions: contributions of the waiting instructions.
        evaluations: waiting evaluations.
    """

    def __init__(
        self, *, one_per_client: bool, evaluations_in_order: bool, has_cloud: bool = False
    ) -> None:
        self.trains: dict[int, Train] = {}
        self.contributions = 0
        self.evaluations = 0
        self._one_per_client = one_per_client
        self._evaluations_in_order = evaluations_in_order
        self._has_cloud = has_cloud
        self._queue: deque[Instruction] = deque()
        self._untrained: dict[int, Train] = {}
        self._of_client: dict[int, deque[Train]] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, instruction: Instruction) -> None:
        """Append an instruction. A dispatch is trained once a waiting instruction needs its update."""
        if isinstance(instruction, Train):
            self.trains[instruction.dispatch_id] = instruction
            self._untrained[instruction.dispatch_id] = instruction
            if self._one_per_client:
                self._of_client.setdefault(instruction.client, deque()).append(instruction)
            if instruction.used:
                return
            self.contributions += 1
        elif isinstance(instruction, Aggregate):
            self.contributions += len(instruction.contributions)
        elif isinstance(instruction, Evaluate):
            self.evaluations += 1
        self._queue.append(instruction)

    @property
    def head(self) -> Instruction:
        """The instruction to be executed next."""
        return self._queue[0]

    def ready(self, is_waiting: Callable[[int], bool], most: int) -> list[Aggregate]:
        """The next aggregations of a server, all of whose updates wait: one, or several of up to ``most`` updates."""
        ready: list[Aggregate] = []
        updates = 0
        for instruction in self._queue:
            if not isinstance(instruction, Aggregate):
                break
            updates += len(instruction.contributions)
            is_further = ready and max(updates, len(ready) + 1) <= most
            if ready and not (is_further and instruction.edge == ready[0].edge):
                break
            if not all(is_waiting(item.dispatch_id) for item in instruction.contributions):
                break
            ready.append(instruction)
        return ready

    def pop(self, count: int = 1) -> None:
        """Remove instructions at the head, which were executed."""
        for _ in range(count):
            self._queue.popleft()
        if not self._queue:
            self.contributions = self.evaluations = 0

    def needed(self) -> Iterator[int]:
        """Dispatches that the waiting instructions use, in order, up to the end of the next wave."""
        for instruction in self._queue:
            if isinstance(instruction, Train):
                yield instruction.dispatch_id
            elif isinstance(instruction, Aggregate) and (
                instruction.edge >= 0 or not self._has_cloud
            ):
                for contribution in instruction.contributions:
                    yield contribution.dispatch_id
            elif self._evaluations_in_order and isinstance(instruction, Evaluate):
                return

    def wave(
        self, dispatch_ids: Iterable[int], has_model_of: Callable[[Train], bool], most: int
    ) -> list[Train]:
        """Up to ``most`` dispatches whose model exists, among these and those that must precede them, in order."""
        wave: dict[int, Train] = {}
        busy: set[int] = set()
        for dispatch_id in dispatch_ids:
            train = self._untrained.get(dispatch_id)
            if train is None:
                continue
            if self._one_per_client:
                if train.client in busy:
                    continue
                train = self._of_client[train.client][0]
                busy.add(train.client)
            if has_model_of(train):
                wave[train.dispatch_id] = train
                if len(wave) >= most:
                    break
        return list(wave.values())

    def untrained(self) -> list[int]:
        """Dispatches that have not been trained, in order of submission."""
        return list(self._untrained)

    def mark_trained(self, train: Train) -> None:
        """Record that a dispatch has been trained."""
        del self._untrained[train.dispatch_id]
        if self._one_per_client:
            waiting = self._of_client[train.client]
            waiting.popleft()
            if not waiting:
                del self._of_client[train.client]


class Models:
    """The models of one server, numbered in the order in which it makes or receives them, and what it sent with each.

    The vectors sent with a model are kept while it is the newest in the timeline (the next dispatch starts from it),
    and while dispatches of it are open or untrained (holds).

    Attributes:
        current: the server state with the newest model that exists.
        number: number of that model; its version, unless it is that of an edge server.
        sent: vectors that dispatches of a model receive, name to (elements,), by its number while they are kept.
    """

    def __init__(self, state: ServerState, sent: tuple[str, ...]) -> None:
        self._sent_names = sent
        self._holds: Counter[int] = Counter()
        self._newest = 0
        self.sent: dict[int, Mapping[str, Tensor]] = {}
        self.publish(0, state)

    def announce(self, number: int) -> None:
        """Note that the timeline has reached a model, from which further dispatches start."""
        earlier, self._newest = self._newest, number
        self._free(earlier)

    def publish(self, number: int, state: ServerState) -> None:
        """Continue with a new model, which now exists."""
        self.number, self.current = number, state
        self.sent[number] = {name: state[name] for name in self._sent_names}
        self._free(number)

    def hold(self, number: int) -> None:
        """Note a new dispatch of a model."""
        self._holds[number] += 1

    def release(self, number: int) -> None:
        """Note that a dispatch of a model no longer needs it."""
        self._holds[number] -= 1
        self._free(number)

    def _free(self, number: int) -> None:
        if number < self._newest and self._holds[number] <= 0:
            del self._holds[number]
            self.sent.pop(number, None)


def evaluation_key(instruction: Evaluate) -> str:
    """Key of an evaluation among the results of a run."""
    return f"{instruction.version}@{instruction.time_s!r}"
