"""Small bundles for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedsim.traces.bundle import Manifest, TraceBundle
from fedsim.traces.tables import make_table

HOUR = 3_600_000_000
DAY = 24 * HOUR


def bundle_of(
    intervals: Mapping[str, Sequence[tuple[int, int]]],
    days: float = 7,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    devices: Mapping[str, Any] | None = None,
    **manifest: Any,
) -> TraceBundle:
    """Devices with these times online (us) in a window of some days, and further tables."""
    ids = list(intervals)
    rows = [(name, a, b) for name, spans in intervals.items() for a, b in spans]
    span = round(days * DAY)
    columns = {
        "device_id": ids,
        "window_start_us": [0] * len(ids),
        "window_end_us": [span] * len(ids),
        "valid": [True] * len(ids),
    }
    values = {"name": "case", "horizon_us": span, "importer": "hand", "importer_version": "1"}
    return TraceBundle(
        Manifest(**{**values, **manifest}),
        {
            "devices": make_table("devices", {**columns, **(devices or {})}),
            "availability": make_table(
                "availability",
                {
                    "device_id": [row[0] for row in rows],
                    "start_us": [row[1] for row in rows],
                    "end_us": [row[2] for row in rows],
                },
            ),
            **{name: make_table(name, values) for name, values in (tables or {}).items()},
        },
    )
