"""Lines of progress where there is no terminal, and the command that comes next."""

from contextlib import nullcontext
from pathlib import Path

import pytest

import fedsim
from fedsim.cli import progress as module
from fedsim.cli.progress import following, next_command
from fedsim.errors import UserError
from fedsim.runs.folder import Status
from fedsim.runs.progress import Progress
from fedsim.sweeps.execution import SweepProgress
from tests.cli.invoking import PARABOLAS

HALF = Progress(simulated_s=60.0, version=5, rounds=5, dispatched=9, share=0.5, metrics={})


def test_an_interruption_names_the_command_that_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (tmp_path, tmp_path / "not begun"):
        with pytest.raises(KeyboardInterrupt), next_command(folder, "fedsim resume run"):
            raise KeyboardInterrupt
    assert capsys.readouterr().err == "continue with: fedsim resume run\n"


@pytest.mark.parametrize("error", [ZeroDivisionError(), UserError("the run has stalled")])
def test_a_failed_run_may_be_given_again(tmp_path: Path, error: Exception) -> None:
    (tmp_path / "scenario.yaml").write_text(PARABOLAS)
    run = fedsim.run(tmp_path / "scenario.yaml", tmp_path / "run").folder
    for notes, status in enumerate((Status.COMPLETE, Status.FAILED)):
        run.update_info(status=status)
        with pytest.raises(type(error)) as caught, next_command(run.path, "fedsim resume"):
            raise error
        assert len(getattr(caught.value, "__notes__", ())) == notes
    with (
        pytest.raises(type(error)) as caught,
        next_command(run.path, "fedsim resume", "begin anew"),
    ):
        raise error
    assert caught.value.__notes__[-1] == "after fixing the cause, begin anew"


def test_the_parts_of_a_sweep_are_below_it_and_its_news_are_printed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LINE_S", 1e9)
    settings = {
        "kind": "sweep",
        "news_of": lambda progress: ["a warning"],
        "parts_of": lambda progress: [("lr1", 0.25, "version 3"), ("lr2", 0.0, "")],
    }
    lines = []
    monkeypatch.setattr(module, "repeated", lambda s, action: lines.append(action) or nullcontext())
    with following("mine", tmp_path, "again", quiet=False, **settings) as show:
        lines[0]()
        show(SweepProgress(runs=2, complete=1, failed=0, share=0.5))
        lines[0]()
    assert capsys.readouterr().err.splitlines() == [
        "mine: 0%, starting",
        f"sweep folder: {tmp_path} (to watch it: fedsim watch {tmp_path})",
        "a warning",
        "mine: 50%, 1 of 2 runs",
        "  lr1: 25%, version 3",
        "  lr2: 0%",
    ]
