"""The page of a decision: its figures show the numbers of the answer."""

import json
import re
from typing import Any

import pytest

from fedsim.decisions import Decision


def embedded(decision: Decision) -> dict[str, Any]:
    page = (decision.path / "decide.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def column(figure: dict[str, Any], key: str) -> list[Any]:
    values: list[Any] = next(each["values"] for each in figure["columns"] if each["key"] == key)
    return values


@pytest.mark.parametrize("name", ["made", "front"])
def test_figures_show_the_search_and_the_choice(name: str, request: pytest.FixtureRequest) -> None:
    made: Decision = request.getfixturevalue(name)
    figures = embedded(made)
    assert column(figures["finalists"], "time") == made.table["time"].tolist()
    best = column(figures["history"], "best")
    candidates = [each.values[0] for each in made.tried if each.is_candidate]
    assert best[-1] == min(candidates)
    slices = {each["label"]: each for each in figures["slices"]["keys"]}
    assert slices.keys() == {"deadline", "cohort"}
    cohort, setting = slices["cohort"], made.finalists[0].setting
    assert cohort["x"][cohort["chosen"]] == setting["server.selection.cohort"]
    finished = sorted(value for value in cohort["good"] if value is not None)
    assert finished == sorted(candidates)
    stopped = [e.measured.costs["time"] for e in made.tried if e.measured and not e.is_candidate]
    assert [v for v in column(figures["history"], "others") if v is not None] == stopped
    # A lower value of a setting that was stopped is a bound, not a better one.
    ended = figures["history"]["series"][1]
    assert (ended["key"], ended["symbol"]) == ("others", "triangle")
    assert ("front-1" in figures) == (len(made.objectives) > 1)
