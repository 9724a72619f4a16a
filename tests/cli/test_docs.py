"""``fedsim docs``."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from fedsim.bundled import folder
from fedsim.cli import cli, pages
from fedsim.cli import docs as command


def test_all_pages_are_listed_by_section() -> None:
    result = CliRunner().invoke(cli, ["docs"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    names = [line.split()[0] for line in lines if re.match(r"\S+ {2,}\S", line)]
    assert names == list(pages.pages())
    assert lines.index("Papers") < lines.index("Reference")
    assert str(folder("docs")) in result.stderr
    assert f"open with Jupyter: {folder('docs')}/tutorials/compare.ipynb" in result.stderr


def test_without_a_terminal_a_page_is_markdown() -> None:
    result = CliRunner().invoke(cli, ["docs", "schedules"])
    assert result.exit_code == 0
    assert result.stdout == (folder("docs") / "schedules.md").read_text(encoding="utf-8") + "\n"


def test_in_a_terminal_a_page_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(command.sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(
        command.click, "echo_via_pager", lambda text, color: shown.append(click.unstyle(text))
    )
    monkeypatch.setenv("COLUMNS", "80")
    command.command.main(["schedules"], standalone_mode=False)
    (text,) = shown
    assert max(map(len, text.splitlines())) <= 80
    assert "**sync**" not in text
    # A link names the page that it leads to.
    assert "method (reference/methods.md)" in " ".join(text.split())


def test_an_unknown_page_is_one_error() -> None:
    result = CliRunner().invoke(cli, ["docs", "schedule"])
    assert result.exit_code == 2
    assert "there is no page 'schedule'" in result.stderr
    assert "did you mean 'schedules'?" in result.stderr
