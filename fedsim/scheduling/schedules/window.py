"""The window schedule: one update from every client, each when it is online."""

from __future__ import annotations

from pydantic import Field

from fedsim.errors import UserError
from fedsim.parts.component import Parameters
from fedsim.scheduling.base import ANYTHING, Round, Schedule, Selection, ServerPort, Story, WakeUp
from fedsim.units import Duration, to_ns


class Window(Schedule):
    """Every client receives the window's model once, as soon as it checks in; all updates make one version.

    A client that drops out gets the work again at its next check-in. Only the rounds of ``warm_up`` use the selection;
    they wait for their clients, but not for those that drop out.
    """

    name = "window"
    synchronous = True
    patience = "deadline"
    draws_if = "warm_up"
    paper = (
        "Wang and Ji, A Unified Analysis of Federated Learning with Arbitrary Client Participation, NeurIPS 2022, "
        "section 5 and appendix D.1 (waiting)"
    )

    class Params(Parameters):
        length: Duration = 0.0
        """Shortest window: a version is created when all clients have reported, but not before this time has passed.
        The paper creates one version per availability cycle."""
        deadline: Duration | None = Field(default=None, gt=0)
        """Longest window: the clients that have reported by then count, and busy clients are cut. Default: the server
        waits for all clients, forever if one never reports."""
        warm_up: int = Field(default=0, ge=0)
        """Ordinary rounds of the selection's cohort before the first window, as in the authors' experiments."""

    def __init__(self, params: Params, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        if params.deadline is not None and params.deadline < params.length:
            raise UserError(
                f"the longest window ({params.deadline:g} s) is shorter than the shortest ({params.length:g} s)",
                where="server.schedule.deadline",
                hint="give a deadline of at least the length, or none",
            )

    def draws(self) -> bool:
        """Only in the rounds of the warm-up."""
        return bool(self.params.warm_up)

    def run(self) -> Story[None]:
        """The rounds of the warm-up, and one window after another."""
        server, params = self.server, self.params
        while True:
            opened_ns, deadline = server.now_ns, None
            is_warm_up = server.round < params.warm_up
            if is_warm_up:
                while not (clients := self.selection.cohort()):
                    yield self.client_available()
            else:
                clients = list(range(server.clients))
                if params.deadline is not None:
                    deadline = self.after(params.deadline)
            work = Round(server, clients)
            while work.left:
                event = yield ANYTHING
                if isinstance(event, WakeUp):
                    break  # the deadline
                if not work.receive(event) and not is_warm_up:
                    work.dispatch(event.client)
            else:
                end_ns = opened_ns + to_ns(params.length)
                if not is_warm_up and server.now_ns < end_ns:
                    end = self.at(end_ns)
                    yield ANYTHING  # the end, or the deadline
                    end.cancel()
            if deadline is not None:
                deadline.cancel()
            work.close(cut=True)
            yield self.after(0)
