"""Differences between scenarios, and the names made of them, by hand."""

from fedsim.scenario.comparing import (
    by_section,
    differences,
    differing,
    flattened,
    key_of,
    short_names,
)

ONE = {"seed": 1, "server": {"method": {"name": "fedavg"}, "selection": {}}}
TWO = {"seed": 1, "server": {"method": {"name": "fedprox", "mu": 0.1}, "selection": {}}}


def test_differences_have_the_path_and_both_values() -> None:
    assert list(differences(ONE, ONE)) == []
    assert list(differences(ONE, TWO)) == [
        ("server.method.name", "fedavg", "fedprox"),
        ("server.method.mu", None, 0.1),
    ]


def test_paths_at_which_some_differ_come_in_order_of_appearance() -> None:
    one, two = dict(flattened(ONE)), dict(flattened(TWO))
    assert one == {"seed": 1, "server.method.name": "fedavg", "server.selection": {}}
    assert differing([one, two, one]) == ["server.method.name", "server.method.mu"]


def test_a_missing_value_differs_from_none() -> None:
    assert key_of({}, ["a"]) != key_of({"a": None}, ["a"])
    assert key_of({"a": 1, "b": 2}, ["a"]) == key_of({"a": 1, "b": 3}, ["a"])


def test_short_names_are_the_shortest_distinct_endings() -> None:
    assert short_names(["server.method.name", "training.lr", "server.method.lr"]) == {
        "server.method.name": "method",
        "training.lr": "training.lr",
        "server.method.lr": "method.lr",
    }


def test_paths_by_section_keep_their_order() -> None:
    assert by_section(["server.b", "task.a", "server.a", "seed"]) == {
        "server": ["server.b", "server.a"],
        "task": ["task.a"],
        "seed": ["seed"],
    }
