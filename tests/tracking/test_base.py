"""A tracker of the user's, installed clients, and imports."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedsim.errors import UserError
from fedsim.tracking.wandb import Wandb
from tests.tracking.listening import SCENARIO, Listening, run


def test_a_tracker_of_the_users_hears_every_evaluation_and_the_end(tmp_path: Path) -> None:
    metrics = run(tmp_path, Listening).metrics
    assert [moment.index for _, moment in Listening.heard] == list(range(len(metrics)))
    for row, (values, moment) in zip(metrics.to_dict("records"), Listening.heard, strict=True):
        assert (moment.time_s, moment.version) == (row["time_s"], row["version"])
        assert moment.round == row["round"]
        assert moment.hours == row["time_s"] / 3600
        assert values == {name: row[name] for name in metrics.columns[3:]}
    [(status, summary)] = Listening.ended
    assert status == "complete"
    assert summary["rounds"] == 4
    [tracked] = Listening.runs
    assert tracked.parameters["training.local_steps"] == 2
    assert not any(path.startswith("logging") for path in tracked.parameters)


def test_a_client_that_is_not_installed_is_named_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wandb, "package", "a_client_that_is_not_there")
    with pytest.raises(UserError, match="not installed") as raised:
        run(tmp_path, "wandb")
    assert 'pip install "fedsim-des[wandb]"' in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_no_client_is_imported_unless_named(tmp_path: Path) -> None:
    code = f"""
import sys, fedsim
fedsim.run({SCENARIO!r}, {str(tmp_path / "run")!r})
print([name for name in ("tensorboard", "wandb", "mlflow") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
