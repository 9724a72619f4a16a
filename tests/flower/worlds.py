"""Devices and messages of the tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from tests.flower import apps
from tests.simulation.harness import online_bundle

RunApp = Callable[..., Any]
LINK = {"name": "static", "latency": "0s", "down": "1Gbps", "up": "1Gbps"}


def devices(step: str | list[str] = "1s", unit: str = "step", **availability: Any) -> Any:
    """Nodes with a fast link; ``availability`` makes them come and go."""
    section = {"compute": {"name": "values", "step": step, "unit": unit}, "network": LINK}
    return section | ({"availability": availability} if availability else {})


def coming_and_going(folder: Path, *clients: list[tuple[float, float]], **policy: Any) -> Any:
    """An availability part that replays intervals in seconds."""
    online_bundle(*clients).write(folder)
    return {"name": "trace", "trace": str(folder), **policy}


def ask(node: int, kind: str = "train", **settings: Any) -> Message:
    arrays = ArrayRecord(apps.model().state_dict())
    config = ConfigRecord({})
    return Message(RecordDict({"arrays": arrays, "config": config}), node, kind, **settings)


class Counting:
    """A stateless ClientApp that notes which nodes it ran for."""

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.app = apps.client_of(train=self._train)

    def _train(self, message: Message, context: Context) -> Message:
        self.nodes.append(context.node_config["partition-id"])
        return apps.answer(message, message.content["arrays"], num_examples=1)
