"""Trackers hold what the metrics table of the run holds, live, in the formats that the real clients read."""

from __future__ import annotations

import importlib.util
import json
import logging
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.tracking import Moment, TrackedRun, Tracker
from fedsim.tracking.wandb import Wandb

SCENARIO: dict[str, Any] = {
    "name": "tracked",
    "task": {
        "dataset": "digits",
        "partition": {"name": "dirichlet", "alpha": 0.5, "clients": 8},
        "model": "linear",
    },
    "training": {"local_steps": 2},
    "devices": {
        "compute": {"name": "values", "step": "1s"},
        "network": {"name": "static", "down": "1Mbps", "up": "1Mbps"},
    },
    "stop": {"rounds": 4},
    "evaluation": {"every_rounds": 1},
}


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


class Listening(Tracker):
    """A tracker that keeps what it is told."""

    heard: list[tuple[Mapping[str, float], Moment]] = []
    ended: list[tuple[str, Mapping[str, Any]]] = []
    runs: list[TrackedRun] = []

    def __init__(self, params: Any, run: TrackedRun) -> None:
        super().__init__(params, run)
        self.runs.append(run)

    def log(self, metrics: Mapping[str, float], moment: Moment) -> None:
        self.heard.append((metrics, moment))

    def finish(self, status: str, summary: Mapping[str, Any]) -> None:
        self.ended.append((status, summary))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    for record in (Listening.heard, Listening.ended, Listening.runs):
        record.clear()


def run(tmp_path: Path, *logging_: Any, **more: Any) -> fedsim.Run:
    return fedsim.run({**SCENARIO, "logging": list(logging_)}, tmp_path / "run", **more)


def test_a_tracker_of_the_users_hears_every_evaluation_and_the_end(tmp_path: Path) -> None:
    metrics = run(tmp_path, Listening).metrics
    assert [moment.index for _, moment in Listening.heard] == list(range(len(metrics)))
    for row, (values, moment) in zip(metrics.to_dict("records"), Listening.heard, strict=True):
        assert (moment.time_s, moment.version, moment.round) == (
            row["time_s"],
            row["version"],
            row["round"],
        )
        assert moment.hours == row["time_s"] / 3600
        assert values == {name: row[name] for name in metrics.columns[3:]}
    [(status, summary)] = Listening.ended
    assert status == "complete"
    assert summary["rounds"] == 4
    [tracked] = Listening.runs
    assert tracked.parameters["training.local_steps"] == 2
    assert not any(path.startswith("logging") for path in tracked.parameters)


def test_trackers_never_change_a_result(tmp_path: Path) -> None:
    without = fedsim.run(SCENARIO, tmp_path / "without")
    with_ = run(tmp_path, Listening, "tensorboard")
    assert without.folder.model.read_bytes() == with_.folder.model.read_bytes()
    assert without.metrics.equals(with_.metrics)


class Failing(Listening):
    """A tracker whose server is gone after the first evaluation."""

    def log(self, metrics: Mapping[str, float], moment: Moment) -> None:
        super().log(metrics, moment)
        raise ConnectionError("no route to host")


def test_a_tracker_that_fails_is_reported_once_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fedsim"):
        finished = run(tmp_path, Failing)
    assert finished.status == "complete"
    assert len(Listening.heard) == 1
    [record] = [one for one in caplog.records if "tracker" in one.message]
    assert "no route to host" in record.message


class Impossible(Listening):
    """A tracker that cannot be started."""

    def __init__(self, params: Any, run: TrackedRun) -> None:
        raise PermissionError("not logged in")


