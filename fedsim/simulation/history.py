"""What clients have from their earlier dispatches, which shortens the next one.

A download may be a difference to an earlier one, and a client that continues its own model may begin local steps before
its download has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedsim.scheduling.base import Dispatch


class History:
    """The last dispatches of all clients, as far as they matter.

    Args:
        online_until: when a client that is online at an instant goes offline.
        continues: whether clients continue their own models, so that one that has missed a round downloads as if for
            the first time.
        differs: whether downloads are differences to an earlier one, so that a client downloads as if for the first
            time until the server has used one of its updates: only then does the server know what the client has.
    """

    def __init__(
        self, online_until: Callable[[int, int], int], *, continues: bool, differs: bool
    ) -> None:
        self._online_until = online_until
        self._continues = continues
        self._differs = differs
        # By client: the server that last used one of its updates; version and end of the steps of its last dispatch.
        self._known: dict[int, int] = {}
        self._finished: dict[int, tuple[int, int]] = {}

    def begin(self, dispatch: Dispatch) -> None:
        """Say what the client of a new dispatch has."""
        client, now_ns = dispatch.client_id, dispatch.dispatched_ns
        if self._differs:
            dispatch.in_full = dispatch.sequence > 0 and self._known.get(client) != dispatch.edge
        if self._continues:
            version, free_ns = self._finished.get(client, (-1, -1))
            dispatch.in_full |= version != dispatch.version - 1
            if not dispatch.in_full and self._online_until(client, free_ns) >= now_ns:
                dispatch.free_ns = free_ns

    def end(self, dispatch: Dispatch, computed_ns: int) -> None:
        """Note a dispatch that has ended, and the end of its local steps; -1 if it has not done them."""
        if computed_ns >= 0:
            self._finished[dispatch.client_id] = dispatch.version, computed_ns

    def use(self, dispatches: Iterable[Dispatch]) -> None:
        """Note that the server has used the updates of these dispatches."""
        self._known.update((dispatch.client_id, dispatch.edge) for dispatch in dispatches)
