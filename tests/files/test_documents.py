"""JSON without words that JSON does not have."""

import json
import math

import pytest

from fedsim.files.checksums import is_unchanged, stamped
from fedsim.files.documents import json_text, parsed


def test_what_is_not_finite_is_null_at_any_depth() -> None:
    data = {
        "a": math.nan,
        "b": [1.5, -math.inf, (math.inf, {"c": math.nan})],
        "d": [True, "NaN", 7],
    }
    expected = {"a": None, "b": [1.5, None, [None, {"c": None}]], "d": [True, "NaN", 7]}
    assert json.loads(json_text(data)) == expected


def test_a_stamp_holds_before_and_after_writing() -> None:
    document = stamped({"loss": math.nan, "ends": (1.0, math.inf)})
    assert is_unchanged(document)
    assert is_unchanged(json.loads(json_text(document)))


@pytest.mark.parametrize(
    "text",
    ["", "{", "9" * 5000, "[" * 100_000 + "]" * 100_000, '[{"a": 1, "b": {"c": 1, "\\u0063": 2}}]'],
)
def test_what_cannot_be_read_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"nested too deeply|line 1|more than 4,300 digits|the key 'c' appears twice",
    ):
        parsed(text)
