"""Rows of Failure Trace Archive tables, as tests write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsim.traces.exporters import registry as exporters

MIDNIGHT = 1136073600  # 2006-01-01, a Sunday


def row(
    node: int,
    type_: int | str,
    start: float | str,
    stop: float | str,
    reason: str = "NULL",
    *,
    component: int = 1,
    platform: int = 1,
) -> str:
    times = [
        f"{MIDNIGHT + time:.3f}" if isinstance(time, float | int) else time
        for time in (start, stop)
    ]
    return "\t".join(
        map(str, ["0", component, node, platform, f"host{node}", type_, *times, reason])
    )


HEADER = (
    "event_id\tcomponent_id\tnode_id\tplatform_id\tnode_name\tevent_type\t"
    "event_start_time\tevent_stop_time\tevent_end_reason"
)


def export(bundle: Any, path: Path, **options: Any) -> tuple[list[list[str]], dict[str, int]]:
    exporter = exporters()["fta"]
    counts = exporter.write(bundle, path, exporter.Params(**options))
    lines = path.read_text().splitlines()
    assert lines[0] == "# " + HEADER
    return [line.split("\t") for line in lines[1:]], counts
