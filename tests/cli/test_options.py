"""Options that several commands share."""

import io
import sys

import click
import pytest
from click.testing import CliRunner

from fedsim.cli import cli
from fedsim.cli.options import print_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


LONG = "not-ready-at-all-in-the-night"


@pytest.mark.parametrize(
    ("width", "state", "lines"),
    [
        (60, "ready", ["state target", "run_10 ready 80% accuracy: 1 h 2 min"]),
        (30, "ready", ["state target", "run_10 ready 80% accuracy:", "1 h 2 min"]),
        (20, "ready", ["run_10", "state: ready;", "target: 80%", "accuracy: 1 h 2", "min"]),
        # A block of lines breaks between its entries, if they are not longer, and never at a hyphen.
        (47, LONG, ["run_10", f"state: {LONG};", "target: 80% accuracy: 1 h 2 min"]),
        (20, "not-ready-at-all", ["run_10", "state:", "not-ready-at-all;", "target: 80%", "accuracy: 1 h 2", "min"]),
    ],
)  # fmt: skip
def test_tables_wrap_between_words(
    width: int, state: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ["run_10", state, "", "80% accuracy: 1 h 2 min"]
    assert printed([row], width, monkeypatch) == lines


def test_a_line_replaces_common_columns_that_make_others_wrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [["run_10", "ready", "", "14 min 39 s"], ["run_11", "ready", "", "1 h"]]
    whole = ["state target", "run_10 ready 14 min 39 s", "run_11 ready 1 h"]
    assert printed(rows, 60, monkeypatch) == whole
    narrow = ["in all rows: state ready", "target", "run_10 14 min 39 s", "run_11 1 h"]
    assert printed(rows, 27, monkeypatch) == narrow


def printed(rows: list[list[str]], width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    print_table(["", "state", "tags", "target"], rows, common=["state"], box=None)
    return [" ".join(line.split()) for line in click.unstyle(screen.getvalue()).splitlines()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fedsim describe fedb", "plain,fedbuff"),
        ("fedsim run quick", "plain,quickstart"),
        ("fedsim run mine", "file,mine"),
        ("fedsim init -t own-da", "plain,own-data"),
        ("fedsim traces import flas", "plain,flash"),
        ("fedsim traces synthesize desk", "plain,desktop"),
        ("fedsim run quickstart -s training.batch_s", "plain,training.batch_size="),
        ("fedsim sweep quickstart -s server.schedule.dead", "plain,server.schedule.deadline="),
        ("fedsim traces inspect builtin:phones_w", "plain,builtin:phones_week"),
        ("fedsim traces inspect builtin : phones_w", "plain,phones_week"),
    ],
)
def test_the_shell_completes_names(words: str, expected: str) -> None:
    variables = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    result = CliRunner().invoke(
        cli, prog_name="fedsim", env={"_FEDSIM_COMPLETE": "bash_complete", **variables}
    )
    assert expected in result.output.splitlines()
