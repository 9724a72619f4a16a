"""Availability from a log of changes of states and a rule that says in which states a device is available."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsim.traces.eligibility import Rule, held
from fedsim.traces.importers._assemble import observed_tables
from fedsim.traces.intervals import Intervals
from fedsim.traces.tables import Ints, run_starts


def observed_changes(
    ids: Sequence[str],
    device: Ints,
    time_us: Ints,
    codes: Mapping[str, Ints],
    rule: Rule,
    initial: Mapping[str, int],
    end_us: int | None,
    counts: dict[str, int],
    **columns: Any,
) -> tuple[dict[str, Any], Intervals]:
    """Tables ``devices`` and ``availability`` of a log of changes, and the intervals.

    A state lasts until the device's next row that changes it; of rows at the same time, the later one counts. A device
    is observed from time 0, or from the first row after which its states always decide the rule, to ``end_us`` or its
    last row; it is invalid if no time lies between.

    Args:
        ids: names of the devices.
        device: device row of each change, in the order of the source.
        time_us: its time.
        codes: the state of each key after it, -1 if it does not change; for every key of the rule.
        rule: when a device is available.
        initial: states at time 0; keys that are absent are unknown.
        end_us: end of the observation of all devices; None: the last row of each.
        counts: receives ``out_of_order``, ``repeated_states`` (rows that change nothing), ``after_window``,
            ``not_observed`` (devices), ``open_at_end`` (devices that become available with their last row) and those of
            :func:`~fedsim.traces.importers._assemble.observed_tables`.
        columns: other columns of ``devices``.
    """
    late = np.zeros(len(device), np.bool_) if end_us is None else time_us >= end_us
    counts["after_window"] = int(np.count_nonzero(late))
    out_of_order = (device[1:] == device[:-1]) & (time_us[1:] < time_us[:-1])
    disorder = int(np.count_nonzero(out_of_order))
    # A row at time 0 that changes nothing has the initial states.
    present = np.unique(device)
    device, time_us = device[~late], time_us[~late]
    device = np.append(present, device)
    time_us = np.append(np.zeros(len(present), np.int64), time_us)
    order = np.lexsort((time_us, device))
    device, time_us = device[order], time_us[order]
    states = {}
    for key in rule.keys:
        code = np.append(np.full(len(present), -1), codes[key][~late])[order]
        states[key] = held(device, code, initial.get(key, -1))
    changed = run_starts(device, *states.values())
    counts["repeated_states"] = int(np.count_nonzero(~changed))
    value = rule.holds(states)

    last = np.append(run_starts(device, time_us)[1:], True)
    device, time_us, value = device[last], time_us[last], value[last]
    rows = np.arange(len(device))
    begin, stop = (np.searchsorted(device, np.arange(len(ids)), side) for side in ("left", "right"))
    undecided = np.flatnonzero(value == 0)
    begin[device[undecided]] = undecided + 1
    window = np.zeros((2, len(ids)), np.int64)
    decided = np.flatnonzero(begin < stop)
    window[0, decided] = np.maximum(time_us[begin[decided]], 0)
    window[1, decided] = time_us[stop[decided] - 1] if end_us is None else end_us
    valid = window[1] > window[0]
    window[:, ~valid] = 0
    counts["not_observed"] = int(np.count_nonzero(~valid))

    turns = rows[run_starts(device, value == 1)]
    # A device's last state lasts until the end of its window.
    following = np.append(turns[1:], 0)
    ends = np.where(
        np.append(run_starts(device[turns])[1:], True), window[1, device[turns]], time_us[following]
    )
    on = (value[turns] == 1) & valid[device[turns]]
    opens = on & (ends == time_us[turns])
    counts["open_at_end"] = int(np.count_nonzero(opens))
    on &= ~opens
    tables, intervals = observed_tables(
        ids,
        device[turns[on]],
        time_us[turns[on]],
        ends[on],
        (window[0], window[1]),
        counts,
        valid=valid,
        **columns,
    )
    counts["out_of_order"] = disorder
    return tables, intervals
