"""Rows of Failure Trace Archive tables, as tests write them."""

from __future__ import annotations

from pathlib import Path

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


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path