def test_a_tracker_that_cannot_start_refuses_the_run_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be started: PermissionError: not logged in"):
        run(tmp_path, Impossible)
    assert not (tmp_path / "run").exists()


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
fedsim.run({ {**SCENARIO, "logging": ["tensorboard"]}!r}, {str(tmp_path / "run")!r})
print([name for name in ("tensorboard", "wandb", "mlflow") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def resumed(tmp_path: Path, logging_: list[Any]) -> fedsim.Run:
    """A run that is interrupted after some evaluations, and then finished."""

    def interrupt(progress: Any) -> None:
        if progress.version == 3:
            raise KeyboardInterrupt

    scenario = {**SCENARIO, "logging": logging_, "training": {"local_steps": 2, "verify": "eager"}}
    with pytest.raises(KeyboardInterrupt):
        fedsim.run(scenario, tmp_path / "run", on_progress=interrupt)
    return fedsim.resume(tmp_path / "run")


@needs("tensorboard")
@pytest.mark.parametrize("how", ["at once", "resumed"])
def test_tensorboard_reads_metrics_over_simulated_time_and_hyperparameters(
    tmp_path: Path, how: str
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    board = {"name": "tensorboard", "folder": str(tmp_path / "board")}
    done = run(tmp_path, board) if how == "at once" else resumed(tmp_path, [board])
    events = EventAccumulator(str(tmp_path / "board" / "run")).Reload()
    scalars = events.Scalars("accuracy")
    metrics = done.metrics
    assert [one.step for one in scalars] == metrics["version"].tolist()
    assert [one.wall_time for one in scalars] == metrics["time_s"].tolist()
    assert [one.value for one in scalars] == metrics["accuracy"].astype(np.float32).tolist()
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    hparams = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert hparams["training.local_steps"].number_value == 2
    assert hparams["server.method.name"].string_value == "fedavg"
    assert hparams["evaluation.at_start"].bool_value is True


def _leveldb_records(content: bytes) -> Iterator[bytes]:
    """Records of a LevelDB log (blocks of 32 KiB; checksum, length, type), behind W&B's header of 7 bytes."""
    offset, parts = 7, b""
    while offset + 7 <= len(content):
        if 32_768 - offset % 32_768 < 7:
            offset += 32_768 - offset % 32_768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, offset)
        parts += content[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield parts
            parts = b""


def _wandb_history(folder: Path) -> list[dict[str, Any]]:
    """The rows of the offline runs: LevelDB logs of W&B's own protocol buffers."""
    from wandb.proto import wandb_internal_pb2 as pb

    rows = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in _leveldb_records(file.read_bytes()):
            record = pb.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                rows.append(
                    {
                        item.key or ".".join(item.nested_key): json.loads(item.value_json)
                        for item in record.history.item
                    }
                )
    return rows


@needs("wandb")
def test_wandb_logs_offline_over_simulated_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    metrics = run(tmp_path, {"name": "wandb", "mode": "offline"}).metrics
    rows = _wandb_history(tmp_path / "run" / "tracking")
    assert [row["accuracy"] for row in rows] == metrics["accuracy"].tolist()
    assert [row["simulated_hours"] for row in rows] == (metrics["time_s"] / 3600).tolist()
    assert [row["version"] for row in rows] == metrics["version"].tolist()


@needs("mlflow")
@pytest.mark.parametrize("how", ["at once", "resumed"])
def test_mlflow_holds_each_evaluation_once_and_the_scenario(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    uri = (tmp_path / "mlruns").as_uri()
    flow = {"name": "mlflow", "uri": uri}
    done = run(tmp_path, flow) if how == "at once" else resumed(tmp_path, [flow])
    client = MlflowClient(tracking_uri=uri)
    identity = client.get_experiment_by_name("fedsim").experiment_id
    [tracked] = client.search_runs([identity])
    history = client.get_metric_history(tracked.info.run_id, "accuracy")
    metrics = done.metrics
    assert [one.value for one in history] == metrics["accuracy"].tolist()
    assert [one.step for one in history] == metrics["version"].tolist()
    began = tracked.info.start_time
    assert [one.timestamp - began for one in history] == (
        (metrics["time_s"] * 1000).round().astype(int).tolist()
    )
    assert tracked.data.params["training.local_steps"] == "2"
    assert tracked.info.status == "FINISHED"
