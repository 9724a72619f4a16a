"""The ServerApp of a scenario: its ``server:`` section, on the nodes of a Flower deployment."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedsim.api import read_scenario
from fedsim.composition.build import build
from fedsim.composition.run import execute, resume
from fedsim.composition.world import World
from fedsim.errors import UserError, raise_all
from fedsim.flower import internals as fl
from fedsim.flower.grid import SimulatedGrid
from fedsim.flower.live import LiveClients
from fedsim.methods.base import Method
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.progress import Progress
from fedsim.scenario.loading import LoadedScenario
from fedsim.vocabulary.formatting import format_duration

LOGGER = logging.getLogger("fedsim")
TTL_S = 12 * 3600.0
"""Flower's default for the time to live of a message."""
_OWN_RULES = ("local_rule", "local_update", "start")


def server_app(
    scenario: str | Path | Mapping[str, Any] | LoadedScenario,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    *,
    output: str | Path | None = None,
    local_update: bool = False,
    ttl_s: float = TTL_S,
) -> fl.ServerApp:
    """A Flower ServerApp that runs the ``server:`` section of a scenario.

    Method, schedule, selection, stop and evaluation are the scenario's; nodes and time are real. The log is a run
    folder with ``clock: wall`` in its ``run.json``. A deployment that was interrupted is continued from its folder.
    In ``fedsim flower`` the time is simulated.

    Args:
        scenario: a file, or a mapping with the same content.
        overrides: values by dotted path, as for :func:`fedsim.run`.
        output: the run folder; ``runs/<name>-deployed`` if None.
        local_update: whether the ClientApp calls :func:`fedsim.flower.local_update`, which methods need whose clients
            do more than local SGD.
        ttl_s: seconds after which a message without a reply is lost.
    """
    app = fl.ServerApp()

    @app.main()  # type: ignore[untyped-decorator]  # Flower is not checked
    def main(grid: fl.Grid, context: fl.Context) -> None:
        loaded: LoadedScenario = read_scenario(scenario, overrides)
        if isinstance(grid, SimulatedGrid):
            # The errors of this grid come when the failure has been detected.
            loaded = loaded.changed(["server.failure_detection=0s"])
        try:
            with loaded.locating_errors():
                raise_all(list(refusals(build(loaded), local_update=local_update)))
            clients = LiveClients(grid, ttl_s, introduce=local_update)
            folder = Path(output or Path("runs") / f"{loaded.scenario.name}-deployed")
            info = RunFolder(folder).read_info() if (folder / "run.json").exists() else {}
            if info.get("clock") == "wall" and info["status"] != Status.COMPLETE:
                resume(folder, live=clients, on_progress=_show, on_start=LOGGER.warning)
            else:
                execute(loaded, folder, live=clients, on_progress=_show)
        except UserError as error:
            if not isinstance(grid, SimulatedGrid):
                LOGGER.error("error: %s", error)
            raise

    return app


def _show(progress: Progress) -> None:
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in progress.metrics.items())
    fl.FLOWER_LOGGER.info(
        "%s | version %d, %d dispatches%s",
        format_duration(progress.simulated_s),
        progress.version,
        progress.dispatched,
        f" | {metrics}" if metrics else "",
    )


def refusals(world: World, *, local_update: bool) -> Iterator[UserError]:
    """What in a scenario cannot be deployed."""
    method, server = world.method, world.scenario.server
    name, where = method.title or method.name, "server.method"
    keeps = any(memory.kept_when_lost for memory in method.memories().values())
    table = {
        "task": (
            not world.learns,
            f"the task '{world.scenario.task.name}' trains no model that a node could get",
            "choose a task with a data set and a model, as 'fedsim init --template deploy' does",
        ),
        "server.edges": (
            world.edges is not None,
            "edge servers cannot be deployed: the nodes of a SuperLink have one server",
            "remove them",
        ),
        "server.partial_work": (
            server.partial_work == "send",
            "a ClientApp cannot send partial work",
            "remove it",
        ),
        "server.submodels": (
            method.parts is not None,
            "clients with parts of the model cannot be deployed",
            "remove it",
        ),
        where: (
            method.personal or method.continues_models or keeps or method.steps_ahead(),
            f"the clients of {name} have personal models, which the server cannot evaluate, or work on between "
            "messages, which a ClientApp cannot",
            "choose a method whose clients keep nothing that the server must know, such as fedavg",
        ),
    }
    refused = [
        UserError(text, where=at, hint=hint) for at, (is_so, text, hint) in table.items() if is_so
    ]
    yield from refused
    if not refused and not local_update and (reason := _more_than_sgd(world)):
        yield UserError(
            f"{reason}, which an unmodified ClientApp does not do",
            where=where,
            hint="let the ClientApp call fedsim.flower.local_update(scenario), and write "
            "server_app(..., local_update=True)",
        )


def _more_than_sgd(world: World) -> str:
    """What the clients of a method do besides local SGD, as a clause; empty if nothing."""
    method, kinds = world.method, type(world.method).__mro__
    name, keepers = (
        method.title or method.name,
        [memory.keeper for memory in method.memories().values()],
    )
    down, up = ([vector.name for vector in way] for way in (method.download(), method.upload()))
    # What averages buffers changes the update of every method, and needs only the model.
    rules = any(
        not vars(kind).keys().isdisjoint(_OWN_RULES)
        for kind in kinds[: kinds.index(Method)]
        if kind.__module__ != "fedsim.methods.mixins"
    )
    if any(vector.is_lossy for vector in method.upload()):
        return "the clients of the scenario compress their updates"
    if rules or method.prologue() or set(keepers) - {"server"}:
        return f"the clients of {name} do more than local SGD"
    if down != ["model"] or up not in (["delta"], ["model"]):
        return f"the clients of {name} get {', '.join(down)} and send {', '.join(up)}"
    if world.scenario.training.optimizer_state != "reset":
        return "the clients continue their optimizer's state"
    return ""
