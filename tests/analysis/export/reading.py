"""Readers of exported runs that share no code with the writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_trace(path: Path) -> list[dict[str, Any]]:
    """The events of a Chrome trace."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    document = json.loads(path.read_text(), parse_constant=refuse)
    assert document["displayTimeUnit"] in ("ms", "ns")
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def check_format(events: list[dict[str, Any]]) -> dict[tuple[int, int], int]:
    """Hold a trace against the Trace Event Format (Google, 2016); how deep each track is.

    Beyond the format: viewers take track 0, or one with its process's number, for the process itself, and process 2
    for the kernel; slices of a track must lie inside or beside each other, those outside first.
    """
    named: dict[str, set[tuple[int, ...]]] = {"process_name": set(), "thread_name": set()}
    open_until: dict[tuple[int, int], list[int]] = {}
    depth: dict[tuple[int, int], int] = {}
    slices = []
    for event in events:
        assert event["name"]
        assert type(event["pid"]) is int
        assert event["pid"] not in (0, 2)
        track = (event["pid"], event.get("tid", -1))
        if event["ph"] == "M":
            kinds = {"process_name", "thread_name", "process_sort_index", "thread_sort_index"}
            assert event["name"] in kinds
            (value,) = event["args"].values()
            assert type(value) is (int if event["name"].endswith("index") else str)
            if event["name"] in named:
                key = track if event["name"] == "thread_name" else track[:1]
                assert key not in named[event["name"]]
                named[event["name"]].add(key)
            continue
        assert (event["pid"],) in named["process_name"]
        assert event["ts"] >= 0
        if event["ph"] == "C":
            assert all(type(value) in (int, float) for value in event["args"].values())
            continue
        assert event["ph"] == "X"
        assert event["cat"]
        assert event["tid"] not in (0, event["pid"])
        assert track in named["thread_name"]
        slices.append((round(event["ts"] * 1000), -round(event["dur"] * 1000), len(slices), track))
    # The sort is stable: of slices that begin and end together, the one that comes first is outside.
    for begin, negative, _, track in sorted(slices):
        assert negative <= 0
        end = begin - negative
        around = open_until.setdefault(track, [])
        while around and around[-1] <= begin and not (negative == 0 and around[-1] == begin):
            around.pop()
        assert not around or end <= around[-1], f"{track} at {begin} ns"
        around.append(end)
        depth[track] = max(depth.get(track, 0), len(around))
    return depth
