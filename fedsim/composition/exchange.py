"""What a scenario must not contain if clients exchange their updates among themselves (``server.exchange``)."""

from __future__ import annotations

from fedsim.errors import UserError
from fedsim.methods.base import Method
from fedsim.scenario.model import Scenario
from fedsim.scheduling.schedules.sync import Sync, SyncParams


def unmet_exchange(scenario: Scenario, method: Method) -> list[UserError]:
    """The errors of a scenario whose clients cannot compute the mean of their updates among themselves."""
    server = scenario.server
    exchange, schedule = server.exchange.type, server.schedule
    if not exchange.among_clients:
        return []
    title, kind = method.title or method.name, exchange.name or exchange.__name__
    params = schedule.params
    waits_for_all = (
        isinstance(params, SyncParams)
        and schedule.type.limit_s is Sync.limit_s
        and (params.deadline, params.quorum, params.over_selection) == (None, None, 1.0)
    )
    up, down = server.compression.up, server.compression.down.create(method.context.layout)
    rules = (
        (server.edges is not None, "of edge servers", "server.edges", "remove the edge servers"),
        (
            not waits_for_all,
            "without all clients of the round",
            "server.schedule",
            "use the sync schedule without deadline, quorum and over_selection",
        ),
        (
            server.failure_detection == "never",
            "after a client has left without being noticed",
            "server.failure_detection",
            "give the time after which the other clients notice it",
        ),
        (
            not method.averages or method.prologue() is not None,
            f"for {title}, which needs more than the mean of the updates",
            "server.method",
            "use a method such as fedavg, diloco or fedadam",
        ),
        (
            not up.type.sums,
            f"of updates compressed by {up.type.name}, which cannot be added",
            "server.compression.up",
            "use none, cast or factor",
        ),
        (
            not down.changes_nothing,
            "with a compressed model, because clients compute it themselves",
            "server.compression.down",
            "use none",
        ),
        (
            server.submodels.type.name != "whole",
            "of different parts of the model",
            "server.submodels",
            "use whole",
        ),
        (
            scenario.devices.failures.upload_loss > 0,
            "that loses the update of one client",
            "devices.failures.upload_loss",
            "use crash_rate or availability for clients that leave",
        ),
    )
    return [
        UserError(
            f"there is no {kind} {what}", where=where, hint=f"{fix}, or use server.exchange: server"
        )
        for unmet, what, where, fix in rules
        if unmet
    ]
