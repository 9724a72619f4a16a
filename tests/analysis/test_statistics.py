"""Statistics against closed forms of the papers, hand-made logs and slow independent loops."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.analysis.statistics import (
    at_work,
    delays,
    gini,
    lorenz_curve,
    outcome_counts,
    participation_term,
    spent_by,
    turnaround_s,
    update_intervals_s,
    where_time_went,
)
from fedsim.runs import Run
from fedsim.vocabulary.outcomes import OUTCOME_LABELS
from tests.runs.synthetic_runs import build_run


def log_frame(rounds: Sequence[Sequence[int]]) -> pd.DataFrame:
    """Dispatches whose clients are aggregated in these rounds, plus one dropped dispatch of client 0."""
    pairs = [(client, t + 1) for t, active in enumerate(rounds) for client in active] + [(0, pd.NA)]
    outcome = ["aggregated"] * (len(pairs) - 1) + ["dropped"]
    return pd.DataFrame(
        {
            "client_id": np.array([client for client, _ in pairs]),
            "aggregated_version": pd.array([version for _, version in pairs], dtype="Int64"),
            "outcome": pd.Categorical(outcome, categories=list(OUTCOME_LABELS)),
        }
    )


def slow_delays(rounds: Sequence[Sequence[int]], clients: int) -> list[int]:
    """The loop of the FedSUM card, section 3."""
    last = [-1] * clients
    tau = []
    for t, active in enumerate(rounds):
        for client in active:
            last[client] = t
        tau.append(max(t - last[client] for client in range(clients)))
    return tau


@pytest.mark.parametrize(
    ("rounds", "clients", "tau"),
    [
        ([[0], [1], [0, 1], [2], [0], [1, 2]], 3, [1, 2, 3, 1, 2, 1]),
        ([[0]] * 4, 2, [1, 2, 3, 4]),
        ([[0, 1, 2]] * 5, 3, [0] * 5),
        ([], 3, []),
    ],
)
def test_delay_oracles(rounds: list[list[int]], clients: int, tau: list[int]) -> None:
    assert delays(log_frame(rounds), clients, len(rounds)).tolist() == tau


def test_cyclic_participation_has_the_closed_form() -> None:
    groups, updates = 5, 2000
    rounds = [range(20 * (t % groups), 20 * (t % groups) + 20) for t in range(updates)]
    tau = delays(log_frame(rounds), 100, updates)
    assert tau.max() == groups - 1
    mean = (groups - 1) * (updates + 1 - groups / 2) / updates
    assert tau.mean() == pytest.approx(mean, rel=1e-14)


LOGS = st.lists(st.lists(st.integers(0, 5), max_size=6, unique=True), max_size=25)


@given(rounds=LOGS, missing=st.integers(0, 2))
@settings(deadline=None)
def test_delays_equal_the_plain_loop(rounds: list[list[int]], missing: int) -> None:
    """Also if the last versions of a killed run did not reach the disk, but what entered them did."""
    updates = max(len(rounds) - missing, 0)
    assert delays(log_frame(rounds), 6, updates).tolist() == slow_delays(rounds[:updates], 6)


def test_one_round_of_equal_participants() -> None:
    term = participation_term(log_frame([[0, 1]]), 10, 1, 1)
    assert term == pytest.approx([10 / 2 - 1])
    alone = participation_term(log_frame([[3]] * 4), 10, 4, 4)
    assert alone == pytest.approx([9.0])


@pytest.mark.parametrize(
    ("window", "offset", "expected"),
    [
        (100, 0, 4.0),
        (100, 50, 1.5),
        (300, 0, 2 / 3),
        (300, 50, 0.3889),
        (500, 0, 0.0),
        (500, 50, 0.0),
        (700, 0, 0.1224),
        (700, 50, 0.0714),
        (900, 0, 0.0494),
        (900, 50, 0.0185),
    ],
)
def test_groups_online_in_turn(window: int, offset: int, expected: float) -> None:
    # Wang & Ji's cycle of five groups and slots of 100 rounds; all of a group take part.
    rounds = [[2 * (t // 100 % 5), 2 * (t // 100 % 5) + 1] for t in range(offset, offset + window)]
    term = participation_term(log_frame(rounds), 10, window, window)
    assert term == pytest.approx([expected], abs=5e-5)


def test_uniform_sampling_has_its_expected_term() -> None:
    # E[B] = (N - S) / (S P): N = 10, S = 2, P = 8 gives 0.5.
    random = np.random.default_rng(7)
    windows = 3000
    rounds = [random.choice(10, 2, replace=False).tolist() for _ in range(8 * windows)]
    term = participation_term(log_frame(rounds), 10, 8 * windows, 8)
    assert len(term) == windows
    assert term.mean() == pytest.approx(0.5, abs=5 * term.std() / math.sqrt(windows))


@given(rounds=LOGS, window=st.integers(1, 5))
@settings(deadline=None)
def test_term_equals_its_definition(rounds: list[list[int]], window: int) -> None:
    q = np.zeros((len(rounds), 6))
    for t, active in enumerate(rounds):
        q[t, active] = 1 / max(len(active), 1)
    expected = [
        6 * ((q[k * window : (k + 1) * window].mean(axis=0) - 1 / 6) ** 2).sum()
        for k in range(len(rounds) // window)
    ]
    shown = participation_term(log_frame(rounds), 6, len(rounds), window)
    np.testing.assert_allclose(shown, expected, atol=1e-12)


def test_gini_of_known_distributions() -> None:
    assert gini(np.array([3, 3, 3, 3])) == pytest.approx(0.0)
    assert gini(np.array([0, 0, 0, 8])) == pytest.approx(3 / 4)
    assert gini(np.array([1, 2, 3])) == pytest.approx(2 / 9)
    assert math.isnan(gini(np.zeros(4, np.int64)))
    assert lorenz_curve(np.array([3, 1])).tolist() == [0.0, 0.25, 1.0]


@pytest.fixture(scope="module", params=[False, True], ids=["synchronous", "asynchronous"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("statistics") / "run"
    return build_run(path, clients=25, hours=12, asynchronous=request.param, seed=2)


def test_time_adds_up_and_equals_a_plain_loop(run: Run) -> None:
    spent = where_time_went(run.phases, run.clients)
    assert sum(spent.values()) == pytest.approx(25 * run.simulated_s)
    made = dict(zip(run.aggregations["version"], run.aggregations["time_s"], strict=True))
    expected = dict.fromkeys(("download", "compute", "upload", "waiting"), 0.0)
    rows = run.dispatches.to_dict("records")
    for number, row in enumerate(rows):
        instants = [row["dispatched_s"], row["downloaded_s"], row["computed_s"], row["arrived_s"]]
        for name, begin, end in zip(expected, instants, instants[1:], strict=False):
            if not math.isnan(begin):
                expected[name] += (row["ended_s"] if math.isnan(end) else end) - begin
        if not math.isnan(row["arrived_s"]) and row["outcome"] in ("aggregated", "unfinished"):
            until = made.get(row["aggregated_version"], run.simulated_s)
            later = [
                r["dispatched_s"] for r in rows[number + 1 :] if r["client_id"] == row["client_id"]
            ]
            expected["waiting"] += min([until, *later[:1]]) - row["arrived_s"]
    for name, seconds in expected.items():
        assert spent[name] == pytest.approx(seconds), name


def test_at_work_and_running_sums(run: Run) -> None:
    frame = run.dispatches
    times = np.array([-1.0, 0.0, 1000.0, 20_000.0, frame["ended_s"].max(), 1e6])
    begun, ended = frame["dispatched_s"], frame["ended_s"]
    peak, means = at_work(frame, run.pauses, times)
    assert peak == max(int(((begun <= t) & (ended > t)).sum()) for t in begun)
    expected = [
        (ended.clip(a, b) - begun.clip(a, b)).sum() / (b - a) for a, b in itertools.pairwise(times)
    ]
    np.testing.assert_allclose(means, expected, atol=1e-9)
    sums = [float(frame["bytes_up"][frame["ended_s"] <= t].sum()) for t in times]
    assert spent_by(frame, frame["bytes_up"].to_numpy(), times).tolist() == sums


def test_paused_clients_are_not_at_work() -> None:
    """Two dispatches from 0 to 10 s; one pauses from 2 to 5 s, the other from 4 to 10 s, when the run ends."""
    frame = pd.DataFrame({"dispatched_s": [0.0, 0.0], "ended_s": [10.0, 10.0]})
    pauses = pd.DataFrame({"dispatch_id": [0, 1], "from_s": [2.0, 4.0], "to_s": [5.0, 10.0]})
    peak, means = at_work(frame, pauses, np.array([0.0, 2.0, 5.0, 10.0, 12.0]))
    assert peak == 2
    np.testing.assert_allclose(means, [2.0, 2 / 3, 1.0, 0.0])
    assert at_work(frame, None, np.array([0.0, 10.0]))[1].tolist() == [2.0]


def test_runs_of_nothing(tmp_path: Path) -> None:
    empty = build_run(tmp_path / "run", clients=5, hours=0.001, cohort=0, asynchronous=True)
    assert delays(empty.dispatches, 5, 0).tolist() == []
    assert sum(outcome_counts(empty.dispatches).values()) == 0
    assert participation_term(empty.dispatches, 5, 0, 1).tolist() == []


def test_intervals_of_updates_and_turnaround_by_hand() -> None:
    aggregations = pd.DataFrame({"time_s": [4.0, 4.0, 10.0]})
    assert update_intervals_s(aggregations).tolist() == [4.0, 0.0, 6.0]
    table = pd.DataFrame({"dispatched_s": [0.0, 1.0, 2.0], "arrived_s": [4.0, np.nan, 9.0]})
    assert turnaround_s(table).tolist() == [4.0, 7.0]
