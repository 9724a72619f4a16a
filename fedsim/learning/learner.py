"""The learning plane: executes the timeline, behind the time plane, in waves."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.errors import InvariantViolation, UserError
from fedsim.learning.contract import Contract
from fedsim.learning.device import Execution, reproducible
from fedsim.learning.evaluation import ClientMetrics, evaluator, personal_model
from fedsim.learning.memory import Budget, StateStore
from fedsim.learning.objective import Objective
from fedsim.learning.rates import learning_rate
from fedsim.learning.updates import Contributions, WaitingUpdates
from fedsim.learning.versions import Versions
from fedsim.learning.workers import Group, Pool, Received, Station, Workers, local_workers
from fedsim.methods.base import Method, MethodContext, ServerState
from fedsim.scenario.training import Training
from fedsim.tasks.base import Task
from fedsim.timeline import Aggregate, Evaluate, Instruction, Train

IntArray = npt.NDArray[np.int64]

# Trained and evaluated together at most; enough to fill the hardware, few enough that a run can be
# stopped and its metrics seen while it goes on.
_CPU_PENDING = 256
_CUDA_PENDING = 2048
_PENDING_EVALUATIONS = 32
_LEDGER_START = 1024
# Groups are not made smaller than this for the sake of more workers: it takes some milliseconds.
_SHARE_FLOPS = 100_000_000
# The same for one local step on CUDA, which then takes longer than its launch, and into how many groups at most.
_CUDA_SHARE_FLOPS = 50_000_000_000
_CUDA_SHARES = 8
# Personal models put together at once, to be saved.
_PERSONAL_ROWS = 64


def method_context(
    task: Task,
    training: Training,
    *,
    seed: int,
    local_steps: IntArray,
    execution: Execution | None = None,
    availability_cycle_s: float = 86_400.0,
) -> MethodContext:
    """What a method is told of the run it belongs to."""
    execution = Execution.of(training) if execution is None else execution
    return MethodContext(
        layout=task.layout,
        clients=task.clients,
        samples=task.samples,
        learning_rate=learning_rate(training),
        local_steps=local_steps,
        dtype=execution.dtype,
        device=execution.device,
        seed=seed,
        availability_cycle_s=availability_cycle_s,
        optimizer=training.optimizer.create(),
    )


class Learner:
    """Executes the timeline: see :class:`fedsim.timeline.LearningPlane`.

    Instructions are kept until enough of them are pending, then executed in waves: all dispatches that a pending
    aggregation needs and whose version exists (of clients with memories at most one, in the order of submission);
    then every aggregation and evaluation that is ready, in order; and so on. What a wave holds follows from the
    timeline alone. Updates that no aggregation uses are never trained.

    Args:
        task: what is learned from which data.
        method: the rules of learning, made with :func:`method_context`.
        training: what a local step is.
        seed: the scenario's seed.
        on_metrics: receives the result of every submitted evaluation, in order.
        on_rest: called whenever everything submitted has been executed; the moment for a checkpoint.
        per_client: also measure the model that each client would use on its own test samples, as is always done
            where the method gives clients models of their own.
        objective: also measure what training minimises, see :class:`fedsim.learning.objective.Objective`.
        evaluation_batch: samples evaluated at once; by device where None.
        eager: execute every instruction when it is submitted, one dispatch at a time: for verification.
        max_pending: pending dispatches after which execution starts; by device where None.
        folder: for rows that do not fit into memory.
        execution: where, if not as the training section asks.
        workers: who trains, if not this process.
    """

    def __init__(
        self,
        task: Task,
        method: Method,
        training: Training,
        *,
        seed: int,
        on_metrics: Callable[[Evaluate, Mapping[str, float]], None] | None = None,
        on_rest: Callable[[], None] | None = None,
        per_client: bool = False,
        objective: bool = False,
        evaluation_batch: int | None = None,
        eager: bool = False,
        max_pending: int | None = None,
        folder: Path | None = None,
        execution: Execution | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.task = task
        self.method = method
        self.execution = execution = Execution.of(training) if execution is None else execution
        self._on_metrics = on_metrics
        self._on_rest = on_rest
        self._per_client = per_client or method.personal
        self._eager = eager
        on_cuda = execution.device.type == "cuda"
        self._max_pending = max_pending or (_CUDA_PENDING if on_cuda else _CPU_PENDING)

        self._station = station = Station(task, method, training, seed, execution)
        self.kernel = station.kernel
        self._server: ServerState = station.server
        # Evaluates, and trains where that is done in this process on one device.
        self._pool = Pool(station.threads)
        self.workers = local_workers(station, self._pool) if workers is None else workers
        self._started = False
        self._step_flops = int(task.flops_per_sample() or 0) * training.batch_size
        with reproducible():
            self._evaluator = evaluator(task, execution, evaluation_batch)
            self._objective = (
                Objective(station.samples.task, station.samples, execution)
                if objective and station.samples is not None
                else None
            )

        memories = method.memories()
        budget = Budget.of(training, execution.device, folder)
        self.store = StateStore(memories, execution.dtype, execution.device, budget)
        self._kept_when_lost = {name for name, memory in memories.items() if memory.kept_when_lost}
        self._one_at_a_time = bool(self.store.of_clients)
        self._evaluate_in_order = method.personal
        self._waiting = WaitingUpdates(
            method.upload(), execution.dtype, execution.device, folder=folder
        )
        self._versions = Versions(tuple(vector.name for vector in method.download()))
        self._contract = Contract(method)
        self._contract.check_state(self._server, "initial_state")
        self._versions.publish(0, self._server)
        self._version = 0

        # Dispatches that were submitted and not aggregated, the untrained ones among them, and these by client.
        self._trains: dict[int, Train] = {}
        self._untrained: dict[int, Train] = {}
        self._of_client: dict[int, deque[Train]] = {}
        self._queue: deque[Train | Aggregate | Evaluate] = deque()
        self._queued_contributions = 0
        self._queued_evaluations = 0
        self._unmeasured: list[Evaluate] = []
        self._losses = np.full(_LEDGER_START, np.nan)
        self._answers: dict[str, dict[str, float]] = {}

        # After a restore the first instructions are replayed: they are noted but not executed again.
        self._submitted = 0
        self._executed_before = 0
        self._untrained_before: frozenset[int] = frozenset()

    # -- the timeline -----------------------------------------------------------------------------------------------

    def hold(self, version: int) -> None:
        """See :class:`fedsim.timeline.LearningPlane`."""
        self._versions.hold(version)

    def drop(self, version: int) -> None:
        """See :class:`fedsim.timeline.LearningPlane`."""
        self._versions.release(version)

    def submit(self, instruction: Instruction) -> None:
        """See :class:`fedsim.timeline.LearningPlane`."""
        self._submitted += 1
        replayed = self._submitted <= self._executed_before
        if isinstance(instruction, Train):
            self._submit_train(instruction, replayed)
            return
        if isinstance(instruction, Aggregate):
            self._versions.announce(instruction.version)
            self._queued_contributions += 0 if replayed else len(instruction.contributions)
        elif replayed:
            self._deliver(instruction, self._answers[_key(instruction)])
        else:
            self._hold_evaluation(instruction)
            self._queued_evaluations += 1
        if replayed:
            return
        self._queue.append(instruction)
        if (
            self._eager
            or self._queued_contributions >= self._max_pending
            or self._queued_evaluations >= _PENDING_EVALUATIONS
        ):
            self.flush()

    def evaluate(self, instruction: Evaluate) -> Mapping[str, float]:
        """See :class:`fedsim.timeline.LearningPlane`."""
        key = _key(instruction)
        if self._submitted <= self._executed_before and key in self._answers:
            return self._answers[key]
        self.flush()
        if key not in self._answers:
            self._require_current(instruction)
            with reproducible():
                self._answers[key] = self._measure(self._server)
        return self._answers[key]

    def training_losses(self, dispatch_ids: Sequence[int]) -> npt.NDArray[np.float64]:
        """See :class:`fedsim.timeline.LearningPlane`."""
        ids = np.asarray(dispatch_ids, dtype=np.int64)
        if not self._known_losses(ids).all():
            self.flush()
            with reproducible():
                while wave := self._select(ids.tolist()):
                    self._train(wave)
        if not self._known_losses(ids).all():
            unknown = ids[~self._known_losses(ids)].tolist()
            raise InvariantViolation(f"dispatches {unknown} were never submitted for training")
        losses: npt.NDArray[np.float64] = self._losses[ids]
        if not np.isfinite(losses).all():
            raise UserError(
                f"local training has diverged: the loss of dispatch {ids[~np.isfinite(losses)][0]} is not finite, and "
                "clients are selected by it",
                where="training.optimizer.lr",
                hint="use a smaller learning rate, or clip_norm",
            )
        return losses

    def flush(self) -> None:
        """Execute everything that was submitted."""
        if not self._queue:
            return
        with reproducible():
            while self._queue:
                wave = self._select(self._wanted())
                if wave:
                    self._train(wave)
                if not self._run_ready() and not wave:
                    raise InvariantViolation(
                        f"{self._queue[0]} uses a dispatch that was never submitted for training"
                    )
            self._measure_pending()
        self._queued_contributions = self._queued_evaluations = 0
        if self._on_rest is not None:
            self._on_rest()

    def start(self) -> None:
        """Make the workers ready, which else the first wave does.

        Raises:
            UserError: the scenario asks for workers that are not to be had.
        """
        if not self._started:
            self.workers.start(self._station.describe())
            self._started = True

    def close(self) -> None:
        """Execute what is pending and end the workers."""
        self.flush()
        self.stop()

    def stop(self) -> None:
        """End the workers, whatever is pending."""
        self._started = False
        self.workers.stop()
        self._pool.stop()

    # -- results ----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The newest version that was executed."""
        return self._version

    @property
    def server(self) -> ServerState:
        """The server state at :attr:`version`."""
        return self._server

    def named_model(self) -> dict[str, Tensor]:
        """The global model at :attr:`version` by the names of its tensors, on the CPU."""
        views = self.task.layout.views(self._server["model"].cpu())
        return {name: view.clone() for name, view in views.items()}

    def personal_parts(self) -> dict[str, Tensor]:
        """What clients that took part have for themselves, on the CPU; empty where nothing is personal.

        ``clients`` (C,) int64, ascending, and each personal tensor of the model as (C, *shape).
        """
        names = self.method.personal_parts()
        clients = self.store.clients()
        if not names or not len(clients):
            return {}
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        for some in np.array_split(clients, -(-len(clients) // _PERSONAL_ROWS)):
            models = self.method.personal_models(self._server, some, self.store.rows(some))
            views = self.task.layout.views(models.cpu().contiguous())
            for name, rows in parts.items():
                rows.append(views[name].clone())
        stacked = {name: torch.cat(rows) for name, rows in parts.items()}
        return {"clients": torch.from_numpy(clients), **stacked}

    def client_metrics(self) -> ClientMetrics | None:
        """Metrics of each client's own model (or the global one) on its own test samples; None where there are none."""
        self.flush()
        with reproducible():
            return self._evaluator.measure_clients(
                personal_model(self.method, self._server, self.store)
            )

    def describe(self) -> dict[str, str | int]:
        """What the bits of the results may depend on, for ``run.json``."""
        return {**self._station.describe(), **self.workers.describe()}

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def state(self) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        """Everything a resumed run needs, as named tensors and what JSON can hold.

        Only while nothing is pending: in ``on_rest``, or after :meth:`flush`. Rows of clients' memories are read when
        they are asked for, so that those on the disk need not be in memory together: save or copy them before anything
        else is executed.
        """
        if self._queue:
            raise RuntimeError(
                "instructions are pending; take the state in on_rest or after flush()"
            )
        tensors = {f"server/{name}": value for name, value in self._server.items()}
        for version, sent in self._versions.kept().items():
            if version != self._version:
                tensors |= {f"sent/{version}/{name}": value for name, value in sent.items()}
        waiting = self._waiting.ids()
        for dispatch_id in waiting:
            for name in self._waiting.elements:
                tensors[f"waiting/{dispatch_id}/{name}"] = self._waiting.row(dispatch_id, name)
        tensors["losses"] = torch.from_numpy(self._losses.copy())
        meta = {
            "learning": self._station.identity(),
            "version": self._version,
            "executed": self._submitted,
            "untrained": list(self._untrained),
            "waiting": waiting,
            "answers": self._answers,
        }
        return self.store.tensors().among(tensors, "memory/"), meta

    def restore(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Take over a state before the first instruction; the timeline is then submitted again from its beginning.

        Instructions that the state already contains are not executed again; their metrics are delivered again.

        Raises:
            UserError: the state was written with another kernel, device type or precision.
        """
        if self._submitted:
            raise RuntimeError("restore comes before the first instruction")
        if meta["learning"] != self._station.identity():
            raise UserError(
                f"the checkpoint was written with {meta['learning']}, this run uses {self._station.identity()}",
                where="checkpoint",
                hint="resume on the same kind of device with the same version of fedsim, or run the scenario again",
            )
        device = self.execution.device
        groups: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            section, _, rest = name.partition("/")
            groups.setdefault(section, {})[rest] = value
        self._server = {name: value.to(device) for name, value in groups["server"].items()}
        self._version = int(meta["version"])
        self._versions.restore(
            self._version, self._server, _numbered(groups.get("sent", {}), device)
        )
        self.store.load(groups.get("memory", {}))
        for dispatch_id, vectors in _numbered(groups.get("waiting", {}), device).items():
            rows = {name: vector.unsqueeze(0) for name, vector in vectors.items()}
            self._waiting.put([dispatch_id], rows)
        self._losses = tensors["losses"].numpy().copy()
        self._executed_before = int(meta["executed"])
        self._untrained_before = frozenset(meta["untrained"])
        self._answers = {key: dict(values) for key, values in meta["answers"].items()}

    # -- execution --------------------------------------------------------------------------------------------------

    def _submit_train(self, train: Train, replayed: bool) -> None:
        if not self._versions.held(train.version):
            raise InvariantViolation(
                f"dispatch {train.dispatch_id} is to be trained from version {train.version}, "
                "which nobody has held for it"
            )
        if replayed and train.dispatch_id not in self._untrained_before:
            self._versions.release(train.version)
            if train.dispatch_id in self._waiting:
                self._trains[train.dispatch_id] = train
            return
        self._trains[train.dispatch_id] = self._untrained[train.dispatch_id] = train
        if not train.used:
            self._queue.append(train)
            self._queued_contributions += 1
        if self._one_at_a_time:
            self._of_client.setdefault(train.client, deque()).append(train)
        if self._eager:
            with reproducible():
                self._train([train])

    def _hold_evaluation(self, instruction: Evaluate) -> None:
        if instruction.version < self._version:
            raise InvariantViolation(f"version {instruction.version} is to be evaluated too late")
        exists = instruction.version == self._version
        self._versions.hold_evaluation(instruction.version, self._server if exists else None)

    def _require_current(self, instruction: Evaluate) -> None:
        if instruction.version != self._version:
            raise InvariantViolation(
                f"version {instruction.version} is asked for, the newest is {self._version}"
            )

    def _wanted(self) -> Iterable[int]:
        """Dispatches that pending aggregations use, in order, up to where a wave must stop."""
        for instruction in self._queue:
            if isinstance(instruction, Train):
                yield instruction.dispatch_id
            elif isinstance(instruction, Aggregate):
                for contribution in instruction.contributions:
                    yield contribution.dispatch_id
            elif self._evaluate_in_order:
                return

    def _select(self, dispatch_ids: Iterable[int]) -> list[Train]:
        """The next wave: those of the dispatches (and of what must come before them) that can be trained now."""
        wave: dict[int, Train] = {}
        busy: set[int] = set()
        for dispatch_id in dispatch_ids:
            train = self._untrained.get(dispatch_id)
            if train is None:
                continue
            if self._one_at_a_time:
                if train.client in busy:
                    continue
                train = self._of_client[train.client][0]
                busy.add(train.client)
            if train.version in self._versions:
                wave[train.dispatch_id] = train
                if len(wave) >= self._waiting.room:
                    break
        return list(wave.values())

    def _train(self, wave: Sequence[Train]) -> None:
        self.start()
        groups = self._groups(wave)
        updates = self.workers.train([self._group(trains) for trains in groups])
        for trains, update in zip(groups, updates, strict=True):
            clients = np.array([train.client for train in trains])
            self._contract.check_update(update, len(trains))
            self._waiting.put([train.dispatch_id for train in trains], update.vectors)
            used = np.flatnonzero([train.used for train in trains])
            for name, rows in update.memory.items():
                if len(used) == len(trains) or name in self._kept_when_lost:
                    self.store[name].put(clients, rows)
                else:
                    self.store[name].put(clients[used], rows[used])
            for train, loss in zip(trains, update.loss.tolist(), strict=True):
                self._note_loss(train.dispatch_id, loss)
                del self._untrained[train.dispatch_id]
                if self._one_at_a_time:
                    self._of_client[train.client].popleft()
                    if not self._of_client[train.client]:
                        del self._of_client[train.client]
                self._versions.release(train.version)

    def _groups(self, wave: Sequence[Train]) -> list[list[Train]]:
        """The wave in groups of one shape, each sorted by steps, most first."""
        clients = np.array([train.client for train in wave])
        steps = np.array([train.steps for train in wave])
        shapes = self.kernel.shape_class(clients)
        order = np.lexsort((-steps, shapes))
        largest = self.kernel.largest_group()
        groups: list[list[Train]] = []
        for shape in np.unique(shapes):
            members = order[shapes[order] == shape]
            pieces = -(-len(members) // largest)
            # Every worker gets a share worth its while; where groups matter to the bits they must not follow the
            # number of workers.
            if self.execution.device.type == "cuda":
                shares = len(members) * self._step_flops // _CUDA_SHARE_FLOPS
                pieces = min(len(members), max(pieces, min(_CUDA_SHARES, shares)))
            elif self.kernel.group_invariant:
                shares = int(steps[members].sum()) * self._step_flops // _SHARE_FLOPS
                fair = -(-pieces // self.workers.count) * self.workers.count
                pieces = min(len(members), max(pieces, min(fair, shares)))
            for piece in np.array_split(members, pieces):
                groups.append([wave[index] for index in piece])
        return groups

    def _group(self, trains: Sequence[Train]) -> Group:
        clients = np.array([train.client for train in trains])
        sent = [self._versions.sent(train.version) for train in trains]
        learning_rate = self.method.context.learning_rate
        return Group(
            clients=clients,
            sequences=np.array([train.sequence for train in trains]),
            versions=np.array([train.version for train in trains]),
            rounds=np.array([train.round for train in trains]),
            steps=np.array([train.steps for train in trains]),
            steps_assigned=np.array([train.steps_assigned for train in trains]),
            samples=self.task.samples[clients],
            learning_rates=tuple(learning_rate(t.round, t.dispatched_s) for t in trains),
            down={name: Received.of([vectors[name] for vectors in sent]) for name in sent[0]},
            memory=partial(self.store.rows, clients),
        )

    def _run_ready(self) -> bool:
        """Execute the aggregations and evaluations at the head of the queue that lack nothing; whether any was."""
        progress = False
        while self._queue:
            head = self._queue[0]
            if isinstance(head, Evaluate):
                self._unmeasured.append(head)
                if self._evaluate_in_order:
                    self._measure_pending()
            elif isinstance(head, Train):
                if head.dispatch_id not in self._waiting:
                    break
                self._waiting.drop(head.dispatch_id)
                del self._trains[head.dispatch_id]
            elif all(item.dispatch_id in self._waiting for item in head.contributions):
                self._aggregate(head)
            else:
                break
            self._queue.popleft()
            progress = True
        return progress

    def _aggregate(self, instruction: Aggregate) -> None:
        if instruction.version != self._version + 1:
            raise InvariantViolation(
                f"version {instruction.version} follows version {self._version}"
            )
        trains = [self._trains.pop(item.dispatch_id) for item in instruction.contributions]
        updates = Contributions(instruction, trains, self._waiting, self.store, self.method.context)
        self._server = self.method.aggregate(self._server, updates)
        self._contract.check_state(self._server, "aggregate")
        self._version = instruction.version
        self._versions.publish(self._version, self._server)
        for train in trains:
            self._waiting.drop(train.dispatch_id)

    def _measure_pending(self) -> None:
        """Carry out the evaluations that are due, several models at once, and deliver their metrics in order."""
        due, self._unmeasured = self._unmeasured, []
        versions = list(dict.fromkeys(instruction.version for instruction in due))
        states = [self._versions.whole(version) for version in versions]
        measured = dict(zip(versions, self._pool.map(self._measure, states), strict=True))
        for instruction in due:
            self._versions.release_evaluation(instruction.version)
            self._answers[_key(instruction)] = measured[instruction.version]
            self._deliver(instruction, measured[instruction.version])

    def _measure(self, server: ServerState) -> dict[str, float]:
        metrics = self._evaluator.measure(server["model"])
        if self._per_client:
            clients = self._evaluator.measure_clients(
                personal_model(self.method, server, self.store)
            )
            if clients is not None:
                metrics |= clients.summary()
        if self._objective is None:
            return metrics
        personal = self.method.personal_parts()
        if not personal:
            return metrics | self._objective.measure(server["model"])
        model_of = personal_model(self.method, server, self.store)
        return metrics | self._objective.measure_split(model_of, personal)

    def _deliver(self, instruction: Evaluate, metrics: Mapping[str, float]) -> None:
        if self._on_metrics is not None:
            self._on_metrics(instruction, metrics)

    def _note_loss(self, dispatch_id: int, loss: float) -> None:
        if dispatch_id >= len(self._losses):
            grown = np.full(2 * dispatch_id, np.nan)
            grown[: len(self._losses)] = self._losses
            self._losses = grown
        # No number stands for what is not known.
        self._losses[dispatch_id] = math.inf if math.isnan(loss) else loss

    def _known_losses(self, dispatch_ids: IntArray) -> npt.NDArray[np.bool_]:
        inside = dispatch_ids < len(self._losses)
        known: npt.NDArray[np.bool_] = inside & ~np.isnan(
            self._losses[np.where(inside, dispatch_ids, 0)]
        )
        return known


def _key(instruction: Evaluate) -> str:
    """Names an evaluation among the answers of a run."""
    return f"{instruction.version}@{instruction.time_s!r}"


def _numbered(tensors: Mapping[str, Tensor], device: torch.device) -> dict[int, dict[str, Tensor]]:
    """Tensors named ``number/name``, by number and name."""
    result: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition("/")
        result.setdefault(int(number), {})[name] = value.to(device)
    return result
