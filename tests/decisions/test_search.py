"""The search on synthetic objectives, whose best setting is known."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest

from fedsim.decisions.goal import Limit, Measured
from fedsim.decisions.search import SLACK, STOPPED, Question, Search
from fedsim.decisions.space import Setting


def time_to_target(setting: Setting) -> float:
    """Best, 100 s, at x = 0.3 and kind 1; kind 0 has no y."""
    kind, x = setting["kind"], setting["x"]
    y = setting.get("y", 0.0)
    return float(100 * math.exp(4 * (x - 0.3) ** 2 + 2 * (kind != 1) + (y - 2) ** 2 / 8 * kind))


def suggest(trial: Any) -> dict[str, Any]:
    kind = trial.suggest_categorical("kind", [0, 1])
    x = round(trial.suggest_float("x", 0.0, 2.0), 2)
    return {"kind": kind, "x": x} | ({"y": trial.suggest_int("y", 0, 9)} if kind else {})


class Runs:
    """Measures settings, and notes the simulated seconds of their runs."""

    def __init__(self, **more: float) -> None:
        self.simulated: list[float] = []
        self.more = more

    def __call__(self, settings: Sequence[Setting], until_s: float) -> list[Measured | str]:
        results: list[Measured | str] = []
        for setting in settings:
            time_s = time_to_target(setting)
            lasts_s = min(time_s, until_s)
            self.simulated.append(lasts_s)
            bytes_ = lasts_s * (1 + 9 * setting["kind"])
            shortfall = max(0.0, 1 - until_s / time_s)
            results.append(Measured({"time": lasts_s, "bytes": bytes_}, not shortfall, shortfall))
        return results


QUESTION = Question(("time",), reference_s=2000.0, horizon_s=4000.0)


def searched(question: Question = QUESTION, batches: int = 8) -> tuple[Search, Runs]:
    runs = Runs()
    search = Search(suggest, question, runs)
    for _ in range(batches):
        search.batch()
    return search, runs


def test_the_best_setting_is_found_with_a_tenth_of_a_grid() -> None:
    found, runs = searched()
    grid = [
        {"kind": kind, "x": x / 10, "y": y}
        for kind, x, y in itertools.product((0, 1), range(21), range(10))
    ]
    whole = sum(min(time_to_target(setting), 4000.0) for setting in grid)
    assert found.candidates[0].values[0] <= 1.05 * 100
    assert sum(runs.simulated) < whole / 10


def test_equal_questions_give_equal_answers() -> None:
    first, second = (list(searched(batches=3)[0].tried.values()) for _ in range(2))
    assert first == second
    other = searched(Question(("time",), reference_s=2000.0, horizon_s=4000.0, seed=1), 3)[0]
    assert list(other.tried.values()) != first


def test_no_run_takes_much_longer_than_the_best_so_far() -> None:
    search, runs = searched(batches=1)
    best = search.candidates[0].values[0]
    runs.simulated.clear()
    search.batch()
    # The first and the second ninth of the reference come before the cap is known to be reached.
    assert max(runs.simulated) <= SLACK * best


def test_settings_that_fall_behind_stop_at_a_ninth_of_the_reference() -> None:
    search, _ = searched(batches=1)
    stopped = [each for each in search.tried.values() if each.state == STOPPED]
    assert stopped
    early = [each for each in stopped if math.isinf(each.values[0])]
    assert early
    for each in early:
        assert each.measured is not None
        assert any(each.measured.costs["time"] == pytest.approx(2000 / ninth) for ninth in (9, 3))
    assert not any(each.is_candidate for each in stopped)


def test_the_closest_of_the_stopped_go_on_if_there_are_few_candidates() -> None:
    search, _ = searched(batches=1)
    before, times = (
        len(search.candidates),
        sorted(time_to_target(each.setting) for each in search.tried.values()),
    )
    search.resume(before)
    assert len(search.candidates) == before
    search.resume(before + 3)
    # The next ones by their time, as far as they take at most three times as long as the best.
    within = [time_s for time_s in times[: before + 3] if time_s <= 3 * times[0]]
    assert [each.values[0] for each in search.candidates] == pytest.approx(within)
    assert len(within) > before


def test_runs_are_not_judged_before_some_evaluations() -> None:
    question = Question(("time",), reference_s=2000.0, horizon_s=4000.0, evaluated_s=100.0)
    _, runs = searched(question, batches=1)
    assert not any(second == pytest.approx(2000 / 9) for second in runs.simulated)


def test_a_limit_excludes_the_fastest() -> None:
    """Kind 1 moves ten times the bytes: 1,000 at least; kind 0 takes 739 s, and moves as many bytes."""
    question = Question(("time",), (Limit("bytes", 900.0),), 2000.0, 4000.0)
    search, _ = searched(question)
    assert search.candidates[0].setting["kind"] == 0
    assert search.candidates[0].values[0] == pytest.approx(739, rel=0.1)


def test_several_objectives_are_searched_together() -> None:
    search, runs = searched(Question(("time", "bytes"), reference_s=2000.0, horizon_s=4000.0))
    kinds = {each.setting["kind"] for each in search.candidates}
    assert kinds == {0, 1}
    assert len(runs.simulated) == len(search.tried)  # Each is run once, to the end.
    assert min(each.values[1] for each in search.candidates) == pytest.approx(739, rel=0.2)


def test_the_throughput_is_maximized() -> None:
    def measure(settings: Sequence[Setting], until_s: float) -> list[Measured | str]:
        rates = [1000 / time_to_target(setting) for setting in settings]
        return [Measured({"time": 1.0}, True, 0.0, rate) for rate in rates]

    search = Search(suggest, Question(("throughput",), horizon_s=1.0), measure)
    for _ in range(6):
        search.batch()
    assert search.candidates[0].values[0] == pytest.approx(-10, rel=0.1)


def test_settings_that_fail_are_kept_with_their_problem() -> None:
    def measure(settings: Sequence[Setting], until_s: float) -> list[Measured | str]:
        pairs = zip(settings, Runs()(settings, until_s), strict=True)
        return ["too large" if setting["x"] > 1 else result for setting, result in pairs]

    search = Search(suggest, QUESTION, measure)
    search.batch()
    failed = [each for each in search.tried.values() if each.setting["x"] > 1]
    assert {each.problem for each in failed} == {"too large"}
    assert not any(each.is_candidate for each in failed)


def test_a_setting_is_run_once() -> None:
    def few(trial: Any) -> dict[str, Any]:
        return {"kind": 1, "x": trial.suggest_categorical("x", [0.1, 0.3, 1.0])}

    runs = Runs()
    search = Search(few, Question(("bytes",), horizon_s=4000.0), runs)
    assert [len(search.batch()) for _ in range(3)] == [3, 0, 0]
    assert len(runs.simulated) == 3
