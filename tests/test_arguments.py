"""Arguments of Python functions: a wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsim.arguments import path_of, strings
from fedsim.errors import UserError


def test_a_path_is_text_or_a_path() -> None:
    assert path_of("output", "runs") == path_of("output", Path("runs")) == Path("runs")
    with pytest.raises(UserError, match="argument output: must be a path, not 3"):
        path_of("output", 3)


def test_strings_are_any_iterable_of_them_but_not_one_string() -> None:
    assert strings("names", (name for name in "ab"), "") == ["a", "b"]
    for wrong in ("ab", {"a": 1}, ["a", 1], 5):
        with pytest.raises(UserError, match="argument names: must be a list of strings") as caught:
            strings("names", wrong, "give ['a']")
        assert caught.value.hint == "give ['a']"
