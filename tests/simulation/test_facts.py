"""Schedule and selection are checked before a run begins, and before there is a server."""

import contextlib
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.network.static import StaticNetwork
from fedsim.parts.catalog import CATALOG
from fedsim.scheduling.selections.uniform import Uniform
from fedsim.simulation.facts import Clients, Work, check_rules
from tests.simulation.harness import make_population, simulate


def check(schedule: dict[str, Any], selection: dict[str, Any], **rules: Any) -> None:
    made = CATALOG.parts("schedule")[schedule.pop("name")]
    picked = CATALOG.parts("selection")[selection.pop("name")]
    network = StaticNetwork(clients=3, latency_s=0.0, down_bps=8e6, up_bps=8e6)
    check_rules(
        Clients(
            make_population([1.0, 2.0, 4.0], network),
            np.ones(3, dtype=np.int64),
            Work(np.full(3, 10)),
            lambda client: 1.0 + client,
            lambda server: picked(picked.Params(**selection), server),
            lambda server, selection: made(made.Params(**schedule), server, selection),
            **rules,
        ),
        seed=0,
    )


@pytest.mark.parametrize("selection", sorted(set(CATALOG.parts("selection")) - {"scripted"}))
@pytest.mark.parametrize("schedule", sorted(CATALOG.parts("schedule")))
def test_every_schedule_and_selection_needs_facts_alone(schedule: str, selection: str) -> None:
    needed: dict[str, dict[str, Any]] = {
        "buffered": {"buffer_size": 2},
        "window": {"length": 5},
        "bernoulli": {"probability": 0.5},
        "periodic_groups": {"groups": 3, "slot": 60},
    }
    # Some of them do not go together, and say so.
    with contextlib.suppress(UserError):
        check(
            {"name": schedule, **needed.get(schedule, {})},
            {"name": selection, **needed.get(selection, {})},
        )


@pytest.mark.parametrize(
    "schedule",
    [
        *({"name": name} for name in sorted(CATALOG.parts("schedule"))),
        {"name": "window", "warm_up": 1},
        *(
            {"name": name, "next_client": given}
            for name in ("async", "buffered", "malenia", "rennala", "ringmaster")
            for given in ("same", "selection")
        ),
        *({"name": name, "concurrency": 2} for name in ("async", "rennala", "ringmaster")),
    ],
    ids=str,
)
def test_a_selection_is_drawn_from_or_refused(
    schedule: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, draw = [], Uniform.draw

    def spied(self: Uniform, count: int) -> list[int]:
        drawn.append(count)
        return draw(self, count)

    monkeypatch.setattr(Uniform, "draw", spied)
    simulate(step_s=[1.0, 2.0, 4.0], schedule=schedule, until_s=200)
    expectation = (
        contextlib.nullcontext()
        if drawn
        else pytest.raises(UserError, match="schedule all clients participate all the time")
    )
    with expectation:
        check(dict(schedule), {"name": "round_robin"})
    # A uniform selection without a cohort, or with one of all clients, is what happens.
    for selection in ({}, {"cohort": 3}):
        check(dict(schedule), {"name": "uniform", **selection})


def test_a_version_of_malenia_needs_all_clients() -> None:
    for schedule, selection in (({"concurrency": 2}, {}), ({}, {"cohort": 2})):
        with pytest.raises(UserError, match="needs updates of all 3 clients, but only 2 get work"):
            check({"name": "malenia", **schedule}, {"name": "uniform", **selection})
        check(
            {"name": "malenia", "next_client": "selection", **schedule},
            {"name": "uniform", **selection},
        )


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(UserError, match="names client 3"):
        check({"name": "sync"}, {"name": "scripted", "rounds": [[3]]})
