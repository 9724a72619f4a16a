"""What a ClientApp of a deployment imports: little, because a SuperNode starts a process for each message."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.flower import internals as fl

if TYPE_CHECKING:
    from fedsim.scenario.loading import LoadedScenario

_preparing_s = 0.0
"""Seconds that this process has spent on imports and data, which are not a device's work."""
TrainMessage = Callable[[fl.Message, fl.Context], fl.Message]


def timed(message: fl.Message, context: fl.Context, call_next: TrainMessage) -> fl.Message:
    """A mod for ClientApps, ``ClientApp(mods=[timed])``, that adds the ClientApp's working time to the reply.

    :func:`logged` removes it from the reply.
    """
    began = time.perf_counter() - _preparing_s
    reply = call_next(message, context)
    if reply.has_content():
        seconds = time.perf_counter() - _preparing_s - began
        reply.content[fl.TIMING] = fl.ConfigRecord({"seconds": seconds})
    return reply


def local_update(
    scenario: str | Path | Mapping[str, Any] | LoadedScenario,
    overrides: Iterable[str] | Mapping[str, Any] = (),
) -> TrainMessage:
    """The work of the clients of a scenario, for a ClientApp: a function of a training message and the node's context.

    It trains on the part of the scenario's data that has the number ``partition-id`` of the node, as a simulated client
    does, with the corrections and memories of the scenario's method::

        train = fedsim.flower.local_update("scenario.yaml")
        app = ClientApp()

        @app.train()
        def _(message, context):
            return train(message, context)

    A memory is kept in the node's state, and lost with it.

    Args:
        scenario, overrides: those of :func:`fedsim.flower.server_app`.
    """
    work: TrainMessage | None = None

    def train(message: fl.Message, context: fl.Context) -> fl.Message:
        global _preparing_s
        nonlocal work
        if "arrays" not in message.content:
            number = fl.ConfigRecord({fl.NUMBER: int(context.node_config.get(fl.NUMBER, -1))})
            return fl.Message(fl.RecordDict({"config": number}), reply_to=message)
        if work is None:
            began = time.perf_counter()
            from fedsim.api import read_scenario
            from fedsim.flower.update import LocalUpdate

            work = LocalUpdate(read_scenario(scenario, overrides))
            _preparing_s += time.perf_counter() - began
        return work(message, context)

    return train
