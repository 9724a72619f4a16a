"""What a Flower app leaves in its run folder."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Context, MetricRecord
from flwr.serverapp import Grid

from fedsim.errors import UserError
from tests.flower import apps
from tests.flower.worlds import RunApp, ask


@pytest.mark.usefixtures("with_reports")
def test_the_run_folder_is_a_normal_one(run_app: RunApp) -> None:
    server = apps.strategy_server(rounds=2, evaluate_fn=apps.server_evaluation)
    run = run_app(server, apps.torch_client(), {"devices": {"compute": {"step": "1s"}}})
    assert run.dispatches["outcome"].eq("aggregated").all()
    assert run.dispatches["steps_done"].eq(apps.STEPS).all()
    assert run.aggregations["contributors"].tolist() == [4, 4]
    metrics = run.metrics
    assert {"accuracy", "client_accuracy", "train_train_loss"} <= set(metrics.columns)
    # The model is measured by the ServerApp once before the first round, and then after every evaluation.
    measured = metrics.dropna(subset="accuracy")
    assert measured["round"].tolist() == [0, 1, 2]
    assert (measured["time_s"].to_numpy()[1:] > run.aggregations["time_s"].to_numpy()).all()
    assert run.path.joinpath("report.html").exists()
    assert set(run.model()) == set(apps.model().state_dict())
    assert run.clients["samples"].eq(apps.EXAMPLES).all()
    # An evaluation is one forward pass of one batch: a third of a step.
    link_s = 2 * 0.05
    spent = measured["time_s"].to_numpy()[1] - run.aggregations["time_s"].to_numpy()[0]
    assert spent == pytest.approx(1 / 3 + link_s, abs=0.01)


def test_a_metric_with_the_name_of_a_column_gets_another(run_app: RunApp) -> None:
    def evaluate(server_round: int, arrays: Any) -> MetricRecord:
        return MetricRecord({"round": 7.0, "time_s": -1.0, "train_train_loss": -2.0})

    server = apps.strategy_server(rounds=1, evaluate_fn=evaluate)
    metrics = run_app(server, apps.torch_client()).metrics
    assert set(metrics["app_round"].dropna()) == {7}
    assert set(metrics["app_time_s"].dropna()) == {-1}
    # Those of the clients stay.
    assert set(metrics["app_train_train_loss"].dropna()) == {-2}
    assert (metrics["train_train_loss"].dropna() > 0).all()
    assert set(metrics["round"]) == {0, 1}


def test_metrics_of_an_app_may_have_other_bounds(run_app: RunApp) -> None:
    def evaluate(server_round: int, arrays: Any) -> MetricRecord:
        return MetricRecord({"accuracy": 93.5, "mse": -1.0, "acc": 40.0, "macro_f1": 0.5})

    run = run_app(apps.strategy_server(rounds=1, evaluate_fn=evaluate), apps.torch_client())
    assert run.info["status"] == "complete"
    assert set(run.metrics["accuracy"].dropna()) == {93.5}
    assert (
        run.metric_definition("accuracy").format(93.5)
        == run.metric_definition("acc").format(93.5)
        == "93.5"
    )
    assert run.metric_definition("macro_f1").format(0.5) == "50.0%"


def test_an_error_of_the_serverapp_is_shown_with_its_traceback(run_app: RunApp) -> None:
    def broken(server_round: int, arrays: Any) -> Any:
        raise RuntimeError(f"no test data in round {server_round}")

    with pytest.raises(UserError, match=r"failed 0 s after the start(?s:.*)no test data") as caught:
        run_app(apps.strategy_server(evaluate_fn=broken), apps.torch_client())
    assert "in broken" in str(caught.value)


def test_a_generator_without_a_seed_is_one_warning(
    run_app: RunApp, caplog: pytest.LogCaptureFixture
) -> None:
    def main(grid: Grid, context: Context) -> None:
        for _ in range(2):
            list(grid.send_and_receive([ask(node) for node in grid.get_node_ids()]))

    client = apps.stepping(1, lambda partition: np.random.default_rng().normal())
    run = run_app(apps.own_loop(main), client)
    (note,) = run.info["notes"]
    assert "a generator without a seed draws other numbers in every run" in note
    assert f"{__file__}:" in note
    assert len([text for text in caplog.messages if "without a seed" in text]) == 1
    client = apps.stepping(1, lambda partition: np.random.default_rng(partition).normal())
    assert not run_app(apps.own_loop(main), client).info["notes"]
