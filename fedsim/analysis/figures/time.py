"""Figures of time and work: how clients spent their time, how much work was lost, how dispatches ended."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.analysis import statistics
from fedsim.analysis.figures.base import (
    MAX_BINS,
    Column,
    Columns,
    Figure,
    columns_of,
    counts_in,
    section,
    shares_within,
    thin,
    time_bins,
)
from fedsim.runs import Run
from fedsim.runs.critical import CAUSES, waiting_by_cause
from fedsim.runs.phases import DISPATCH_PARTS, outcome_codes
from fedsim.vocabulary.formatting import (
    format_bytes,
    format_count,
    format_counted,
    format_duration,
    format_mean_count,
    format_names,
    format_share,
)
from fedsim.vocabulary.outcomes import LOST_LABELS, OUTCOME_LABELS

_PERCENTILES = (5, 50, 90, 95, 99)

PHASE_LABELS = {
    "download": "download",
    "compute": "compute",
    "upload": "upload",
    "paused": "paused while offline",
    "waiting": "waiting",
    "idle": "idle while online",
    "recharging": "recharging",
    "offline": "offline",
}

RARE_PHASES = ("paused", "recharging")
"""Uses of time that are shown only if there are any, because most scenarios have neither."""

_WORK: Columns = (
    ("outcome", "outcome", "text"),
    ("dispatches", "dispatches", "count"),
    ("steps", "local steps", "count"),
    ("bytes", "data moved", "bytes"),
    ("energy_j", "energy", "energy"),
    ("seconds", "client time", "time"),
)


_FASTER = {
    "upload": "uplinks twice as fast",
    "compute": "devices twice as fast",
    "download": "downlinks twice as fast",
}
_COLORS = {
    "deadline": "late",
    "detection": "dropped",
    "aggregation": "waiting",
    "pause": "idle",
    "nobody_online": "offline",
    "too_few_online": "discarded",
}
"""Colors of causes that no phase or outcome is called after, by the phase or outcome that has them elsewhere."""


def waiting(run: Run) -> Figure | None:
    """What the server waited for until its last update, by cause; None without an update."""
    if run.critical is None or not len(run.critical):
        return None
    seconds = waiting_by_cause(run.critical)
    whole, causes = float(seconds.sum()), list(seconds.index)
    shares = [float(share) for share in seconds / whole]
    longest = str(seconds.idxmax())
    finding = (
        f"Of the {format_duration(whole)} until the last server update, {format_share(max(shares))} went to: "
        f"{CAUSES[longest]}."
    )
    likely = sorted(
        (-seconds[cause] / whole / 2, words) for cause, words in _FASTER.items() if cause in causes
    )
    predictions = [
        f"{words}: about -{format_share(-share)}" for share, words in likely if share <= -0.01
    ]
    if predictions:
        finding += f" Predictions, which fedsim what-if checks: {'; '.join(predictions)}."
    return Figure(
        "waiting",
        finding,
        (
            Column("cause", "waiting for", "text", [CAUSES[cause] for cause in causes]),
            Column("seconds", "simulated time", "time", list(seconds)),
            Column("share", "of the time", "share", shares),
        ),
        {"parts": [_COLORS.get(cause, cause) for cause in causes], "shares": shares},
    )


def time_spent(run: Run) -> Figure:
    """Client time by activity."""
    clients = run.clients if run.has_clients else None
    spent = statistics.where_time_went(run.phases, clients)
    spent = {name: s for name, s in spent.items() if s or name not in RARE_PHASES}
    work_s = {name: spent[name] for name in DISPATCH_PARTS if name in spent}
    whole, at_work = sum(spent.values()), sum(work_s.values())
    shares = [seconds / whole if whole else 0.0 for seconds in spent.values()]
    work_shares = [
        work_s[name] / at_work if at_work and name in work_s else np.nan for name in spent
    ]
    finding = "No client was ever dispatched."
    if at_work:
        busiest = max(work_s, key=lambda name: work_s[name])
        waits = ", including the wait for aggregation," if work_s["waiting"] else ","
        finding = (
            f"Of the time clients spent on dispatches{waits} {format_share(work_s[busiest] / at_work)} "
            f"{'was' if busiest == 'paused' else 'went to'} {PHASE_LABELS[busiest]}.{_ends_of_rounds(run)}"
        )
    return Figure(
        "time",
        finding,
        (
            Column("part", "spent on", "text", [PHASE_LABELS[name] for name in spent]),
            Column("seconds", "client time", "time", list(spent.values())),
            *([Column("share", "of all time", "share", shares)] if clients is not None else []),
            Column("work_share", "of time on dispatches", "share", work_shares),
        ),
        {
            "parts": list(spent),
            "shares": shares,
            "work_parts": list(work_s),
            "work_shares": work_shares,
        },
    )


def _ends_of_rounds(run: Run) -> str:
    """A sentence about the rounds that lasted until their deadline, if rounds have one."""
    schedule = section(run, "server", "schedule")
    deadline_s = schedule.get("deadline")
    if (
        schedule.get("name") != "sync"
        or deadline_s is None
        or run.has_edges
        or not len(run.aggregations)
    ):
        return ""
    closed_s = run.aggregations.groupby("round")["time_s"].max()
    # Instants are whole nanoseconds.
    share = float(((closed_s - _began_s(run)).dropna() > deadline_s - 5e-9).mean())
    if not share:
        return " No round lasted until its deadline."
    return f" {format_share(share)} of the rounds lasted until their deadline."


def durations(run: Run) -> Figure | None:
    """Percentiles of the time between server updates and from dispatch to arrival; None if nothing arrived."""
    every = (
        (
            Column("interval_s", "between server updates", "time", ()),
            statistics.update_intervals_s(run.aggregations),
            ("of the server updates followed", "of the previous one or the start of the run"),
        ),
        (
            Column("turnaround_s", "dispatch to arrival", "time", ()),
            statistics.turnaround_s(run.dispatches),
            ("of the updates arrived", "of their dispatch"),
        ),
    )
    known = [row for row in every if len(row[1])]
    if not known:
        return None
    names = ["mean", *("median" if p == 50 else f"{p}%" for p in _PERCENTILES), "longest"]
    return Figure(
        "durations",
        " ".join(f"{shares_within(seconds, *words)}." for _, seconds, words in known),
        (
            Column("statistic", "statistic", "text", names),
            *(
                replace(
                    column, values=[seconds.mean(), *np.percentile(seconds, [*_PERCENTILES, 100])]
                )
                for column, seconds, _ in known
            ),
        ),
    )


def work(run: Run) -> Figure:
    """Work by outcome."""
    by_outcome = statistics.work_by_outcome(run.dispatches, run.phases)
    lost = by_outcome.loc[list(LOST_LABELS)].sum()
    steps, moved = by_outcome["steps"].sum(), by_outcome["bytes"].sum()
    if not (steps and moved):
        finding = "No work was done."
    elif not lost["dispatches"]:
        finding = "No work was lost."
    else:
        finding = (
            f"{format_share(lost['steps'] / steps)} of the local steps and {format_share(lost['bytes'] / moved)} of "
            f"the bytes ({format_bytes(lost['bytes'])}) went into updates that were never aggregated.{_spare(run)}"
        )
    amounts = (("Local steps", by_outcome["steps"]), ("Data moved", by_outcome["bytes"]))
    return Figure(
        "work",
        finding,
        columns_of(by_outcome.reset_index(), _WORK),
        {
            "shares": [
                {"label": label, "shares": (amount / amount.sum()).tolist()}
                for label, amount in amounts
                if amount.sum()
            ]
        },
    )


def _spare(run: Run) -> str:
    """A sentence about late updates that were in time for the deadline, but that over-selection made superfluous."""
    schedule = section(run, "server", "schedule")
    table = run.dispatches
    late = table[table["outcome"] == "late"]
    if not len(late) or (schedule.get("over_selection") or 1) == 1:
        return ""
    waited_s = late["arrived_s"] - late["round"].map(_began_s(run))
    count = int((waited_s <= (schedule.get("deadline") or math.inf)).sum())
    if not count:
        return ""
    return (
        f" {format_count(count)} of {format_counted(len(late), 'late update')} arrived before the deadline, in rounds "
        "that over-selection had filled earlier."
    )


def _began_s(run: Run) -> pd.Series[float]:
    """When each round began."""
    return run.dispatches.groupby("round")["dispatched_s"].min()


def outcomes(run: Run) -> Figure | None:
    """Dispatches by outcome, over the time at which they were sent; None without dispatches."""
    table = run.dispatches
    if not len(table):
        return None
    begun = table["dispatched_s"].to_numpy()
    edges = _intervals(begun, run.simulated_s)
    codes = outcome_codes(table)
    # A dispatch at the very end belongs to the last bin.
    counts = [counts_in(begun[codes == code], edges) for code in range(len(OUTCOME_LABELS))]
    totals = statistics.outcome_counts(table)
    number = len(table)
    finding = (
        f"{format_count(totals['aggregated'])} of {format_count(number)} dispatches "
        f"({format_share(totals['aggregated'] / number)}) were aggregated.{_causes(table)}"
    )
    return Figure(
        "outcomes",
        finding,
        (
            Column("from_s", "from", "time", edges[:-1]),
            Column("to_s", "to", "time", edges[1:]),
            *(
                Column(label, label, "count", counts[code])
                for code, label in enumerate(OUTCOME_LABELS)
                if totals[label] or label == "aggregated"
            ),
        ),
        {"totals": totals},
    )


def _causes(dispatches: pd.DataFrame) -> str:
    """A sentence about the causes of drops; empty if none was recorded."""
    counts = statistics.cause_counts(dispatches)
    causes = [f"{cause} {format_count(count)}" for cause, count in counts.items()]
    return f" Causes of drops: {format_names(causes)}." if causes else ""


def _intervals(begun_s: npt.NDArray[np.float64], duration_s: float) -> npt.NDArray[np.float64]:
    """Edges of the intervals of time in which dispatches are counted.

    If many clients are dispatched at once, as in rounds, an interval goes from one such moment to the next (or to a
    later one): bins of equal width would hold one, two or no rounds.

    Args:
        begun_s: when each dispatch was handed out.
        duration_s: duration of the run.
    """
    moments, counts = np.unique(begun_s, return_counts=True)
    # A few dispatches between two rounds are not a round.
    many = counts >= max(float(np.median(np.repeat(counts, counts))) / 4, 2.0)
    if many.sum() < 2 or counts[many].sum() < 0.9 * len(begun_s):
        return time_bins(duration_s)
    starts = moments[many][:: math.ceil(many.sum() / MAX_BINS)]
    # Dispatches before the first such moment belong to it.
    starts[0] = 0.0
    return np.append(starts, max(duration_s, np.nextafter(starts[-1], np.inf)))


def online(run: Run) -> Figure | None:
    """Clients online, and clients working, over simulated time; None if neither is known."""
    table = run.online
    if table is not None and len(table):
        rows = thin(len(table))
        times = table["time_s"].to_numpy()[rows]
        present = table["online"].to_numpy()[rows]
        low, high = int(table["online"].min()), int(table["online"].max())
        finding = (
            f"Between {format_count(low)} and {format_count(high)} clients were online at any time."
            if low < high
            else f"{format_counted(low, 'client')} {'was' if low == 1 else 'were'} online all the time."
        )
        columns = [Column("online", "online", "count", present)]
    else:
        times = np.unique(np.linspace(0.0, run.simulated_s, 400))
        finding = "The number of clients online was not recorded."
        columns = []
    peak, means = statistics.at_work(run.dispatches, run.pauses, times)
    working = np.append(means, np.nan)
    mean = float(np.nanmax(working, initial=0.0))
    if not peak and not columns:
        return None
    return Figure(
        "online",
        f"{finding} At most {format_counted(peak, 'client')} {'was' if peak == 1 else 'were'} working at once; "
        f"the curve shows means and peaks at {format_mean_count(mean)}.",
        (
            Column("time_s", "simulated time", "time", times),
            *columns,
            Column("working", "working, on average", "mean", working),
        ),
    )
