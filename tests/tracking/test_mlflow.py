"""MLflow holds each evaluation once, and the scenario."""

from pathlib import Path

import pytest

from tests.tracking.listening import needs, resumed, run


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
