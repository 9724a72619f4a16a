"""The functions of the package."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.methods.fedavg import FedAvg
from fedsim.runs.progress import Progress
from fedsim.scenario.loading import LoadedScenario
from tests.composition.worlds import digits, quadratic


def test_a_scenario_can_be_given_checked(tmp_path: Path) -> None:
    """read_scenario and run accept one another's results."""
    loaded = fedsim.read_scenario(quadratic([[0]]), ["seed=5"])
    assert isinstance(loaded, LoadedScenario)
    assert fedsim.run(loaded, tmp_path / "run").info["seed"] == 5


def test_overrides_are_values_by_path_or_text() -> None:
    class Mine(FedAvg):
        """A method of a script."""

    values = {"server.method": {"name": Mine, "server_lr": 0.5}, "stop.rounds": np.int64(7)}
    for scenario in ("quickstart", fedsim.read_scenario("quickstart")):
        loaded = fedsim.read_scenario(scenario, values)
        assert loaded.scenario.server.method.type is Mine
        assert loaded.scenario.server.method.params.server_lr == 0.5
        assert loaded.scenario.stop.rounds == 7
    with pytest.raises(UserError) as caught:
        fedsim.read_scenario("quickstart", {"training.optimizer.lrr": 1})
    assert str(caught.value) == (
        "argument overrides={\"training.optimizer.lrr\": ...}: unknown key\n  did you mean 'lr'?"
    )
    text = fedsim.read_scenario("quickstart", ["stop.rounds=7"])
    assert text.scenario == fedsim.read_scenario("quickstart", {"stop.rounds": 7}).scenario


@pytest.mark.usefixtures("with_reports")
def test_an_interruption_names_the_next_call(tmp_path: Path) -> None:
    """Its page shows what there is; the page of the complete run follows when it is resumed."""

    def stop(progress: Progress) -> None:
        if progress.version == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt) as caught:
        fedsim.run(digits(), folder, on_progress=stop)
    assert caught.value.__notes__ == [f"continue with: fedsim.resume({str(folder)!r})"]
    assert (
        "This run was interrupted. This page shows the first"
        in (folder / "report.html").read_text()
    )
    assert "was interrupted" not in fedsim.resume(folder).folder.report.read_text()


@pytest.mark.usefixtures("with_reports")
def test_a_run_that_fails_has_a_page(tmp_path: Path) -> None:
    def fail(progress: Progress) -> None:
        raise ZeroDivisionError("by hand")

    with pytest.raises(ZeroDivisionError):
        fedsim.run(digits(), tmp_path / "run", on_progress=fail)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "This run ended with an error (ZeroDivisionError: by hand)." in page


def test_arguments_are_checked() -> None:
    a_list = "must be a list of strings, not"
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: fedsim.run(3), "scenario: must be a file, a name or a mapping"),  # type: ignore[arg-type]
        (lambda: fedsim.compare([3]), "paths: 3 is not a run"),  # type: ignore[list-item]
        (lambda: fedsim.compare([]), "paths: no runs are given"),
        (lambda: fedsim.run({}, overrides=5), f"overrides: {a_list} 5"),  # type: ignore[arg-type]
        (lambda: fedsim.compare([], targets="loss=1"), f"targets: {a_list} 'loss=1'"),
        (lambda: fedsim.sweep({}, engine="sge"), "engine: must be 'local', 'ray' or 'slurm'"),  # type: ignore[arg-type]
        (lambda: fedsim.sweep({}, jobs=0), "jobs: must be a whole number of at least 1, not 0"),
        (lambda: fedsim.sweep({}, jobs=1.5), "jobs: must be a whole number of at least 1, not 1.5"),  # type: ignore[arg-type]
    ]
    for call, message in refused:
        with pytest.raises(UserError, match=f"argument {message}"):
            call()


def test_arguments_of_a_run_are_checked(tmp_path: Path) -> None:
    run = fedsim.run(digits(stop={"rounds": 1}), tmp_path / "run")
    with pytest.raises(UserError, match="argument target: must be a number or a percentage"):
        run.time_to("accuracy", "half")
    with pytest.raises(TypeError, match="widht"):
        run.plot(widht=3)
    with pytest.raises(UserError, match="no run measured 'accurracy'"):
        run.plot("accurracy")
    assert run.plot(width="ieee").get_figwidth() == 3.5
    with pytest.raises(UserError, match=r"not a scenario file\n.*/run contains scenario\.yaml"):
        fedsim.run(run.path)
