"""No text controls the terminal, except for fedsim's own styles; and an output that is ASCII is no error."""

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from fedsim.cli import command_line
from fedsim.cli.options import echo_bullet, echo_text, print_table
from fedsim.files.terminal import WIDEST, Escaping, console, secho

TEXT = "a\x1b[31mb\x1b[2Jc\u202ed\r"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def table() -> Any:
    grid = Table(TEXT)
    grid.add_row(TEXT)
    return grid


@pytest.mark.parametrize(
    ("show", "styled"),
    [
        (lambda: print(TEXT), False),
        (lambda: secho(TEXT, bold=True), True),
        (lambda: console(force_terminal=True).print(TEXT, style="bold"), True),
        (lambda: console(force_terminal=True, width=99).print(table()), True),
        (lambda: console(force_terminal=True).print("[/x] [bold]y"), False),
    ],
)
def test_styles_of_fedsim_pass_and_those_in_its_text_are_shown(show: Any, styled: bool) -> None:
    terminal = Terminal()
    with contextlib.redirect_stdout(Escaping(terminal)):
        show()
    written = terminal.getvalue()
    assert ("\x1b[1m" in written) == styled
    assert not any(code in written for code in ("\x1b[31m", "\x1b[2J", "\u202e"))
    assert "a\\x1b[31mb\\x1b[2Jc\\u202ed\\r" in written or "[/x] [bold]y" in written


@pytest.mark.parametrize("command", [("ls", "."), ("describe", "fedlga")])
def test_an_output_that_is_ascii_gets_replaced_characters(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "é" / "run").mkdir(parents=True)
    (tmp_path / "é" / "run" / "run.json").write_text("{")
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys, "argv", ["fedsim", *command])
    monkeypatch.chdir(tmp_path)
    assert command_line() == 0
    written = output.buffer.getvalue()  # type: ignore[attr-defined]
    assert written.isascii()
    assert written
    assert command[0] != "ls" or rb"\xe9" in written


@pytest.mark.parametrize("columns", ["0", "1", "-7", "99999999"])
def test_a_width_may_be_any_number(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", columns)
    with contextlib.redirect_stdout(Escaping(terminal)):
        print_table(["", "status"], [["run", "complete"]])
        echo_text("two words")
        echo_bullet("two words")
        console(force_terminal=True).print(table(), Table(expand=True))
    assert max(map(len, terminal.getvalue().splitlines())) < 2 * WIDEST
