"""The statistics of the board, on rows made by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedsim.board import results
from fedsim.board.suite import suite


def test_entries_are_ordered_by_time_and_compared_with_fedavg(rows, question):
    table = results.table(rows, question)
    assert [s.entry for s in table.standings] == [
        "FedBuff",
        "FedCompass",
        "FedAvg",
        "FedAsync",
        "ACE",
    ]
    fast = table.of("FedBuff")
    logs = np.log(np.array([50, 66, 36]) / [100, 120, 80])
    low, high = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    ratio = fast.ratio
    assert [ratio.value, ratio.low, ratio.high] == pytest.approx(np.exp([logs.mean(), low, high]))
    assert table.refused == {"Broken": "cannot"}


def test_an_entry_whose_interval_includes_the_fastest_is_not_worse(rows, question):
    table = results.table(rows, question)
    assert [s.entry for s in table.standings if s.not_worse] == [
        "FedBuff",
        "FedCompass",
    ]


def test_misses_are_shown_as_such_and_count_with_the_horizon(rows, question):
    table = results.table(rows, question)
    rare, never = table.of("FedAsync"), table.of("ACE")
    assert (rare.ratio, rare.reached, never.ratio, never.reached) == (None, 1, None, 0)
    assert never.time_s == pytest.approx(question.horizon_s)


def test_disturbances_are_factors_on_the_time(rows, question):
    table = results.table(rows, question)
    assert table.of("FedBuff").disturbed["slower"] == pytest.approx(3)
    assert math.isnan(table.of("ACE").disturbed["slower"])


def test_ranks_by_hours_and_by_server_updates(rows, question):
    # Times rank Fast, Alike, FedAvg; versions rank them the other way round: no pair agrees.
    assert results.table(rows, question).tau == pytest.approx(-1)


def test_nothing_beats_fedavg(rows, question):
    slow = rows[rows["entry"].isin(["FedAvg", "ACE"])]
    assert results.why(results.table(slow, question)).startswith("Nothing beats FedAvg")


def test_the_suite_and_its_scenarios_are_frozen():
    scenarios = {**suite().scenarios, **suite("board-1-large").scenarios}
    digests = {name: question.digest() for name, question in scenarios.items()}
    frozen = Path(__file__).with_name("digests.txt").read_text().splitlines()
    assert digests == dict(line.split() for line in frozen)


def test_a_win_that_the_seeds_do_not_confirm_is_doubted(rows, question):
    two = rows[rows["entry"].isin(["FedAvg", "FedBuff"])].copy()
    assert results.why(results.table(two, question)).startswith("FedBuff is the fastest. It needs")
    two.loc[(two["entry"] == "FedBuff") & (two["time_s"] == 50), "time_s"] = 95
    doubt = "FedBuff has the lowest mean time, but 3 seeds do not separate it from FedAvg."
    assert results.why(results.table(two, question)).startswith(doubt)


@pytest.mark.parametrize(
    ("entry", "seeds", "sentence"),
    [
        (
            "FedBuff",
            3,
            "FedBuff ranks 1 of 5 in silos and takes 0.50 times as long as FedAvg (95% interval 0.39 to 0.64).",
        ),
        (
            "FedBuff",
            2,
            "FedBuff ranks 1 of 5 in silos and takes 0.52 times as long as FedAvg, "
            "but 2 seeds are too few for an interval.",
        ),
        ("ACE", 3, "ACE ranks 5 of 5 in silos: only 0 of 3 runs reached accuracy 0.92."),
        ("Broken", 3, "Broken does not work in silos."),
    ],
)
def test_the_verdict_on_an_entry_is_a_sentence(entry, seeds, sentence, rows, question):
    table = results.table(rows[(rows["seed"] < seeds) | (rows["error"] != "")], question)
    assert results.verdict(table, entry) == sentence
