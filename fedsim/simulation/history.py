"""What clients have from their earlier dispatches, which shortens the next one.

A download may be a difference to an earlier one, and a client that continues its own model may begin local steps before
its download has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import Plan


class History:
    """The last dispatches of all clients, as far as they matter.

    Args:
        continues, differs: see :class:`fedsim.simulation.workload.Workloads`.
        online_until: when a client that is online at an instant goes offline.
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

    def end(self, dispatch: Dispatch, plan: Plan) -> None:
        """Note a dispatch that has ended."""
        if plan.computed_ns >= 0:
            self._finished[dispatch.client_id] = dispatch.version, plan.computed_ns

    def use(self, dispatches: Iterable[Dispatch]) -> None:
        """Note that the server has used the updates of these dispatches."""
        self._known.update((dispatch.client_id, dispatch.edge) for dispatch in dispatches)
