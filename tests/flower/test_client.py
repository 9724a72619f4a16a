"""One message with a ClientApp."""

from typing import Any

import numpy as np
import pytest
from flwr.clientapp.mod import fixedclipping_mod

from fedsim.cli.summary import print_summary
from tests.flower import apps
from tests.flower.worlds import RunApp


def test_clipping_on_the_clients(run_app: RunApp) -> None:
    results: list[Any] = []
    run_app(apps.clipping_server(results), apps.torch_client(mods=[fixedclipping_mod]))
    start = [p.detach().numpy() for p in apps.model().parameters()]
    ours = results[0].arrays.to_numpy_ndarrays()
    assert not any(np.array_equal(a, b) for a, b in zip(start, ours, strict=True))


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
