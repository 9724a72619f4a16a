"""A run again with a change, against cases on paper and the predictions of the critical path."""

import json
from pathlib import Path

import pytest

import fedsim
from fedsim.analysis.figures.time import predicted_changes
from fedsim.runs.critical import waiting_by_cause
from tests.cli.invoking import assert_refused, invoke

pytestmark = pytest.mark.usefixtures("without_reports")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rounds of 1 + 6 + 1 s, until the slow one of three clients has answered."""
    content = {
        "name": "before",
        "task": {"name": "quadratic", "centers": [1.0, 2.0, 3.0]},
        "training": {"local_steps": 2, "dtype": "float64", "device": "cpu"},
        "devices": {
            "compute": {"name": "values", "step": [1.0, 3.0, 0.5]},
            "network": {"name": "static", "latency": "0s", "down": "64bps", "up": "64bps"},
        },
        "stop": {"rounds": 5, "target": {"distance": 1e-9}},
        "evaluation": {"every_rounds": 1},
    }
    folder = tmp_path_factory.mktemp("what_if") / "before"
    fedsim.run(content, folder)
    return folder


@pytest.mark.parametrize(
    ("cause", "change", "seconds"),
    [
        ("compute", "devices.compute.step=0.5x", 25),
        ("upload", "devices.network.up=2x", 37.5),
        ("download", "devices.network.down=2x", 37.5),
    ],
)
def test_predictions_hold(before: Path, cause: str, change: str, seconds: float) -> None:
    run = fedsim.load(before)
    assert run.critical is not None
    spent = waiting_by_cause(run.critical)
    predicted = spent.sum() - spent[cause] / 2
    result = invoke("what-if", before, "-s", change, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["simulated time"] == {"before": 40, "after": pytest.approx(predicted)}
    assert predicted == pytest.approx(seconds)
    # The order of arrival does not matter to the mean.
    assert figures["final loss"]["after"] == pytest.approx(figures["final loss"]["before"])
    commands = {each["command"]: each["share"] for each in predicted_changes(run, spent)}
    assert commands[f"fedsim what-if {before} -s {change}"] == pytest.approx(1 - seconds / 40)


def test_without_a_change_the_predictions_are_shown(before: Path) -> None:
    result = invoke("what-if", before)
    assert result.exit_code == 0, result.output
    assert "75.0% went to: local steps" in result.output
    assert "devices twice as fast: about −37.5%" in result.output
    assert f"fedsim what-if {before} -s devices.compute.step=0.5x" in result.output
    shown = fedsim.what_if(before, {"devices.compute.step": "0.5x"}).set_index("figure")
    assert shown.loc["simulated time", ["before", "after"]].tolist() == [40, pytest.approx(25)]


def test_without_the_slowest_clients(before: Path, tmp_path: Path) -> None:
    options = ("--without-clients", "slowest:10%", "-o", tmp_path / "after")
    result = invoke("what-if", before, *options)
    assert result.exit_code == 0, result.output
    # 1 + 2 + 1 s per round.
    assert "40 s" in result.stdout
    assert "20 s" in result.stdout
    assert "−50.0%" in result.stdout
    assert set(fedsim.load(tmp_path / "after").dispatches["client_id"]) == {0, 2}
    again = invoke("what-if", before, "--without-clients", "1", "-o", tmp_path / "one")
    assert again.exit_code == 0, again.output
    assert fedsim.load(tmp_path / "one").simulated_s == 20


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (("-s", "server.method.name=2x"), ("not a number to multiply", "give its new value")),
        (("-s", "server.schedule.pauze=0.5x"), ("unknown key", "did you mean 'pause'?")),
        (("--without-clients", "slow"), ("--without-clients slow: names no clients",)),
        (("--without-clients", "3"), ("there is no client 3", "clients are 0 to 2")),
    ],
)
def test_mistakes(before: Path, options: tuple[str, ...], fragments: tuple[str, ...]) -> None:
    assert_refused(invoke("what-if", before, *options), *fragments)
