"""``fedsim docs`` and the pages of the documentation that come with fedsim."""

import re
from pathlib import Path

import click
import pytest

from fedsim.bundled import located
from fedsim.cli import docs
from tests.cli.invoking import assert_refused, invoke

ROOT = Path(__file__).parents[2]


def test_all_pages_are_listed_by_section() -> None:
    result = invoke("docs")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    names = [line.split()[0] for line in lines if re.match(r"\S+ {2,}\S", line)]
    assert names == list(docs.pages())
    assert lines.index("Papers") < lines.index("Reference")
    assert str(located("docs")) in result.stderr
    assert "tutorials/compare.ipynb" in names


def test_without_a_terminal_a_page_is_markdown() -> None:
    written = (located("docs") / "schedules.md").read_text(encoding="utf-8")
    assert invoke("docs", "schedules").stdout == written + "\n"
    shown = invoke("docs", "compare.ipynb").stdout
    assert shown.startswith("# Compare methods in Python\n\nRun a small sweep")
    assert "\n\n```python\nrun = sweep.runs[0]\nrun.metrics.tail(3)\n```\n\n" in shown
    assert '"cells"' not in shown


def test_in_a_terminal_a_page_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(docs.sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(
        docs.click, "echo_via_pager", lambda text: shown.append(click.unstyle(text))
    )
    monkeypatch.setenv("COLUMNS", "80")
    docs.command.main(["schedules"], standalone_mode=False)
    (text,) = shown
    assert max(map(len, text.splitlines())) <= 80
    assert "**sync**" not in text
    # A link names the page that it leads to.
    assert "method (reference/methods.md)" in " ".join(text.split())


def test_an_unknown_page_is_one_error() -> None:
    refused = invoke("docs", "schedule")
    assert_refused(refused, "there is no page 'schedule'", "did you mean 'schedules'?")


def test_every_page_is_in_the_navigation_and_is_found_by_name_file_and_link() -> None:
    root, known = ROOT / "docs", docs.pages()
    files = {path for suffix in ("md", "ipynb") for path in root.rglob(f"*.{suffix}")}
    assert {page.file for page in known.values()} == files
    assert next(iter(known)) == "index"
    compare, notebook = known["tutorials/compare"], known["tutorials/compare.ipynb"]
    assert (compare.title, compare.section) == ("Compare methods", "")
    assert (notebook.title, notebook.section) == ("Compare methods in Python", "Notebooks")
    assert known["papers/fedsum"].section == "Papers"
    found = {
        "scenarios": "scenarios",
        "tutorials/flower": "tutorials/flower",
        "flower": "tutorials/flower",
        "time.md#networks": "time",
        "docs/runs.md": "runs",
        # The one at the top, not papers/index.
        "python": "reference/python",
        "index": "index",
    }
    assert {name: docs.find(name).name for name in found} == found


def test_a_page_has_the_files_that_it_includes() -> None:
    text = docs.text(docs.find("papers/fedsum"))
    readme = (ROOT / "scenarios/papers/fedsum/README.md").read_text(encoding="utf-8")
    title, rest = re.sub(r"<!--.*?-->\n+", "", readme).split("\n", 1)
    assert "--8<--" not in text
    assert rest.rstrip("\n") in text
    assert title not in text


def test_the_python_page_has_the_docstrings() -> None:
    text = docs.text(docs.find("python"))
    assert ":::" not in text
    assert "    options:" not in text
    assert "### `fedsim.run`\n" in text
    assert "Run a scenario into a run folder." in text
    assert "aggregate(self, server" in text
