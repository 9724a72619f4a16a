"""The ClientApp: trains on the images of its node, and evaluates on them."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import load_data, make_model, test, train

app = ClientApp()


def _data(context: Context):
    return load_data(context.node_config["partition-id"], context.node_config["num-partitions"])


@app.train()
def train_message(message: Message, context: Context) -> Message:
    """Train on the images of this node."""
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = _data(context)
    config = context.run_config
    loss = train(model, x, y, config["local-epochs"], config["learning-rate"])
    metrics = MetricRecord({"loss": loss, "num-examples": len(x)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate_message(message: Message, context: Context) -> Message:
    """Measure the model on the images of this node."""
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = _data(context)
    loss, accuracy = test(model, x, y)
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, "num-examples": len(x)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
