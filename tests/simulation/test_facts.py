"""Schedule and selection are checked before there is a server; errors of a user's own name function, value and fix."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fedsim
from fedsim.cli import cli
from fedsim.errors import UserError
from fedsim.network.static import StaticNetwork
from fedsim.parts.catalog import CATALOG
from fedsim.scheduling.selections.uniform import Uniform
from fedsim.simulation.facts import Clients, Work, check_rules
from tests.devices.worlds import LINKS, STEPS, timing
from tests.lines import without_lines
from tests.methods import own_method
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


# -- parts of a user ---------------------------------------------------------------------------------------------------


RULES = """\
import numpy as np
from fedsim.scheduling.base import CohortParams, Schedule, Selection


class Draws(Selection):
    name = "draws"
    Params = CohortParams

    def draw(self, count):
        return self.available()[:count].tolist()


class Rounds(Schedule):
    name = "rounds"

    def run(self):
        server = self.server
        for client in self.selection.cohort():
            server.dispatch(client)
        while True:
            dispatch = yield
            server.aggregate([dispatch], closes_round=True)
            server.dispatch(dispatch.client)
"""
SERVER = """
  schedule: {name: "SCHEDULE"}
  selection: {name: "rules.py:Draws", cohort: 2}"""
SCENARIO = own_method.SCENARIO.replace(' {method: {name: "mine.py:Mine"}}', SERVER)
SCENARIO = SCENARIO.replace("rounds: 2", "rounds: 3")
DRAWN = "return self.available()[:count].tolist()"
DISPATCHED = "server.dispatch(client)\n"
AGGREGATED = "server.aggregate([dispatch], closes_round=True)"


def run_with(
    folder: Path,
    right: str = "",
    wrong: str = "",
    schedule: str = "rules.py:Rounds",
    scenario: str = SCENARIO,
) -> Result:
    assert right in RULES
    (folder / "rules.py").write_text(RULES.replace(right, wrong, 1), encoding="utf-8")
    text = scenario.replace("SCHEDULE", schedule)
    (folder / "own.yaml").write_text(text, encoding="utf-8")
    command = ["run", str(folder / "own.yaml"), "-o", str(folder / "out"), "--timing-only"]
    return CliRunner().invoke(cli, command)


def shown(result: Result, function: str, message: str) -> None:
    """The error names the function, or the traceback shows its line."""
    assert result.exit_code == 2, result.output
    place = rf"rules\.py:(\d+:)? {re.escape('Draws.' + function)}: |line \d+, in {function}\n"
    assert re.search(place, result.stderr)
    assert message in result.stderr


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("return None", "returns None, not a list of clients"),
        ("return [0.0, 1.0]", "returns [0.0, 1.0], not a list of clients"),
        ("return [1, 0, 1]", "draws a client more than once: [1, 0, 1]"),
        ("return [1, 1]", "fedsim.scheduling.drawing.Replacing and return self.counted(drawn)"),
        ("return [0, 99]", "draws client 99; clients are 0 to 2"),
        ("import itertools; return itertools.count()", "draws client 3; clients are 0 to 2"),
        ("return [-1]", "draws client -1; clients are 0 to 2"),
        ("return [0, 1, 2]", "draws 3 clients, but count is 2"),
        # Client 1 is busy when client 0 arrives.
        (
            "return [0, 1] if self.server.now_ns == 0 else [1]",
            "draws client 1, which is offline or busy now",
        ),
    ],
)
def test_a_wrong_draw(tmp_path: Path, wrong: str, message: str) -> None:
    shown(run_with(tmp_path, DRAWN, wrong, "async"), "draw", message)


@pytest.mark.parametrize(
    "request_",
    [
        "aggregate([dispatch, dispatch])",
        "aggregate([dispatch], groups=[1, 2])",
        "cut(dispatch)",
        "discard(dispatch); server.discard(dispatch)",
        "dispatch(-1)",
        "dispatch(3)",
        "dispatch(2, steps=-2)",
        "dispatch(2, steps=2.5)",
    ],
)
def test_a_wrong_use_of_an_update(tmp_path: Path, request_: str) -> None:
    result = run_with(tmp_path, AGGREGATED, f"server.{request_}")
    shown(result, "run", "your own code failed with the error above")


def test_a_cut_as_soon_as_work_has_been_handed_out(tmp_path: Path) -> None:
    cut = "lambda: server.cut(dispatch)"
    callback = f"lambda dispatch: server.call_at(server.now_ns, {cut})"
    result = run_with(tmp_path, DISPATCHED, f"server.dispatch(client, on_dispatched={callback})\n")
    assert result.exit_code == 0, result.output


def test_work_that_takes_no_time_does_not_go_on_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.simulation.level.LEAST_STALLED_AFTER", 400)
    fast = (
        SCENARIO.replace("1s", "0s")
        .replace("down: 1Mbps, up: 1Mbps", "latency: 0, down: 1e12Mbps, up: 1e12Mbps")
        .replace("rounds: 3", "rounds: 9999")
    )
    result = run_with(tmp_path, scenario=fast)
    assert result.exit_code == 2, result.output
    assert "4,000 events took no time: the clock stands still" in result.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "note"),
    [
        (
            DISPATCHED,
            "pass\n",
            "no work was dispatched, so the tables are empty and the model is the initial one",
        ),
        (
            AGGREGATED,
            "continue",
            "no update was aggregated, so the model is the initial one; 2 updates arrived",
        ),
        # One version per arrival, of the two clients that start.
        (
            "            server.dispatch(dispatch.client)\n",
            "",
            "so the run ended at version 2, before any limit of stop was reached",
        ),
    ],
)
def test_a_schedule_that_does_too_little_is_noted(
    tmp_path: Path, right: str, wrong: str, note: str
) -> None:
    result = run_with(tmp_path, right, wrong)
    assert result.exit_code == 0, result.output
    assert re.search(rf"rules.py: Rounds.run: .*{note}", without_lines(result.stderr))
    (told,) = json.loads((tmp_path / "out" / "run.json").read_text())["notes"]
    assert note in told
    (tmp_path / "whole").mkdir()
    assert "Rounds." not in run_with(tmp_path / "whole").stderr


@pytest.mark.parametrize(
    ("drawn", "named"), [("[]", True), ("self.available()[:count].tolist()", False)]
)
def test_a_selection_that_draws_nobody(tmp_path: Path, drawn: str, named: bool) -> None:
    (tmp_path / "empty.py").write_text(
        "from fedsim.scheduling.base import CohortParams, Selection\n\n\n"
        "class Empty(Selection):\n    Params = CohortParams\n\n"
        f"    def draw(self, count):\n        return {drawn}\n"
    )
    scenario = timing(
        {"compute": STEPS, "network": LINKS},
        server={"selection": {"name": f"{tmp_path}/empty.py:Empty", "cohort": 2}},
    )
    run = fedsim.run(scenario | {"stop": {"simulated_time": 60}}, tmp_path / "run")
    notes = run.info.get("notes", [])
    if named:
        assert run.dispatches.empty
        assert any(
            note.startswith("draws nobody although clients are available; ") for note in notes
        )
        assert not any(note.startswith("no work was dispatched") for note in notes)
    else:
        assert len(run.dispatches)
        assert not any("draws nobody" in note for note in notes)


def test_a_deadline_that_no_update_meets(tmp_path: Path) -> None:
    """Nominally, a dispatch takes 8 s."""
    slower = {**STEPS, "perturbations": [{"at": 0, "factor": 2}]}
    scenario = timing(
        {"compute": slower, "network": LINKS},
        server={"schedule": {"name": "sync", "deadline": "9s"}},
    )
    run = fedsim.run(scenario | {"stop": {"rounds": 3}}, tmp_path / "run")
    assert set(run.dispatches["outcome"]) <= {"late", "unfinished"}
    [note] = [each for each in run.info["notes"] if "no update was" in each]
    assert note.endswith("the model is the initial one; every update that arrived was late")
