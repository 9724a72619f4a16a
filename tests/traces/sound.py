"""A bundle without any problem, with all nine tables."""

from fedsim.traces.bundle import Eligibility, Manifest, TraceBundle
from fedsim.traces.tables import make_table

HOUR = 3_600_000_000


def manifest(**changes):
    values = {
        "name": "three",
        "horizon_us": 24 * HOUR,
        "importer": "hand",
        "importer_version": "1",
        "eligibility": Eligibility(words="charging", expression="charging == 'on'"),
        "counts": {"zero_length": 2},
    }
    return Manifest(**{**values, **changes})


def sound_tables():
    return {
        "devices": {
            "device_id": ["a", "b", "c"],
            "model": ["X", None, "Y"],
            "window_start_us": [0, 0, HOUR],
            "window_end_us": [24 * HOUR, 24 * HOUR, 20 * HOUR],
            "period_us": [24 * HOUR, None, 19 * HOUR],
            "valid": [True, True, True],
        },
        "availability": {
            "device_id": ["a", "a", "c"],
            "start_us": [0, 3 * HOUR, HOUR],
            "end_us": [2 * HOUR, 5 * HOUR, 2 * HOUR],
        },
        "device_events": {
            "device_id": ["a", "a"],
            "time_us": [0, 5],
            "key": ["charging", "charging"],
            "value": ["on", "off"],
        },
        "compute": {
            "device_id": ["a", "b"],
            "task": ["*", "*"],
            "phase": ["training", "training"],
            "step_fixed_s": [0.01, 0.02],
            "sample_s": [0.001, 0.002],
        },
        "compute_series": {
            "device_id": ["a", "a"],
            "start_us": [0, 5],
            "dur_us": [5, 5],
            "multiplier": [1.0, 2.0],
        },
        "network": {
            "device_id": ["a", "a", "b"],
            "direction": ["down", "up", "both"],
            "bandwidth_bps": [8e6, 1e6, 2e6],
        },
        "network_series": {
            "series_id": ["s", "s"],
            "direction": ["down", "down"],
            "start_us": [0, 5],
            "dur_us": [5, 5],
            "rate_bps": [1e6, 0.0],
        },
        "network_assign": {
            "device_id": ["a"],
            "series_id": ["s"],
            "offset_us": [0],
            "scale": [1.0],
        },
        "rtt_matrix": {"src": ["n"], "dst": ["m"], "rtt_s": [0.125]},
        "grid": {
            "region": ["FR", "FR"],
            "unit": ["g/kWh", "g/kWh"],
            "start_us": [0, 5],
            "dur_us": [5, 5],
            "value": [50.0, None],
        },
    }


def build(tables=None, **changes):
    tables = sound_tables() if tables is None else tables
    return TraceBundle(
        manifest(**changes), {name: make_table(name, values) for name, values in tables.items()}
    )
