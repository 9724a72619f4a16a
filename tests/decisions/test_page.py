"""The page of a decision: its figures show the numbers of the answer."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fedsim.decisions import Decision
from tests.decisions.test_deciding import decided


@pytest.fixture(scope="module", params=[["time"], ["time", "bytes"]], ids=["one", "two"])
def made(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Decision:
    folder = tmp_path_factory.mktemp("page") / "d"
    return decided(folder, objectives=request.param, settings=8, seeds=2)


def embedded(decision: Decision) -> dict[str, Any]:
    page = (decision.path / "decide.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def column(figure: dict[str, Any], key: str) -> list[Any]:
    values: list[Any] = next(each["values"] for each in figure["columns"] if each["key"] == key)
    return values


def test_figures_show_the_search_and_the_choice(made: Decision) -> None:
    figures = embedded(made)
    assert column(figures["finalists"], "time") == made.table["time"].tolist()
    best = column(figures["history"], "best")
    candidates = [each.values[0] for each in made.tried if each.is_candidate]
    assert best[-1] == min(candidates)
    axes, chosen = figures["parallel"]["axes"], figures["parallel"]["chosen"]
    assert [axis["label"] for axis in axes] == ["deadline", "cohort", "simulated time"]
    setting = made.finalists[0].setting
    assert axes[1]["values"][chosen] == setting["server.selection.cohort"]
    assert ("front-1" in figures) == (len(made.objectives) > 1)
