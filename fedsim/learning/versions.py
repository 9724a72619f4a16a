"""Server states that dispatches and evaluations still need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from torch import Tensor

from fedsim.methods.base import ServerState


class Versions:
    """The vectors sent at each version, kept while they may still be needed.

    A version is needed while it is the newest in the timeline (the next dispatch starts from it), while dispatches of
    it are open or untrained (holds), and while an evaluation of it is pending.

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
        """Note that the timeline has reached ``version``, from which further dispatches start."""
        earlier, self.newest = self.newest, version
        self._free(earlier)

    def publish(self, version: int, state: ServerState) -> None:
        """Store the state of ``version``, which now exists."""
        self._sent[version] = {name: state[name] for name in self._sent_names}
        if self._evaluations[version]:
            self._whole[version] = state
        self._free(version)

    def hold(self, version: int) -> None:
        """Note a new dispatch of ``version``."""
        self._holds[version] += 1

    def release(self, version: int) -> None:
        """Note that a dispatch of ``version`` no longer needs it."""
        self._holds[version] -= 1
        self._free(version)

    def hold_evaluation(self, version: int, state: ServerState | None) -> None:
        """Note a pending evaluation of ``version``; ``state`` if the version already exists."""
        self._evaluations[version] += 1
        if state is not None:
            self._whole[version] = state

    def release_evaluation(self, version: int) -> None:
        """Note that an evaluation of ``version`` is done."""
        self._evaluations[version] -= 1
        if not self._evaluations[version]:
            del self._evaluations[version]
            self._whole.pop(version, None)

    def __contains__(self, version: int) -> bool:
        return version in self._sent

    def sent(self, version: int) -> Mapping[str, Tensor]:
        """Vectors that a dispatch of ``version`` received, name to (elements,)."""
        return self._sent[version]

    def whole(self, version: int) -> ServerState:
        """The whole server state of a version with a pending evaluation."""
        return self._whole[version]

    def kept(self) -> Mapping[int, Mapping[str, Tensor]]:
        """Vectors sent, by version that is still kept."""
        return self._sent

    def restore(
        self,
        version: int,
        state: ServerState,
        sent: Mapping[int, Mapping[str, Tensor]],
    ) -> None:
        """Restore a checkpoint: the state at ``version`` and the vectors sent at earlier versions."""
        self._sent = dict(sent)
        self.publish(version, state)

    def _free(self, version: int) -> None:
        if version < self.newest and self._holds[version] <= 0:
            del self._holds[version]
            self._sent.pop(version, None)
