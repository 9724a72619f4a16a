"""Eligibility rules: the grammar, its truth table, its errors."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import UserError
from fedsim.traces.eligibility import FLASH_RULE, KEYS, STATES, Rule

ALL = [dict(zip(KEYS, values, strict=True)) for values in itertools.product(*STATES.values())]


def holds(rule: Rule, state: dict[str, str]) -> bool:
    codes = {key: np.array([STATES[key].index(state[key])]) for key in KEYS}
    return bool(rule.holds(codes)[0] == 1)


def python_of(text: str) -> str:
    words = []
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        words.append(f"(s['{word}'] == 'on')" if word in KEYS else word)
    return " ".join(words)


EXPRESSIONS = st.recursive(
    st.sampled_from(["charging", "screen", "lock"]),
    lambda inner: st.one_of(
        st.builds("not {}".format, inner),
        st.builds("({})".format, inner),
        st.builds("{} and {}".format, inner, inner),
        st.builds("{} or {}".format, inner, inner),
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "python"),
    [
        (FLASH_RULE, "s['charging'] == 'on' and s['network'] == 'wifi' and s['lock'] == 'on'"),
        ("charging", "s['charging'] == 'on'"),
        ("charging == off", "s['charging'] == 'off'"),
        ("charging != off", "s['charging'] == 'on'"),
        (
            "not screen and (lock or charging)",
            "s['screen'] == 'off' and (s['lock'] == 'on' or s['charging'] == 'on')",
        ),
        (
            "lock or screen and charging",
            "s['lock'] == 'on' or (s['screen'] == 'on' and s['charging'] == 'on')",
        ),
        ("network in (wifi, '5g', \"4g\")", "s['network'] in ('wifi', '5g', '4g')"),
        ("network not in (2g,3g)", "s['network'] not in ('2g', '3g')"),
        ("NETWORK == 5G AND NOT Screen == ON", "s['network'] == '5g' and s['screen'] == 'off'"),
        ("not not lock", "s['lock'] == 'on'"),
        ("  ( ( lock ) )  ", "s['lock'] == 'on'"),
    ],
)
def test_expressions_mean_what_python_would(text: str, python: str) -> None:
    rule = Rule(text)
    for state in ALL:
        assert holds(rule, state) == eval(python, {"s": state})  # noqa: S307


@given(EXPRESSIONS)
def test_precedence_is_pythons(text: str) -> None:
    rule = Rule(text)
    for state in ALL:
        assert holds(rule, state) == eval(python_of(text), {"s": state})  # noqa: S307


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("battery", 1),
        ("charging and", 13),
        ("charging lock", 1),
        ("(charging", 1),
        ("network", 1),
        ("network == lan", 12),
        ("  charging ==\nwifi", 15),
        ("charging; import os", 9),
        ("lock and __import__('os')", 10),
        ("lock.__class__", 1),
        ("network in (wifi, lan)", 19),
        ("network not wifi", 1),
        ("network == wifi == wifi", 1),
        ("lock & charging", 1),
        ("network > 3", 1),
        ("network > wifi", 1),
    ],
)
def test_mistakes_name_their_column(text: str, column: int) -> None:
    with pytest.raises(UserError) as caught:
        Rule(text)
    assert caught.value.where == f"eligibility, column {column}"
    assert "charging and network == wifi and lock" in str(caught.value.hint)


@pytest.mark.parametrize("depth", [101, 3000])
def test_a_rule_of_many_levels_is_refused(depth: int) -> None:
    with pytest.raises(UserError, match="nested too deeply"):
        Rule("not " * depth + "charging")


def test_a_long_rule_is_read_in_linear_time() -> None:
    begin = time.process_time()
    rule = Rule("network in (wifi, 5g, wifi) and " * 3000 + "charging")
    assert time.process_time() - begin < 5
    assert rule.keys == {"charging", "network"}


BATTERY = {"battery": ("19", "20", "20.5", "100"), "plug": ("no", "yes")}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("battery >= 20", [-1, 1, 1, 1, 0]),
        ("battery > 20", [-1, -1, 1, 1, 0]),
        ("battery <= 20.0", [1, 1, -1, -1, 0]),
        ("battery < 20", [1, -1, -1, -1, 0]),
        ("battery != 100", [1, 1, 1, -1, 0]),
        ("battery == 20.5", [-1, -1, 1, -1, 0]),
        # The last state is unknown; so is plug in every row.
        ("battery > 20 or plug", [0, 0, 1, 1, 0]),
        ("battery > 20 and plug", [-1, -1, 0, 0, 0]),
        ("not (battery > 20 and plug)", [1, 1, 0, 0, 0]),
    ],
)
def test_numbers_are_compared_and_the_unknown_decides_nothing(text: str, values: list[int]) -> None:
    rule = Rule(text, BATTERY, "online")
    codes = {"battery": np.array([0, 1, 2, 3, -1]), "plug": np.full(5, -1)}
    assert rule.holds(codes).tolist() == values
    assert rule.keys == {word for word in ("battery", "plug") if word in text}
