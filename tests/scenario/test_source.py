"""YAML is read as YAML 1.2 with the place of every value, and mistakes in it are named."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import UserError
from fedsim.scenario.source import parse_yaml, read_yaml, to_yaml
from tests.lines import rows


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        (".5", 0.5),
        ("+5", 5),
        ("012", 12),
        ("0o17", 15),
        ("0x1F", 31),
        ("9" * 400, math.inf),
        ("0x" + "F" * 400, math.inf),
        ("-.inf", -math.inf),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("FALSE", False),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("~", None),
        ("", None),
        ('"12"', "12"),
        ("!!str 12", "12"),
        ("15min", "15min"),
        ("<<", "<<"),
    ],
)
def test_scalars_mean_what_they_look_like(written: str, meant: object) -> None:
    value = parse_yaml(f"key: {written}\n", "x.yaml").data["key"]
    assert value == meant
    assert type(value) is type(meant)


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse_yaml("{on: 1, 2: 3, no: 4, null: 5}", "x").data == {
        "on": 1,
        "2": 3,
        "no": 4,
        "null": 5,
    }


def test_yaml_1_1_directive_changes_nothing() -> None:
    assert parse_yaml("%YAML 1.1\n---\na: no\nb: 1:30\n", "x").data == {"a": "no", "b": "1:30"}


def test_places_are_one_based_line_and_column() -> None:
    source = parse_yaml("a: 1\nb:\n  - x\n  - c: 2\n", "file.yaml")
    assert source.key_place(("b",)) == "file.yaml:2:1"
    assert source.value_place(("a",)) == "file.yaml:1:4"
    assert source.value_place(("b", 0)) == "file.yaml:3:5"
    assert source.key_place(("b", 1, "c")) == "file.yaml:4:5"
    assert source.value_place(("b", 1, "c")) == "file.yaml:4:8"


def test_what_is_not_written_is_placed_at_what_is_around_it() -> None:
    source = parse_yaml("a:\n  b: 1\n", "file.yaml")
    assert source.key_place(("a", "missing", "deeper")) == "file.yaml:1:1"
    assert source.key_place(("missing",)) == "file.yaml"


def test_aliases_are_copies_with_the_place_of_the_anchor() -> None:
    source = parse_yaml("a: &x {lr: 1}\nb: *x\n", "f")
    assert source.data == {"a": {"lr": 1}, "b": {"lr": 1}}
    assert source.data["a"] is not source.data["b"]
    assert source.value_place(("b", "lr")) == "f:1:12"


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("a:\n\tb: 1\n", "f:2:1", "a tab where YAML requires spaces"),
        ("a: 1\nb: 2\na: 3\n", "f:3:1", "'a' appears twice"),
        ("a: !!python/object:os.system x\n", "f:1:4", "python/object"),
        ("a: !mine {b: 1}\n", "f:1:4", "!mine"),
        ("a: !!binary aGk=\n", "f:1:4", "!!binary"),
        ("a: *nowhere\n", "f:1:4", "nowhere"),
        ("a: {<<: {b: 1}}\n", "f:1:5", "a key must be plain text"),
        ("a: &x [*x]\n", "f", "aliases repeat"),
        (f"a: [&x {'x' * 10_000}{', *x' * 200}]\n", "f", "aliases repeat"),
        ("a: 1\n---\nb: 2\n", "f:2:1", "second document"),
        ("a: {b: 1\nc: {d: 2}\ne: 3\n", "f:1:4", "this { is never closed"),
        ("a: 1\nb:\n  c: {d: [1, 2]\n\n", "f:3:6", "this { is never closed"),
        ("a: [1, {b: 2}\nc: 3\n", "f:1:4", "this [ is never closed"),
        ("a: {b: [1, 2}\nc: 1\n", "f:1:8", "this [ is never closed"),
        ("a: x{y  # {\nb: '['\nc: [1\n", "f:3:4", "this [ is never closed"),
        ("a: 1\nb: 'c\nd: 2\n", "f:2:4", "this ' is never closed"),
        # All braces are closed, but a comma is missing.
        ("a: {x: 1 y: 2}\nb: 3\n", "f:1:11", "expected ',' or '}'"),
        ("a: {}\n  b: 1\nc: 2\n", "f:2:3", "this line does not fit the lines above it"),
        ("a: 1\n b: 2\n", "f:2:3", "a second ':' in what looks like one value"),
        ("? [a, b]\n: 1\n", "f:1:3", "plain text"),
        ("a: 1\nb: \x01\n", "f:2", "'\\x01'"),
        ('a: "\\U0010ffff"\nb: "\\U00110000"\n', "f:2", "\\U00110000 is not a character"),
        ('a: "\\UFFFFFFFF"\n', "f:1", "\\UFFFFFFFF is not a character"),
        ('a: {b: 2} {\nc: d\n\ne: "\\U00110000"\n', "f:1:11", "this line does not fit"),
        ("# a\n%YAML 1.3\n---\na: 1\n", "f:2", "is YAML 1.3"),
        ("[" * 1200, "f", "too deeply"),
    ],
)
def test_errors_say_where_and_what(text: str, where: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_yaml(text, "f")
    assert caught.value.where is not None
    assert caught.value.where.startswith(where)
    assert message in caught.value.message


COLONS = r"""
name base\ntask: {} | f:1:1: a ':' is missing after 'name'\n  write name: base
a:\n  # x\n  method fedavg  # y\n\n  b: 1 | f:3:3: a ':' is missing after 'method'\n  write method: fedavg
a: 1\n- b\nc: 1 | f:2:1: this line does not fit
a: 1\nseed 3 | f:2:1: a ':' is missing after 'seed'\n  write seed: 3
a: 1\nstop {rounds: 3, more: 1h} | f:2:1: a ':' is missing after 'stop'\n  write stop: {rounds: 3, more: 1h}
a: 1\nseed=3 | f:2:1: a ':' is missing after 'seed'\n  write seed: 3
a: 1\ntask\n  name: x | f:2:1: a ':' is missing after 'task'\n  write task: (its keys belong below it)
a:\n  b: {c: 1,\n    d: 2}\n  lr 0.1  # note\ne: 1 | f:4:3: a ':' is missing after 'lr'\n  write lr: 0.1
a: 1\nname:base\nb: 1 | f:2:1: a space is missing after the colon\n  write name: base
a:\n  b: 1\n    c: 2 | f:3:6: a second ':' in what looks like one value
"""
"""At the beginning of a section, a line without a colon and the next one look like one value; after a key, like a key.
In the last one, the value is in the line above."""


@pytest.mark.parametrize(("text", "error"), rows(COLONS))
def test_a_missing_colon_is_named_in_its_line(text: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_yaml(f"{text}\n", "f")
    assert str(caught.value).startswith(error)


def test_decimal_commas_in_braces_are_named_and_nothing_else_is() -> None:
    text = "a: {lr: 0,1, mu: -2,25e3, c: '0',1: 2, d: 1, 5: , e: [0,1]}\nb: {every: 1,5h}\n"
    with pytest.raises(UserError) as caught:
        parse_yaml(text, "f")
    assert str(caught.value).splitlines() == [
        "f:1:9: a.lr: the number 0,1 has a comma",
        "  decimal numbers are written with a point: 0.1",
        "f:1:18: a.mu: the number -2,25e3 has a comma",
        "  decimal numbers are written with a point: -2.25e3",
        "f:2:12: b.every: the number 1,5h has a comma",
        "  decimal numbers are written with a point: 1.5h",
    ]


def test_byte_order_mark_is_no_part_of_the_first_key(tmp_path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\n")
    assert read_yaml(path).data == {"name": "x"}


def test_missing_file_names_its_neighbours(tmp_path) -> None:
    (tmp_path / "night.yaml").write_text("a: 1\n")
    with pytest.raises(UserError, match="no such file") as caught:
        read_yaml(tmp_path / "nigth.yaml")
    assert "night.yaml" in str(caught.value.hint)


_plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn", "Co"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abcxyz_0123456789", min_size=1), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "no", "12", "key"]), _plain, min_size=1))
def test_what_is_written_is_read_back(data: dict[str, object]) -> None:
    assert parse_yaml(to_yaml(data), "f").data == data


def test_a_device_is_not_read() -> None:
    with pytest.raises(UserError, match="is a device"):
        read_yaml(Path("/dev/zero"))


def test_values_without_end_are_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.scenario.source._MOST_VALUES", 100)
    text = f"tags: [{'[],' * 200}]\n"
    with pytest.raises(UserError, match="more than 100 values") as caught:
        parse_yaml(text, "f")
    assert caught.value.where == "f:1:299"
    # 1 mapping, 1 key and 1 list.
    written = to_yaml({"tags": [0] * 97})
    assert parse_yaml(written, "f").data == {"tags": [0] * 97}
    with pytest.raises(UserError, match="more than 100 values"):
        to_yaml({"tags": [0] * 98})
