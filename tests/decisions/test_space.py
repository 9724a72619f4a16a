"""Dimensions as they are written, and the keys that a setting has."""

from typing import Any

import pytest

from fedsim.decisions.space import Choices, Range, Space, parse_dimension
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario_dict
from tests.composition.worlds import digits
from tests.decisions.test_deciding import world


def space(*over: str, **server: Any) -> Space:
    data = digits()
    data["server"] |= server
    return Space(load_scenario_dict(data, "."), [parse_dimension(text) for text in over])


class Trial:
    """Suggests the lower end, or the choice of this number."""

    def __init__(self, **picks: int) -> None:
        self.picks = picks

    def suggest_categorical(self, name: str, values: Any) -> Any:
        return list(values)[self.picks.get(name.rpartition(".")[2], 0)]

    def suggest_int(self, name: str, low: int, high: int, log: bool) -> int:
        return low

    def suggest_float(self, name: str, low: float, high: float, log: bool) -> float:
        return low


@pytest.mark.parametrize(
    ("text", "low", "high", "whole", "log", "written"),
    [
        ("a.b=1min..1h", 60, 3600, False, True, [(372.4, "6.2min"), (3599, "60min"), (3600, "1h")]),
        ("a.b=1..3min", 60, 180, False, False, [(100, "1.7min")]),
        ("a.b=5..50", 5, 50, True, True, [(7, 7)]),
        ("a.b=2..8", 2, 8, True, False, [(8, 8)]),
        ("a.b=0.001..1", 0.001, 1, False, True, [(0.01234, 0.012), (1e-3, 0.001)]),
        ("a.b=100kB..2GB", 1e5, 2e9, False, True, [(1.5e6, "1.5MB")]),
        ("a.b=1Mbps..1Gbps", 1e6, 1e9, False, True, [(2.5e6, "2.5Mbps")]),
    ],
)
def test_a_range_is_read(
    text: str, low: float, high: float, whole: bool, log: bool, written: list[tuple[float, Any]]
) -> None:
    read = parse_dimension(text)
    assert isinstance(read, Range)
    assert (read.path, read.low, read.high, read.whole, read.log) == ("a.b", low, high, whole, log)
    for number, value in written:
        assert read.written(number) == value
        assert read.position(value) == pytest.approx(number, rel=0.03)


def test_a_list_is_read_as_yaml() -> None:
    read = parse_dimension("server.method=fedavg, {name: fedprox, mu: 0.1}, fedavg")
    assert read == Choices("server.method", ["fedavg", {"name": "fedprox", "mu": 0.1}])
    assert read.position({"mu": 0.1, "name": "fedprox"}) == 1


@pytest.mark.parametrize(
    "text",
    [
        *("server.method", "=1..2", "a=", "a=5", "a=2..1", "a=1s..2MB", "a=1..2parsec"),
        *("a=1min..5", "a=0.1..0.2..0.3", "a=1.2.3..5", "a=1-2..5", "a=e5..6", "a=1..1e999"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UserError) as raised:
        parse_dimension(text)
    assert raised.value.where == f"--over {text}"


OVER = ("server.schedule.pause=1..2", "server.method=fedavg,fedbuff,fedprox")
BOTH = ("server.method=fedavg,fedbuff", "server.schedule=sync,buffered")


@pytest.mark.parametrize(
    ("over", "given", "picks", "method", "schedule"),
    [
        # A method brings its schedule, and a schedule that suits the method stays as the scenario has it.
        (OVER, {}, {"method": 0}, "fedavg", "sync"),
        (OVER, {}, {"method": 1}, "fedbuff", "buffered"),
        (OVER, {}, {"method": 2}, "fedprox", "sync"),
        # So do that of the scenario's method, and a schedule that is varied.
        (("server.method=fedbuff,fedavg",), {"method": "fedbuff"}, {"method": 0}, "fedbuff", "sync"),
        (BOTH, {}, {"method": 1, "schedule": 0}, "fedbuff", "sync"),
    ],
)  # fmt: skip
def test_the_schedule_of_a_method(
    over: tuple[str, ...], given: Any, picks: Any, method: str, schedule: str
) -> None:
    made = space(*over, **given)
    setting = made.suggest(Trial(**picks))
    assert ("server.schedule.pause" in setting) == (over == OVER and schedule == "sync")
    server = made.scenario(setting).scenario.server
    assert (server.method.name, server.schedule.name) == (method, schedule)
    assert method == "fedbuff" or server.schedule.params.deadline == 4.0


def test_values_are_set_besides_a_setting() -> None:
    loaded = space("seed=1..9").scenario({}, seed=7, stop__rounds=3)
    assert (loaded.scenario.seed, loaded.scenario.stop.rounds) == (7, 3)


@pytest.mark.parametrize(
    ("over", "problem"),
    [
        ("server.selection.cohorte=1..2", "unknown key"),
        ("server.schedule.patience=1..2", "unknown key"),
        ("server.method=fedavg,fedsomething", "fedsomething"),
    ],
)
def test_a_key_that_no_setting_has_and_a_wrong_value_are_refused(over: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        space(over, OVER[1] if "method" not in over else OVER[0])


def test_a_setting_is_described() -> None:
    made = space(*OVER, "server.selection.cohort=2..9", "server.schedule.deadline=2s..1min")
    setting = {
        "server.method": {"name": "fedprox", "mu": 0.1},
        "server.selection.cohort": 3,
        "server.schedule.deadline": "6.2s",
    }
    assert made.words(setting) == "FedProx (mu 0.1), cohort 3, deadline 6.2 s"
    assert made.words({}) == "as given"


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (["server.selection.cohort=4..20"], "a cohort of 20 cannot be drawn from 8 clients"),
        (
            ["server.method=fedavg,mtgc", "server.schedule=async,{name: buffered, buffer_size: 2}"],
            "MTGC cannot run under",
        ),
        (["server.selection.cohort=4..8", "server.schedule.quorum=2..8"], None),
    ],
)
def test_values_that_fit_no_setting_are_found_before_the_first_run(
    over: list[str], message: str | None
) -> None:
    """A quorum of 8 does not fit a cohort of 4, but fits one of 8."""
    space = Space(load_scenario_dict(world(), "."), [parse_dimension(text) for text in over])
    if message is None:
        space.check(timing_only=True)
    else:
        with pytest.raises(UserError, match=message):
            space.check(timing_only=True)
