"""The pages of the documentation that come with fedsim."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fedsim.cli import pages
from fedsim.errors import UserError

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation() -> None:
    docs = ROOT / "docs"
    files = {
        path.relative_to(docs) for suffix in ("md", "ipynb") for path in docs.rglob(f"*.{suffix}")
    }
    known = pages.pages()
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
    assert pages.find(name).name == page


def test_an_unknown_page_leads_to_a_similar_one() -> None:
    with pytest.raises(UserError) as caught:
        pages.find("adding_method")
    assert "there is no page 'adding_method'" in str(caught.value)
    assert "did you mean 'adding_a_method'?" in str(caught.value)


def test_a_page_has_the_files_that_it_includes() -> None:
    text = pages.text(pages.find("papers/fedsum"))
    readme = (ROOT / "scenarios/papers/fedsum/README.md").read_text(encoding="utf-8")
    title, rest = re.sub(r"<!--.*?-->\n+", "", readme).split("\n", 1)
    assert "--8<--" not in text
    assert rest.rstrip("\n") in text
    assert title not in text


def test_the_python_page_has_the_docstrings() -> None:
    text = pages.text(pages.find("python"))
    assert ":::" not in text
    assert "    options:" not in text
    assert re.search(r"### `fedsim.run`\n\n```python\nrun\(scenario: PathLike \| Mapping", text)
    assert "#### `Run.time_to`" in text
    assert "\ntime_to(metric: str, " in text
    # The members that the site shows, no inherited or private ones.
    assert "#### `Method.aggregate`" in text
    assert "`Method.__init__`" not in text


def test_the_python_page_names_types_as_the_source_does() -> None:
    text = pages.text(pages.find("python"))
    assert "max_unpacked: Size = " in text
    assert "CohortParams(*, cohort: int | None = None)" in text
    assert not re.search(r"Annotated\[| at 0x", text)


@pytest.mark.parametrize("name", pages.pages())
def test_comments_are_left_out(name: str) -> None:
    assert "<!--" not in pages.text(pages.pages()[name])


def test_the_python_page_needs_no_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith(("flwr.", "fedsim.flower"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    text = pages.text(pages.find("python"))
    assert "### `fedsim.flower.run`\n\nNot available here. fedsim flower: Flower " in text
    assert "### `fedsim.scheduling.base.Schedule`" in text


@pytest.mark.parametrize("name", pages.pages())
def test_links_of_pages_lead_to_pages(name: str) -> None:
    page = pages.pages()[name]
    for target in re.findall(r"\]\(([^)#:]+\.md)", page.file.read_text(encoding="utf-8")):
        assert (page.file.parent / target).resolve().is_file(), target
