"""The suite: what each run sets, and that every entry works where it takes part."""

import itertools

import pytest

from fedsim.board.suite import Cell, suite
from fedsim.composition.build import build, check
from fedsim.composition.shared import Shared

SETTINGS = 5


def test_the_settings_are_a_cross_through_the_usual_one():
    whole = suite()
    tried = [whole.values(Cell("silos", "FedProx", "tuning", n, 100)) for n in range(SETTINGS)]
    pairs = [(v["training.optimizer.lr"], v["server.method.mu"]) for v in tried]
    assert pairs == [(0.03, 0.01), (0.1, 0.01), (0.3, 0.01), (0.1, 0.001), (0.1, 0.1)]


BARE = """from fedsim.methods.base import Method


class Bare(Method):
    \"\"\"Keeps its model.\"\"\"

    name = "bare"

    def aggregate(self, server, updates):
        return server
"""


@pytest.mark.parametrize(
    ("values", "key", "choices"),
    [
        ({"server.method": {"name": "fedprox"}}, "server.method.mu", (0.001, 0.01, 0.1)),
        ({"server.method": {"name": "ditto"}}, "server.method.attraction", (0.1, 1.0, 3.0)),
        ({"server.schedule": "buffered"}, "server.schedule.buffer_size", (5, 10, 20)),
        ({"server.selection.name": "oort"}, "server.selection.penalty", (0.5, 2.0, 5.0)),
        ({"server.method": "bare.py:Bare"}, "", ()),
    ],
)
def test_the_knob_of_an_own_entry_is_a_parameter_that_it_has(values, key, choices, tmp_path):
    file = tmp_path / "bare.py"
    file.write_text(BARE)
    values = {
        path: f"{file}:Bare" if part == "bare.py:Bare" else part for path, part in values.items()
    }
    entry = suite().limited(["phones_day"], {}, 5).own_entry("mine", values)
    assert (entry.knob, entry.choices) == (key, choices)
    mine = suite().limited(["phones_day"], {"mine": entry}, 5)
    (question,) = mine.scenarios.values()
    runs = [*mine.tuning(question, entry), *mine.measuring(question, entry, 0)]
    assert len(runs) == mine.size(question)
    for cell in runs[:6]:
        mine.loaded(cell)


def test_every_entry_has_the_same_number_of_runs():
    whole = suite()
    for question in whole.scenarios.values():
        counts = {
            len([*whole.tuning(question, entry), *whole.measuring(question, entry, 0)])
            for entry in whole.fitting(question)
        }
        assert counts == {SETTINGS * 2 + 5 * (1 + len(question.disturbances))}


def test_measured_runs_go_on_to_the_horizon_and_tuning_stops_at_the_target():
    whole = suite()
    tuned, measured = (
        whole.loaded(Cell("silos", "FedAvg", kind, 1, 0)) for kind in ("tuning", "measured")
    )
    assert tuned.scenario.stop.target == {"accuracy": 0.92}
    assert measured.scenario.stop.target == {}


def test_a_disturbance_changes_the_devices():
    loaded = suite().loaded(Cell("silos", "FedAvg", "cut off", 1, 0))
    assert loaded.scenario.devices.failures.upload_loss == 0.3


@pytest.mark.parametrize("scenario", ["silos", "partial_work", "personal"])
def test_every_entry_works_where_it_takes_part(scenario):
    whole, shared = suite(), Shared()
    question = whole.scenarios[scenario]
    for entry in whole.fitting(question):
        check(build(whole.loaded(Cell(scenario, entry.name, "tuning", 3, 100)), shared))


@pytest.mark.parametrize("scenario", suite("board-1-large").scenarios)
def test_the_large_suite_has_the_entries_of_the_first(scenario):
    large = suite("board-1-large")
    assert (large.entries, large.seeds) == (suite().entries, suite().seeds)
    for entry in large.fitting(large.scenarios[scenario]):
        large.loaded(Cell(scenario, entry.name, "tuning", 3, 100))


def test_every_entry_takes_part_somewhere_and_knobs_have_three_values():
    whole = suite()
    taking_part = itertools.chain.from_iterable(map(whole.fitting, whole.scenarios.values()))
    assert {entry.name for entry in taking_part} == set(whole.entries)
    assert {len(entry.choices) for entry in whole.entries.values()} == {3}
