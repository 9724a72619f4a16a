"""What a run will cost, as the commands say it."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedsim.cli import cost
from fedsim.cli.cost import cost_lines, known_cost, variants_of
from fedsim.composition.cost import Cost
from fedsim.scenario.loading import load_scenario_dict
from fedsim.sweeps.plan import plan_runs
from tests.cli.invoking import PARABOLAS, assert_refused, invoke
from tests.sweeps.worlds import SMALL, scenario, write

SOME = Cost(3, 4, 2, 2_000, 40_000, 90.0, 0.25)


def test_the_cost_in_words(tmp_path: Path) -> None:
    loaded = load_scenario_dict(SMALL, tmp_path)
    counts = "3 rounds, 4 server updates, 2 dispatches, 2,000 updates to train, 40,000 local steps"
    [line] = cost_lines(SOME, loaded)
    end = "of wall time, estimated from the first 25.0%"
    assert line == f"cost: {counts}, about 1 min 30 s {end}"
    line, advice = cost_lines(SOME, loaded, 4, 2)
    assert line == f"cost of 4 runs: {counts}, about 45 s {end}"
    assert advice.startswith("no stop.target ends these runs before their limits: set one")
    [line] = cost_lines(SOME, loaded.changed(["stop.target.loss=1"]), 4)
    assert line.startswith("cost of 4 runs, at most: 3 rounds")
    assert cost_lines(Cost(3, 3, 6, 0, 0, None, 1.0), loaded) == ["cost: 3 rounds, 6 dispatches"]


def test_a_sweep_costs_as_much_as_its_variants(tmp_path: Path) -> None:
    planned = plan_runs(load_scenario_dict(SMALL, tmp_path))
    variants = variants_of(planned)
    assert [one.scenario.training.optimizer.params.lr for one in variants] == [0.1, 0.2]
    expected = known_cost(variants, len(planned), measures=False)
    assert expected is not None
    assert (expected.rounds, expected.dispatches) == (16, 4 * 8)


def test_check_says_what_a_run_costs(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(PARABOLAS)
    *_, last = invoke("scenario", "check", tmp_path / "s.yaml").stdout.splitlines()
    assert last == "cost: 2 rounds, 6 dispatches, 6 updates to train, 12 local steps"
    measured = invoke("scenario", "check", tmp_path / "s.yaml", "--measure", "--json").stdout
    document = json.loads(measured)["cost"]
    assert document.pop("wall_s") > 0
    counts = {"rounds": 2, "versions": 2, "dispatches": 6, "updates": 6, "steps": 12}
    assert document == {**counts, "share": 1}


def test_long_runs_and_sweeps_are_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.yaml").write_text(PARABOLAS)
    swept = write(tmp_path / "w.yaml", scenario(grid={"training.local_steps": [1, 2]}))
    commands = (
        ("run", tmp_path / "s.yaml", "-o", tmp_path / "run", "--overwrite", "--timing-only"),
        ("sweep", swept, "-j", "1", "-o", tmp_path / "sweep"),
    )
    assert not any("cost" in invoke(*arguments).stderr for arguments in commands)
    monkeypatch.setattr(cost, "_LONG_S", 0.0)
    monkeypatch.setattr("fedsim.composition.cost._MANY_STEPS", 0.1)
    shown = invoke(*commands[0]).stderr
    assert "cost: 2 rounds, 6 dispatches, about 0 s of wall time\n" in shown
    assert "cost" not in invoke(*commands[1]).stderr, "every run is complete"
    more = invoke(*commands[1], "-s", "sweep.seeds=[0, 1]").stderr
    assert "cost of 2 runs: 8 rounds, " in more
    assert "no stop.target ends these runs" in more


LINKS = {"name": "static", "latency": 0, "down": "1Gbps", "up": "1Gbps"}
NO_LINKS = {**LINKS, "down": "1e9Gbps", "up": "1e9Gbps"}


@pytest.mark.parametrize(
    ("stalled", "step", "devices", "schedule", "message"),
    [
        (None, 0, {"network": NO_LINKS}, {}, "devices: 100,000 dispatches took no time"),
        (
            50,
            1,
            {"network": LINKS, "failures": {"upload_loss": 1}},
            {"name": "async"},
            "in the last 50 dispatches",
        ),
        (None, 1, {"network": LINKS}, {"pause": 3.1e9}, "stop: after 35,880 d, a pause"),
    ],
)
def test_check_says_what_the_run_will_say(
    stalled: int | None,
    step: float,
    devices: dict[str, Any],
    schedule: dict[str, Any],
    message: str,
    tmp_path: Path,
) -> None:
    content = {
        "name": "never",
        "task": {"name": "timing", "clients": 2, "size": "1MB"},
        "devices": {"compute": {"name": "values", "step": step}, **devices},
        "server": {"schedule": {"name": "sync", **schedule}},
        "stop": {"rounds": 10_000_000, "stalled_after": stalled},
    }
    path = write(tmp_path / "s.yaml", content)
    checked, run = (
        invoke(*words)
        for words in (("scenario", "check", path), ("run", path, "-o", tmp_path / "run"))
    )
    assert_refused(checked, message)
    assert [line for line in checked.stderr.splitlines() if "error" in line] == [
        line for line in run.stderr.splitlines() if "error" in line
    ]
