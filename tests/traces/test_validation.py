"""Every problem of a bundle is named with its table and row."""

import pytest

from fedsim.errors import UserErrors
from fedsim.traces.validation import Finding, implausible_rates, require_sound, validate_bundle
from tests.traces.sound import HOUR, build, sound_tables

WRONG = [
    ("devices", {"device_id": ["a", "b", "a"]}, 2, "repeats the device_id"),
    ("devices", {"device_id": ["a", "", "c"]}, 1, "empty"),
    ("devices", {"window_end_us": [24 * HOUR, 0, 20 * HOUR]}, 1, "no length"),
    ("devices", {"window_end_us": [24 * HOUR, -5, 20 * HOUR]}, 1, "no length"),
    ("devices", {"period_us": [None, 0, None]}, 1, "period_us is 0"),
    ("devices", {"period_us": [None, 5, None]}, 1, "shorter than the window"),
    ("devices", {"valid": [True, None, True]}, 1, "valid is null"),
    ("devices", {"valid": [True, True, False]}, None, "invalid device"),
    ("availability", {"device_id": ["a", "zz", "c"]}, 1, "'zz' is not in the table devices"),
    ("availability", {"device_id": ["a", None, "c"]}, 1, "device_id is null"),
    ("availability", {"start_us": [0, HOUR, HOUR]}, 1, "overlaps the row above"),
    ("availability", {"end_us": [2 * HOUR, 2 * HOUR, 2 * HOUR]}, 1, "is reversed"),
    ("availability", {"end_us": [2 * HOUR, 3 * HOUR, 2 * HOUR]}, 1, "zero length"),
    ("availability", {"start_us": [3 * HOUR, 0, HOUR]}, 1, "before the row above"),
    ("availability", {"end_us": [2 * HOUR, 25 * HOUR, 2 * HOUR]}, 1, "not inside the window"),
    ("availability", {"start_us": [0, 3 * HOUR, 0]}, 2, "not inside the window"),
    (
        "availability",
        {"device_id": ["a", "c", "a"], "start_us": [0, 3 * HOUR, HOUR]},
        2,
        "sort the table",
    ),
    ("availability", {"state": [1, 2, 1]}, 1, "state is 2"),
    ("availability", {"censored": [0, 4, 1]}, 1, "censored is 4"),
    ("device_events", {"time_us": [9, 5]}, 1, "before the row above"),
    ("device_events", {"key": ["charging", None]}, 1, "key is null"),
    ("device_events", {"key": ["charging", "mood"]}, 1, "key is 'mood'"),
    ("compute", {"sample_s": [float("nan"), 0.1]}, 0, "is not finite"),
    ("compute", {"sample_s": [float("inf"), 0.1]}, 0, "is not finite"),
    ("compute", {"sample_s": [-0.5, 0.1]}, 0, "sample_s is -0.5 s"),
    ("compute", {"relative_speed": [1.0, 0.0]}, 1, "more than 0"),
    ("compute", {"phase": ["training", "sleeping"]}, 1, "'sleeping'"),
    ("compute", {"device_id": ["a", "a"]}, 1, "device_id, task, phase, batch_size"),
    ("compute", {"sample_s": [None, 0.1], "step_fixed_s": [None, 0.1]}, 0, "gives no speed"),
    ("compute_series", {"dur_us": [0, 5]}, 0, "zero length"),
    ("compute_series", {"start_us": [0, 4]}, 1, "overlaps"),
    ("compute_series", {"start_us": [0, 6]}, 1, "gap"),
    ("compute_series", {"multiplier": [1.0, float("nan")]}, 1, "is not finite"),
    ("network", {"bandwidth_bps": [8e6, -1e6, 2e6]}, 1, "bandwidth_bps is -1000000.0 bit/s"),
    ("network", {"bandwidth_bps": [8e6, float("nan"), 2e6]}, 1, "is not finite"),
    ("network", {"direction": ["down", "sideways", "both"]}, 1, "'sideways'"),
    ("network", {"direction": ["down", "down", "both"]}, 1, "device_id, direction"),
    ("network", {"device_id": ["a", "b", "b"]}, 1, "already has a row for both directions"),
    ("network", {"loss": [0.0, 1.5, None]}, 1, "at most 1"),
    ("network_series", {"rate_bps": [-1.0, None]}, 0, "rate_bps is -1.0"),
    ("network_series", {"start_us": [0, 6]}, 1, "gap"),
    ("network_assign", {"series_id": ["t"]}, 0, "'t' is not in the table network_series"),
    ("network_assign", {"scale": [0.0]}, 0, "more than 0"),
    ("grid", {"unit": ["EUR/MWh", "EUR/MWh"]}, 0, "it must be g/kWh"),
    ("grid", {"start_us": [0, 6]}, 1, "leaves a gap"),
    ("rtt_matrix", {"rtt_s": [-0.1]}, 0, "rtt_s is -0.1"),
    (
        "rtt_matrix",
        {"src": ["x"] * 3, "dst": ["y", "x", "y"], "rtt_s": [0.1] * 3},
        2,
        "src, dst",
    ),
]


@pytest.mark.parametrize(("table", "change", "row", "message"), WRONG)
def test_validation_names_the_table_the_row_and_the_problem(table, change, row, message):
    tables = sound_tables()
    tables[table].update(change)
    problems = validate_bundle(build(tables))
    assert any(
        message in p.message and (row is None or (p.table, p.row) == (table, row)) for p in problems
    ), problems


def test_a_bundle_without_devices_has_one_problem():
    bundle = build()
    bundle.tables["devices"] = bundle.devices.slice(0, 0)
    assert validate_bundle(bundle) == [Finding("devices", None, "there is no device")]


def test_the_sound_bundle_has_no_problem():
    assert validate_bundle(build()) == []
    require_sound(build())


def test_a_time_that_is_not_finite_has_no_unit():
    tables = sound_tables()
    tables["compute"]["sample_s"] = [float("nan"), float("inf")]
    assert implausible_rates(build(tables)) is None


def test_all_problems_are_reported_and_long_lists_are_cut_with_a_count():
    tables = sound_tables()
    tables["compute"]["sample_s"] = [-1.0, -2.0]
    tables["network"]["bandwidth_bps"] = [-1.0, 1.0, -1.0]
    assert [(p.table, p.row) for p in validate_bundle(build(tables))] == [
        ("compute", 0),
        ("compute", 1),
        ("network", 0),
        ("network", 2),
    ]
    cut = validate_bundle(build(tables), limit=1)
    assert Finding("compute", None, "and 1 more row of the same kind") in cut
    assert str(Finding("compute", 3, "no device \x1b[2J")) == r"compute row 3: no device \x1b[2J"
    with pytest.raises(UserErrors, match="network row 2"):
        require_sound(build(tables))
