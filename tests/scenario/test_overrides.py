from pathlib import Path

import pytest

from fedsim.errors import UserError, UserErrors
from fedsim.scenario.loading import load_scenario_dict
from fedsim.scenario.overrides import Override, apply_overrides, from_python
from fedsim.scenario.source import parse_yaml
from tests.lines import rows

pytestmark = pytest.mark.usefixtures("catalog")

BASE = {"task": {"name": "quadratic", "centers": [[1, 2], [3, 4]]}, "stop": {"rounds": 1}}


@pytest.mark.parametrize(
    ("option", "path", "value"),
    [
        ("a.b=1e-3", "a.b", 0.001),
        ("a=null", "a", None),
        ("a=x=y", "a", "x=y"),
        ("a={name: dirichlet, alpha: 0.3}", "a", {"name": "dirichlet", "alpha": 0.3}),
        ("a=[1, 2]", "a", [1, 2]),
        ("a=15min", "a", "15min"),
        ("a=no", "a", "no"),
    ],
)
def test_values_are_yaml(option: str, path: str, value: object) -> None:
    override = Override.parse(option)
    assert (override.path, override.value) == (path, value)


@pytest.mark.parametrize("option", ["a", "=1", "a..b=1", ".a=1", "a.=1", "a.b= "])
def test_options_without_a_path_and_a_value_are_refused(option: str) -> None:
    with pytest.raises(UserError, match=r"dotted path|gives no value\n  write one"):
        Override.parse(option)


def test_a_message_repeats_the_beginning_of_a_long_option() -> None:
    assert len(Override.parse(f"tags=[{'a' * 10_000}]").where) < 600


def test_messages_speak_of_the_argument_that_python_was_given() -> None:
    [override] = from_python(["a.b=1"])
    assert override.where == 'argument overrides=["a.b=1"]'
    with pytest.raises(UserError) as caught:
        from_python(["a"])
    assert caught.value.hint == 'for example overrides=["training.optimizer.lr=0.05"]'
    for given in ("a=1", [("a", 1)]):
        with pytest.raises(UserError, match="argument overrides: must be a list of strings"):
            from_python(given)  # type: ignore[arg-type]


def test_values_of_python_by_path() -> None:
    first, second = from_python({"a.b": 1, "c": {"d": [2]}})
    assert (first.path, first.value, second.path, second.value) == ("a.b", 1, "c", {"d": [2]})
    assert first.where == 'argument overrides={"a.b": ...}'
    for path in ("", "a..b", 3):
        with pytest.raises(UserError, match="keys must be dotted paths, not"):
            from_python({path: 1})  # type: ignore[dict-item]


def test_later_ones_win_and_missing_sections_are_created() -> None:
    source = apply_overrides(
        parse_yaml("a: {b: 1}\n", "f"), ["a.b=2", "c.d.e=3", "a.b=4", "c.d.f=5"]
    )
    assert source.data == {"a": {"b": 4}, "c": {"d": {"e": 3, "f": 5}}}
    assert source.value_place(("a", "b")) == "option -s a.b=4"
    assert source.key_place(("c", "d", "e")) == "option -s c.d.e=3"


def test_the_original_is_unchanged() -> None:
    source = parse_yaml("a: [1, {b: 2}]\n", "f")
    apply_overrides(source, ["a.1.b=3"])
    assert source.data == {"a": [1, {"b": 2}]}
    assert source.value_place(("a", 1, "b")) == "f:1:12"


def test_items_of_lists_have_numbers(tmp_path: Path) -> None:
    loaded = load_scenario_dict(BASE, tmp_path, ["task.centers.1.0=9"])
    assert loaded.scenario.task.params.centers == [[1, 2], [9, 4]]


OPTIONS = r"""
task.centers.99999999999=1 | 'task.centers' is a list of 2 items
task.centers.2=1 | 'task.centers' is a list of 2 items\n  '2' must be a number from 0 to 1
task.centers.x=1 | 'task.centers' is a list of 2 items
task.centers.²=1 | 'task.centers' is a list of 2 items
stop.rounds.x=1 | 'stop.rounds' is 1 and has no key 'x'
training.lr=0.05 | unknown key\n  did you mean 'training.optimizer.lr'?
server.batch_size=3 | unknown key\n  did you mean 'evaluation.batch_size' or 'training.batch_size'?\n  known keys: m
trainin.lr=0.05 | trainin: unknown key\n  did you mean 'training'?
training.optimizer.lr=fast | must be a number, not 'fast'
server.method={name: fedsomething} | server.method.name: there is no method named
stop=3 | must be a mapping
stop.target=null | must be a mapping of keys to values, not null\n  write {} to clear it
"""


@pytest.mark.parametrize(("option", "message"), rows(OPTIONS))
def test_errors_name_the_option(tmp_path: Path, option: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_scenario_dict(BASE, tmp_path, [option])
    assert not isinstance(caught.value, UserErrors)
    assert str(caught.value).startswith(f"option -s {option}: {message}")
    with pytest.raises(UserError) as caught:
        load_scenario_dict(BASE, tmp_path, from_python([option]))
    assert str(caught.value).startswith(f'argument overrides=["{option}"]: {message}')


def test_a_path_of_many_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="more than 100 levels of nesting"):
        load_scenario_dict(BASE, tmp_path, [".".join("a" * 50_000) + "=1"])


def test_replacing_a_section_forgets_the_places_in_it(tmp_path: Path) -> None:
    source = apply_overrides(parse_yaml("stop: {rounds: 1}\n", "f"), ["stop={round: 2}"])
    assert source.key_place(("stop", "round")) == "option -s stop={round: 2}"
    assert ("stop", "rounds") not in source.keys
