"""The functions of the package."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fedsim
from fedsim import api
from fedsim.errors import UserError
from fedsim.methods.fedavg import FedAvg
from fedsim.parts.component import load_user_component
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


def test_arguments_of_wrong_types_are_named() -> None:
    with pytest.raises(UserError, match="argument scenario: must be a file, a name or a mapping"):
        fedsim.run(3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"argument scenario: .*not None"):
        fedsim.sweep(None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="argument paths: 3 is not a run"):
        fedsim.compare([3])  # type: ignore[list-item]
    with pytest.raises(UserError, match="argument paths: no runs are given"):
        fedsim.compare([])


def test_a_mistake_is_shown_with_the_callers_frames(tmp_path: Path) -> None:
    """The only other frame is that of the function which was called."""
    calls: list[Callable[[], object]] = [
        lambda: fedsim.run("quickstart", tmp_path / "run", overrides=["stop.round=3"]),
        lambda: fedsim.run(quadratic([[0]], server={"selection": {"cohort": 9}}), tmp_path / "run"),
        lambda: fedsim.read_scenario(tmp_path / "nothing.yaml"),
        lambda: fedsim.resume(tmp_path),
        lambda: fedsim.load(tmp_path),
        lambda: fedsim.compare(tmp_path),
        lambda: fedsim.sweep("quickstart", tmp_path / "sweep"),
    ]
    for call in calls:
        with pytest.raises(UserError) as caught:
            call()
        shown = "".join(traceback.format_exception(caught.value))
        assert shown.count("  File ") == 3, shown
        assert shown.count(f'File "{__file__}"') == 2


def test_an_error_of_a_users_file_keeps_its_frames(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def build():\n    raise KeyError('lost')\n\nbuild()\n")
    call = api._without_inner_frames(load_user_component)
    with pytest.raises(UserError) as caught:
        call("own.py:Mine", object, tmp_path)
    shown = "".join(traceback.format_exception(caught.value))
    assert f'File "{tmp_path / "own.py"}", line 2, in build' in shown


def test_an_interruption_names_the_next_call_and_shows_the_callers_frames(tmp_path: Path) -> None:
    """Its page shows what there is; the page of the complete run follows when it is resumed."""

    def stop(progress: Progress) -> None:
        if progress.version == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt) as caught:
        fedsim.run(digits(), folder, on_progress=stop)
    assert caught.value.__notes__ == [f"continue with: fedsim.resume({str(folder)!r})"]
    assert [frame.name for frame in caught.traceback] == [
        "test_an_interruption_names_the_next_call_and_shows_the_callers_frames",
        "call",
        "run",
        "__exit__",
    ]
    assert (
        "This run was interrupted. This page shows the first"
        in (folder / "report.html").read_text()
    )
    assert "was interrupted" not in fedsim.resume(folder).folder.report.read_text()


def test_a_run_that_fails_has_a_page(tmp_path: Path) -> None:
    def fail(progress: Progress) -> None:
        raise ZeroDivisionError("by hand")

    with pytest.raises(ZeroDivisionError):
        fedsim.run(digits(), tmp_path / "run", on_progress=fail)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "This run ended with an error (ZeroDivisionError: by hand)." in page


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fedsim.run(quadratic([[0]]), 5), "argument output: must be a path, not 5"),  # type: ignore[arg-type]
        (lambda: fedsim.sweep({}, 5), "argument output: must be a path, not 5"),  # type: ignore[arg-type]
        (lambda: fedsim.load(5), "argument path: must be a path, not 5"),  # type: ignore[arg-type]
        (lambda: fedsim.resume(5), "argument path: must be a path, not 5"),  # type: ignore[arg-type]
        (
            lambda: fedsim.run({}, overrides=5),  # type: ignore[arg-type]
            "argument overrides: must be a list of strings, not 5",
        ),
        (
            lambda: fedsim.compare([], targets="accuracy=0.9"),
            "argument targets: must be a list of strings, not 'accuracy=0.9'",
        ),
        (
            lambda: fedsim.compare([], targets={"accuracy": 0.9}),
            r"must be a list of strings, not \{'accuracy': 0.9\}\n  for example targets=\[\"accuracy=0.9\"\]",
        ),
        (
            lambda: fedsim.sweep({}, engine="slurm"),  # type: ignore[arg-type]
            "argument engine: must be 'local' or 'ray', not 'slurm'",
        ),
        *[
            (
                lambda jobs=jobs: fedsim.sweep({}, jobs=jobs),
                f"argument jobs: must be a whole number of at least 1, not {jobs!r}",
            )
            for jobs in (0, -1, 1.5, "all", True)
        ],
    ],
)
def test_arguments_are_checked(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_a_sweep_reports_progress(tmp_path: Path) -> None:
    scenario = {
        "task": {"name": "quadratic", "centers": [1, 2]},
        "devices": {
            "compute": {"name": "values", "step": 1},
            "network": {"down": "1Mbps", "up": "1Mbps"},
        },
        "stop": {"rounds": 1},
        "sweep": {"seeds": [0, 1]},
    }
    texts: list[str] = []
    fedsim.sweep(scenario, tmp_path / "two", jobs=1, on_progress=lambda p: texts.append(p.text()))
    assert texts[0] == "0 of 2 runs"
    assert texts[-1] == "2 of 2 runs"


def test_arguments_of_a_run_are_checked(tmp_path: Path) -> None:
    run = fedsim.run(digits(stop={"rounds": 1}), tmp_path / "run")
    with pytest.raises(UserError, match="argument timeline: must be a run or its folder, not 5"):
        fedsim.run(digits(), tmp_path / "again", timeline=5)  # type: ignore[arg-type]
    with pytest.raises(
        UserError, match="argument target: must be a number or a percentage, not 'half'"
    ):
        run.time_to("accuracy", "half")
    with pytest.raises(UserError, match=r"plot: has no argument 'widht'\n  did you mean 'width'\?"):
        run.plot(widht=3)
    with pytest.raises(UserError, match="no run measured '5'"):
        run.plot(5)  # type: ignore[arg-type]
    assert run.plot(width="ieee").get_figwidth() == 3.5
    with pytest.raises(UserError, match="argument path: must be a path"):
        run.report(5)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="argument folder: must be a path"):
        fedsim.compare(run).write(5)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"give a file in it, such as .*run/scenario\.yaml"):
        fedsim.run(run.path)
