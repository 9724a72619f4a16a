"""Server states that dispatches and evaluations still need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from torch import Tensor

from fedsim.methods.base import ServerState


class Versions:
    """What was sent out at each version, kept while anybody may still need it.

    A version is needed while it is the newest that the timeline knows of (the next dispatch starts from it), while
    dispatches of it are open or untrained (holds), and while an evaluation of it is pending.

    Args:
        sent: keys of the server state that a dispatch receives.
    """

    def __init__(self, sent: tuple[str, ...]) -> None:
        self._sent_names = sent
        self._sent: dict[int, Mapping[str, Tensor]] = {}
        self._whole: dict[int, ServerState] = {}
        self._holds: Counter[int] = Counter()
        self._evaluations: Counter[int] = Counter()
        self.newest = 0

    def announce(self, version: int) -> None:
        """The timeline has reached ``version``: from now on dispatches start from it."""
        earlier, self.newest = self.newest, version
        self._free(earlier)

    def publish(self, version: int, state: ServerState) -> None:
        """``version`` exists."""
        self._sent[version] = {name: state[name] for name in self._sent_names}
        if self._evaluations[version]:
            self._whole[version] = state
        self._free(version)

    def hold(self, version: int) -> None:
        """A dispatch of ``version`` was handed out."""
        self._holds[version] += 1

    def release(self, version: int) -> None:
        """A dispatch of ``version`` needs it no longer."""
        self._holds[version] -= 1
        self._free(version)

    def held(self, version: int) -> bool:
        """Whether any dispatch of ``version`` is open or untrained."""
        return self._holds[version] > 0

    def hold_evaluation(self, version: int, state: ServerState | None) -> None:
        """An evaluation of ``version`` is pending; ``state`` where the version exists already."""
        self._evaluations[version] += 1
        if state is not None:
            self._whole[version] = state

    def release_evaluation(self, version: int) -> None:
        """That evaluation is done."""
        self._evaluations[version] -= 1
        if not self._evaluations[version]:
            del self._evaluations[version]
            self._whole.pop(version, None)

    def __contains__(self, version: int) -> bool:
        return version in self._sent

    def sent(self, version: int) -> Mapping[str, Tensor]:
        """What a dispatch of ``version`` received, name to (elements,)."""
        return self._sent[version]

    def whole(self, version: int) -> ServerState:
        """The whole server state, where an evaluation is pending."""
        return self._whole[version]

    def kept(self) -> Mapping[int, Mapping[str, Tensor]]:
        """What was sent at each version still kept."""
        return self._sent

    def restore(
        self,
        version: int,
        state: ServerState,
        sent: Mapping[int, Mapping[str, Tensor]],
    ) -> None:
        """Take over a checkpoint: the state at ``version`` and what dispatches of earlier versions received."""
        self._sent = dict(sent)
        self.publish(version, state)

    def _free(self, version: int) -> None:
        if version < self.newest and self._holds[version] <= 0:
            del self._holds[version]
            self._sent.pop(version, None)
