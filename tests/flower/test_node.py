"""What a ClientApp imports, and its mod."""

import subprocess
import sys
from typing import Any

import pytest
from flwr.app import Message, MetricRecord, RecordDict

from fedsim.flower import internals, node, timed
from tests.flower.test_logging_grid import Clock
from tests.flower.worlds import ask


def test_a_node_that_does_not_train_imports_little() -> None:
    """A SuperNode starts a process for each message."""
    code = "import sys; from fedsim.flower import local_update, timed; local_update('no.yaml'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "pandas", "simpy", "sqlalchemy"} & set(done.stdout.split())


def test_the_mod_measures_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(node, "time", clock)

    def work(message: Message, context: Any) -> Message:
        clock.sleep(2.5)
        return Message(RecordDict({"count": MetricRecord({"examples": 1})}), reply_to=message)

    with internals.identity(1, 1):
        message = ask(1)
    message.metadata.__dict__["_message_id"] = "1"
    message.metadata.__dict__["_src_node_id"] = 1
    reply = timed(message, None, work)  # type: ignore[arg-type]
    assert reply.content["fedsim.timing"]["seconds"] == 2.5
