"""``fedsim methods`` on the command line."""

import json

from tests.cli.invoking import invoke


def test_methods_are_listed_and_shown() -> None:
    names = json.loads(invoke("methods", "list", "--json").output)
    assert "fedavg" in names
    shown = json.loads(invoke("methods", "show", "fedavg", "--json").output)
    assert shown["sends_down"] == ["model (P)"]
    assert shown["sends_up"] == ["delta (P)"]
    assert shown["client_keeps"] == []
    assert "sync" in shown["schedules"]
    assert "McMahan" in shown["paper"]
    keys = {parameter["key"] for parameter in shown["parameters"]}
    assert keys == {"weights", "server_lr", "partial"}
    assert "sends up" in invoke("methods", "show", "fedavg").output
    wrong = invoke("methods", "show", "fedavgg")
    assert wrong.exit_code == 2
    assert "did you mean 'fedavg'?" in wrong.stderr
