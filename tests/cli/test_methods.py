"""``fedsim methods`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.invoking import run


def test_methods_are_listed_and_shown() -> None:
    names = json.loads(run("methods", "list", "--json").output)
    assert "fedavg" in names
    shown = json.loads(run("methods", "show", "fedavg", "--json").output)
    assert shown["sends_down"] == ["model (P)"]
    assert shown["sends_up"] == ["delta (P)"]
    assert shown["client_keeps"] == []
    assert "sync" in shown["schedules"]
    assert "McMahan" in shown["paper"]
    assert {parameter["key"] for parameter in shown["parameters"]} == {
        "weights",
        "server_lr",
        "partial",
    }
    assert "sends up" in run("methods", "show", "fedavg").output
    wrong = run("methods", "show", "fedavgg")
    assert wrong.exit_code == 2
    assert "did you mean 'fedavg'?" in wrong.stderr


def test_every_method_can_be_shown() -> None:
    for name in json.loads(run("methods", "list", "--json").output):
        assert "paper" in run("methods", "show", name).stdout, name


def test_a_need_without_a_reason_is_said_in_words(tmp_path: Path) -> None:
    text = "from fedsim.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    only_synchronous = True\n"
    (tmp_path / "mine.py").write_text(text)
    shown = run("describe", f"{tmp_path / 'mine.py'}:Mine").output
    assert "not asynchronous        it needs a synchronous schedule\n" in shown
    assert "not asynchronous" not in run("methods", "show", "fedavg").output
