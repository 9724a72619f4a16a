"""Schedule and selection are checked before a run begins, and before there is a server."""

import contextlib
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.network.static import StaticNetwork
from fedsim.parts.catalog import CATALOG
from fedsim.simulation.facts import Clients, Rules, Work, check_rules
from tests.simulation.harness import make_population


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
        ),
        Rules(
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


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(UserError, match="names client 3"):
        check({"name": "sync"}, {"name": "scripted", "rounds": [[3]]})
