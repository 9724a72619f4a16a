"""The ServerApp: FedAvg, measured on the test images after every round."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import load_data, make_model, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the model in rounds."""
    torch.manual_seed(0)
    config = context.run_config
    strategy = FedAvg(
        fraction_train=0.0001,  # So small that the number of nodes below applies.
        min_train_nodes=config["nodes-per-round"],
        fraction_evaluate=0.0,
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(make_model().state_dict()),
        num_rounds=config["num-server-rounds"],
        timeout=300,
        evaluate_fn=evaluate,
    )


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Measure the model on the test images."""
    model = make_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(model, *load_data())
    return MetricRecord({"accuracy": accuracy, "loss": loss})
