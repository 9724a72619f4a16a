"""Variables of a user's file are found where its functions use them, and a change of one is seen."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.file_variables import FileVariables, is_iterator, keep_file_variables
from fedsim.scheduling.selections.uniform import Uniform

SOURCE = """\
import functools
import logging

import numpy as np

COUNT, UNUSED, LATE = 0, 0, None
SEEN, TABLE = [], {"a": 1}
LOG = logging.getLogger("l")


def helper():
    SEEN.append(1)


class Helper:
    def add(self):
        TABLE["b"] = 2


@functools.lru_cache
def cached():
    return TABLE


@functools.cache
def table(name):
    return {"name": name, "seen": []}


@functools.lru_cache(maxsize=4)
def generator():
    return np.random.default_rng(0)


@functools.cache
def numbers():
    return iter(range(100))


@functools.cache
def squares(count):
    return tuple(one * one for one in range(count)), np.arange(count)


class Part:
    made = []
    Inner = Helper

    def __init__(self):
        self.samples = 1

    def count(self):
        global COUNT
        COUNT += 1

    def calls(self):
        helper()

    def constructs(self):
        Helper().add()

    def reads(self):
        LOG.info("x")
        cached()
        return COUNT, len(SEEN), np.zeros(1)

    def collects(self):
        table("a")["seen"].append(1)

    def draws(self):
        return generator().random()

    def counts(self):
        return next(numbers())

    def computes(self):
        self.samples += 1
        return squares(self.samples)

    def within(self):
        return [SEEN.append(one) for one in range(2)]

    def default(self, seen=[]):
        seen.append(1)

    def keyword(self, *, seen={}):
        seen["a"] = 1

    def attribute(self):
        Part.count.calls = 1

    def of_class(self):
        self.made.append(1)

    def imports(self):
        global LATE
        import math

        LATE = math
        return LATE.pi

    def other(self):
        self.UNUSED = 1

    @property
    def looked_up(self):
        return helper()

    @staticmethod
    def static():
        helper()

    @functools.cached_property
    def once(self):
        helper()
"""


@pytest.fixture
def part(tmp_path: Path) -> Iterator[Any]:
    file = tmp_path / "mine.py"
    file.write_text(SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("a_users_file", file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["a_users_file"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.Part()
    del sys.modules["a_users_file"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("count", ["the variable COUNT of its file"]),
        ("calls", ["the variable SEEN of its file"]),
        ("constructs", ["the variable TABLE of its file"]),
        ("within", ["the variable SEEN of its file"]),
        ("static", ["the variable SEEN of its file"]),
        ("default", ["a default value of Part.default"]),
        ("keyword", ["a default value of Part.keyword"]),
        ("attribute", ["attributes of the function Part.count"]),
        ("of_class", ["the attribute made of the class Part"]),
        ("reads", []),
        ("imports", []),
        ("other", []),
    ],
)
def test_a_change_is_seen(part: Any, name: str, words: list[str]) -> None:
    variables = FileVariables(type(part))
    before = variables.values()
    assert variables.changed(before) == []
    getattr(part, name)()
    assert variables.changed(before) == words


@pytest.mark.parametrize(
    ("name", "function"),
    [("collects", "table"), ("draws", "generator"), ("counts", "numbers"), ("computes", "")],
)
def test_a_result_in_a_cache_may_not_change(part: Any, name: str, function: str) -> None:
    variables = FileVariables(type(part))
    before = variables.values()
    getattr(part, name)()
    variables.changed(before)
    getattr(part, name)()
    expected = [f"a result in the cache of the function {function}"] if function else []
    assert variables.changed(before) == expected


def test_a_result_that_an_earlier_run_has_stored_may_not_change(part: Any) -> None:
    part.collects()
    keep_file_variables(part, "collects", kind="selection")
    with pytest.raises(UserError, match="changes a result in the cache of the function table"):
        part.collects()


@pytest.mark.parametrize("name", ["looked_up", "once"])
def test_properties_are_functions_too(part: Any, name: str) -> None:
    variables = FileVariables(type(part))
    before = variables.values()
    getattr(part, name)
    assert variables.changed(before) == ["the variable SEEN of its file"]


def test_only_variables_that_the_class_uses_count(part: Any) -> None:
    names = {words.split()[2] for words in FileVariables(type(part)).current() if "file" in words}
    assert names == {"COUNT", "SEEN", "TABLE", "LOG", "LATE"}


def test_a_part_that_changes_one_is_refused_early_and_at_the_end(part: Any) -> None:
    keep_file_variables(part, "count", kind="selection")
    with pytest.raises(UserError, match=r"Part\.count: changes the variable COUNT of its file"):
        part.count()


def test_the_third_call_is_compared_with_the_fourth_or_at_the_end(part: Any) -> None:
    check = keep_file_variables(part, "reads", kind="schedule")
    part.reads()
    part.reads()
    check()
    part.calls()
    part.reads()
    with pytest.raises(UserError, match="changes the variable SEEN"):
        check()
    with pytest.raises(UserError, match="every run makes its own schedule"):
        part.reads()


def test_an_iterator_is_refused(part: Any) -> None:
    vars(sys.modules["a_users_file"])["COUNT"] = itertools.cycle([1, 2])
    with pytest.raises(UserError, match="uses an iterator in the variable COUNT of its file"):
        keep_file_variables(part, kind="selection")


def test_parts_of_fedsim_are_left_alone() -> None:
    selection = Uniform.__new__(Uniform)
    keep_file_variables(selection, "draw", kind="selection")()
    assert "draw" not in vars(selection)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (itertools.count, True),
        (lambda: iter([1]), True),
        (lambda: (one for one in [1]), True),
        (functools.partial(map, abs, [1]), True),
        (lambda: [1], False),
        (lambda: range(3), False),
        (lambda: {1: 2}.items(), False),
        (dict, False),
    ],
)
def test_iterators(make: Callable[[], object], expected: bool) -> None:
    assert is_iterator(make()) == expected


def test_files_are_not_iterators(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        assert not is_iterator(file)
