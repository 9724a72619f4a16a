"""The ClientApp: the local training of the scenario, as slowly as a device would do it."""

import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedsim.flower import local_update, timed

app = ClientApp(mods=[timed])
train = local_update(Path(__file__).parents[1] / "scenario.yaml")


@app.train()
def train_message(message: Message, context: Context) -> Message:
    """Train on the data of this node; the sleep makes a slow device of this machine."""
    time.sleep(message.content["config"]["local-steps"] * context.node_config.get("step-s", 0.0))
    return train(message, context)
