"""One message with a ClientApp."""

import pytest

from fedsim.cli.summary import print_summary
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
