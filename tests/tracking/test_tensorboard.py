"""TensorBoard reads metrics over simulated time."""

from pathlib import Path

import numpy as np
import pytest

from tests.tracking.listening import needs, resumed, run


@needs("tensorboard")
@pytest.mark.parametrize("how", ["at once", "resumed"])
def test_tensorboard_reads_metrics_over_simulated_time_and_hyperparameters(
    tmp_path: Path, how: str
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    board = {"name": "tensorboard", "folder": str(tmp_path / "board")}
    foreign = tmp_path / "board" / "run" / "events.out.tfevents.1.host.2.0"
    foreign.parent.mkdir(parents=True)
    foreign.touch()
    done = run(tmp_path, board) if how == "at once" else resumed(tmp_path, [board])
    events = EventAccumulator(str(tmp_path / "board" / "run")).Reload()
    assert foreign.exists()
    scalars = events.Scalars("accuracy")
    metrics = done.metrics
    assert [one.step for one in scalars] == metrics["version"].tolist()
    assert [one.wall_time for one in scalars] == metrics["time_s"].tolist()
    assert [one.value for one in scalars] == metrics["accuracy"].astype(np.float32).tolist()
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    hparams = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert hparams["training.local_steps"].number_value == 2
    assert hparams["server.method.name"].string_value == "fedavg"
    assert hparams["evaluation.at_start"].number_value == 1
