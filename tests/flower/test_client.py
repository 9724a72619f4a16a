"""One message with a ClientApp: its errors, and optimizer steps, batches and examples as they happen."""

import contextlib
import math

import pytest
import torch
from flwr.app import Context, Message, MetricRecord, RecordDict

from fedsim.cli.summary import print_summary
from fedsim.flower.client import counted
from tests.flower import apps
from tests.flower.worlds import RunApp


@pytest.mark.usefixtures("with_reports")
def test_errors_of_clientapps(
    run_app: RunApp,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = run_app(apps.strategy_server(rounds=2), apps.failing_client(*range(4)))
    assert run.info["client_errors"] == 16
    # The errors have arrived, and brought no update.
    assert run.dispatches["outcome"].eq("discarded").all()
    assert "failed on 16 messages" in run.path.joinpath("report.html").read_text()
    print_summary(run)
    printed = capsys.readouterr().out
    assert "ClientApp errors" in printed
    assert "the ClientApp failed on 16 messages" in caplog.text
    shown = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(shown) == 5
    assert "the data of this node is broken" in shown[0]
    assert "(partition 2), 50.5 ms after the start" in shown[0]
    assert "client_app.py" not in shown[0]


@pytest.mark.parametrize("value", [-5, math.nan])
def test_impossible_numbers_of_examples(
    run_app: RunApp, caplog: pytest.LogCaptureFixture, value: float
) -> None:
    def train(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": value})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    server = apps.strategy_server(rounds=1, fraction_evaluate=0.0)
    run = run_app(server, apps.client_of(train=train))
    assert run.info["client_errors"] == len(run.dispatches) > 0
    assert f"the reply has num-examples {value}, not 0 or more" in caplog.text


def test_steps_batches_and_examples() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(net.parameters())
    with counted() as counts:
        for size in (5, 5, 2):
            optimizer.zero_grad()
            net(torch.ones(size, 3)).sum().backward()
            optimizer.step()
        with torch.no_grad():
            net(torch.ones(7, 3))
    net(torch.ones(9, 3))
    optimizer.step()
    assert (counts.steps, counts.batches, counts.examples, counts.trained) == (3, 4, 19, 12)
    assert counts.host_s > 0


def test_a_model_that_fails_leaves_the_count_sound() -> None:
    net = torch.nn.Linear(3, 1)
    with counted() as counts:
        with contextlib.suppress(RuntimeError):
            net(torch.ones(2, 5))
        net(torch.ones(2, 3))
    assert (counts.batches, counts.examples) == (2, 4)
