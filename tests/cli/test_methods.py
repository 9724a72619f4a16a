"""The rules of methods, as ``fedsim describe`` says them."""

import json

from tests.cli.invoking import invoke


def test_methods_are_listed_and_described() -> None:
    assert "fedavg" in json.loads(invoke("describe", "method", "--json").output)
    (shown,) = json.loads(invoke("describe", "fedavg", "--json").output)
    assert shown["sends_down"] == ["model (P)"]
    assert shown["sends_up"] == ["delta (P)"]
    assert shown["client_keeps"] == []
    assert "sync" in shown["schedules"]
    assert "McMahan" in shown["paper"]
    keys = {parameter["key"] for parameter in shown["parameters"]}
    assert keys == {"weights", "server_lr", "partial"}
    assert "sends up" in invoke("describe", "fedavg").output
    (shown,) = json.loads(invoke("describe", "fedlga", "--json").output)
    assert shown["title"] == "FedLGA"
