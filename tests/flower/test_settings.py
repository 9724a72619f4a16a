"""The device file."""

import pytest

import fedsim
from fedsim.errors import UserError
from tests.flower import apps
from tests.flower.worlds import RunApp, devices


def test_wrong_use_gives_one_message(run_app: RunApp) -> None:
    server, client = apps.strategy_server(), apps.torch_client()
    partial = {"name": "always", "on_disconnect": "send_partial"}
    for scenario, message in (
        ({"server": {"method": "fedavg"}}, r"server\.method.*has no effect on a Flower app"),
        ({"task": {"name": "timing", "clients": 3}}, "the task of a Flower app is 'flower'"),
        ({"devices": {"availability": partial}}, "cannot send partial work"),
        ({"task": {"workers": {"name": "processes"}}}, "other processes cannot import"),
    ):
        with pytest.raises(UserError, match=message):
            run_app(server, client, scenario)
    with pytest.raises(UserError, match=r"fedsim flower APP"):
        fedsim.run({"task": {"name": "flower"}, "stop": {"rounds": 1}})
    with pytest.raises(UserError, match="took no step of a PyTorch optimizer") as caught:
        run_app(apps.sklearn_server(), apps.sklearn_client())
    assert "devices.compute.unit=example" in str(caught.value)


def test_rules_about_devices_and_the_run_can_be_ignored(
    run_app: RunApp, caplog: pytest.LogCaptureFixture
) -> None:
    """40 s of latency that were meant as milliseconds, and an app that waits for a fifth node."""
    section = devices()
    section["network"] = {"name": "static", "latency": 40, "down": "1Mbps", "up": "1Mbps"}
    server = apps.strategy_server(rounds=1, min_available_nodes=5)
    scenario = {"devices": section, "stop": {"simulated_time": "1d"}}
    rules = ["long-latency", "waited-for-nodes"]
    for ignored in ([], rules[:1], rules):
        caplog.clear()
        run = run_app(server, apps.torch_client(), {**scenario, "ignore": ignored})
        assert [rule for rule in rules if f"[{rule}]" in caplog.text] == rules[len(ignored) :]
        assert run.scenario["ignore"] == ignored
    with pytest.raises(UserError, match="there is no rule 'long-latencies'"):
        run_app(server, apps.torch_client(), {**scenario, "ignore": ["long-latencies"]})
