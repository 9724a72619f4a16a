"""``fedsim docs``."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from fedsim.bundled import located
from fedsim.cli import cli, pages
from fedsim.cli import docs as command


def test_all_pages_are_listed_by_section() -> None:
    result = CliRunner().invoke(cli, ["docs"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    names = [line.split()[0] for line in lines if re.match(r"\S+ {2,}\S", line)]
    assert names == list(pages.pages())
    assert lines.index("Papers") < lines.index("Reference")
    assert str(located("docs")) in result.stderr
    assert "tutorials/compare.ipynb" in names


def test_without_a_terminal_a_page_is_markdown() -> None:
    result = CliRunner().invoke(cli, ["docs", "schedules"])
    assert result.exit_code == 0
    assert result.stdout == (located("docs") / "schedules.md").read_text(encoding="utf-8") + "\n"


@pytest.mark.parametrize("name", ["compare.ipynb", "tutorials/compare.ipynb"])
def test_the_text_and_the_code_of_a_notebook_are_shown(name: str) -> None:
    result = CliRunner().invoke(cli, ["docs", name])
    assert result.exit_code == 0
    assert result.stdout.startswith("# Compare methods in Python\n\nRun a small sweep")
    assert "\n\n```python\nrun = sweep.runs[0]\nrun.metrics.tail(3)\n```\n\n" in result.stdout
    assert '"cells"' not in result.stdout


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
