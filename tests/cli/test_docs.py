"""``fedsim docs`` and the pages of the documentation that come with fedsim."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from fedsim.bundled import located
from fedsim.cli import docs
from fedsim.errors import UserError
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
    with pytest.raises(UserError, match="did you mean 'adding_a_method'"):
        docs.find("adding_method")


def test_every_page_is_in_the_navigation() -> None:
    root = ROOT / "docs"
    files = {
        path.relative_to(root) for suffix in ("md", "ipynb") for path in root.rglob(f"*.{suffix}")
    }
    known = docs.pages()
    assert {page.file.relative_to(ROOT / "docs") for page in known.values()} == files
    assert next(iter(known)) == "index"
    compare = known["tutorials/compare"]
    assert (compare.title, compare.section) == ("Compare methods", "")
    assert known["papers/fedsum"].section == "Papers"
    notebook = known["tutorials/compare.ipynb"]
    assert (notebook.title, notebook.section) == ("Compare methods in Python", "Notebooks")


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("scenarios", "scenarios"),
        ("tutorials/flower", "tutorials/flower"),
        ("flower", "tutorials/flower"),
        ("time.md#networks", "time"),
        ("docs/runs.md", "runs"),
        ("python", "reference/python"),
        # The one at the top, not papers/index.
        ("index", "index"),
    ],
)
def test_pages_are_found_by_name_file_and_link(name: str, page: str) -> None:
    assert docs.find(name).name == page


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
