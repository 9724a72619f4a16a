"""The tutorials: the notebook runs, the page explains every figure, its examples load."""

import ast
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from fedsim.analysis.comparison import Comparison
from fedsim.analysis.comparison.page import render
from fedsim.analysis.comparison.reference import read_reference
from fedsim.scenario.overrides import Override
from fedsim.sweeps.plan import plan_runs


def execute(notebook: Path) -> tuple[dict[str, Any], list[Any]]:
    """Run the code of a notebook; its names, and what each cell shows."""
    names: dict[str, Any] = {}
    shown = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            # What a notebook shows of a cell is the value of its last expression.
            target = ast.Name("_shown", ast.Store())
            tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
        exec(compile(ast.fix_missing_locations(tree), str(notebook), "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(names["_shown"])
    return names, shown


@pytest.fixture(scope="module")
def notebook(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], list[Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        return execute(checkout / "docs" / "tutorials" / "compare.ipynb")


def test_the_notebook_shows_what_its_text_says(notebook: tuple[dict[str, Any], list[Any]]) -> None:
    names, shown = notebook
    index, metrics, _, curve, times, pairs, figure, summary, files = shown
    assert index["status"].tolist() == ["complete"] * 6
    assert metrics["time_s"].tolist() == [110.0, 115.0, 120.0]
    assert isinstance(curve, Figure)
    assert isinstance(figure, Figure)
    assert times["label"].unique().tolist() == ["fedavg", "fedbuff"]
    assert times["time_s"].notna().any()
    assert pairs["seeds"].max() == 3
    assert len(summary) == 2
    assert "compare.html" in files
    assert isinstance(names["comparison"], Comparison)


def test_the_notebook_is_stored_without_output(checkout: Path) -> None:
    document = json.loads((checkout / "docs" / "tutorials" / "compare.ipynb").read_text())
    assert document["nbformat"] == 4
    for cell in document["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


def test_every_figure_of_the_page_is_explained(
    checkout: Path, notebook: tuple[dict[str, Any], list[Any]]
) -> None:
    text = (checkout / "docs" / "tutorials" / "compare.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (.*)$", text, flags=re.MULTILINE)
    page = render(notebook[0]["comparison"])
    titles = [html.unescape(h) for h in re.findall(r'<h3 id="title-.*?">(.*?)</h3>', page)]
    assert len(titles) > 10
    for title in titles:
        name = "Time to target" if title.startswith("Time to ") else title
        assert name in headings
    assert len(headings) == len(set(headings)) <= len(titles)


def test_the_examples_of_the_page_load(checkout: Path, tmp_path: Path) -> None:
    text = (checkout / "docs" / "tutorials" / "compare.md").read_text(encoding="utf-8")
    sweep, reference = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    import fedsim

    path = tmp_path / "night-shift.yaml"
    path.write_text(sweep)
    assert len(plan_runs(fedsim.read_scenario(path))) == 30
    without = fedsim.read_scenario(path, ["sweep=null"])
    assert without.scenario.sweep is None
    (tmp_path / "reference.yaml").write_text(reference)
    assert len(list(read_reference(tmp_path / "reference.yaml").tables[0].cells())) == 4
    for line in re.findall(r"^fedsim run .*$", text, flags=re.MULTILINE):
        for setting in re.findall(r"-s (\S+)", line):
            assert Override.parse(setting).path
