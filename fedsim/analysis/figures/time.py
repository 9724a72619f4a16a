"""Figures of time and work: how clients spent their time, how much work was lost, how dispatches ended."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis import statistics
from fedsim.analysis.figures.base import (
    MAX_BINS,
    Column,
    Columns,
    Figure,
    columns_of,
    counts_in,
    drawn_as_lines,
    section,
    sentence,
    shares_within,
    time_bins,
)
from fedsim.analysis.figures.learning import targets
from fedsim.analysis.figures.lines import cumulative, places
from fedsim.runs import Run
from fedsim.runs.critical import CAUSES, Saving, critical_path, saving, seconds_of, waiting_by_cause
from fedsim.runs.phases import DISPATCH_PARTS, outcome_codes
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.formatting import (
    format_bytes,
    format_command,
    format_count,
    format_counted,
    format_duration,
    format_energy,
    format_names,
    format_share,
)
from fedsim.vocabulary.outcomes import LOST_LABELS, OUTCOME_LABELS

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
_CHANGES: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    ("uplinks twice as fast", ("upload",), "devices.network.up", "2x"),
    ("downlinks twice as fast", ("download",), "devices.network.down", "2x"),
    ("links twice as fast", ("download", "upload"), "devices.network.rate_factor", "2x"),
    *(
        ("devices twice as fast", ("compute",), f"devices.compute.{key}", factor)
        for key, factor in (
            *((key, "0.5x") for key in ("step", "median", "mean")),
            *((key, "2x") for key in ("flops_per_s", "speed_factor")),
        )
    ),
    ("halving the deadline", ("deadline",), "server.schedule.deadline", "0.5x"),
    ("halving the pause between rounds", ("pause",), "server.schedule.pause", "0.5x"),
    ("aggregation twice as fast", ("aggregation",), "server.aggregation_time", "0.5x"),
    ("failures detected twice as fast", ("detection",), "server.failure_detection", "0.5x"),
)
"""Changes that halve causes of waiting, with the setting and its factor; the first that fits a cause is taken."""
_MOST_CHANGES, _LEAST_SHARE, _LEAST_ERROR, _SAME_S, _NOTABLE_AFTER = 3, 0.01, 0.0005, 1e-6, 0.1
_COLORS = {
    "deadline": "late",
    "detection": "dropped",
    "aggregation": "waiting",
    "pause": "idle",
    "nobody_online": "offline",
    "too_few_online": "discarded",
    "selection": "idle",
}
"""Colors of causes that no phase or outcome is called after, by the phase or outcome that has them elsewhere."""


def waiting(run: Run) -> Figure | None:
    """What the server waited for until the target, if it was reached earlier, and until the last update, by cause.

    None without an update. ``extra`` has the changes that are predicted to save most.
    """
    if run.critical is None or waiting_by_cause(run.critical).empty:
        return None
    paths = {"the last server update": run.critical}
    if (reached := reached_target(run)) and reached[1] < len(run.aggregations):
        paths = {reached[0]: critical_path(run, reached[1]), **paths}
    spent = {until: waiting_by_cause(path) for until, path in paths.items()}
    until, seconds = next(iter(spent.items()))
    whole = float(seconds.sum())
    path, most = paths[until], [str(seconds.idxmax())]
    # What halves both of them may help most.
    both = seconds.reindex(["download", "upload"]).dropna()
    if most[0] not in both and both.sum() > seconds.max():
        most = both.index.tolist()
    words = CAUSES | ({"compute": "rounds of an edge server"} if run.has_edges else {})
    largest = format_share(seconds[most].sum() / whole)
    finding = f"Of the {format_duration(whole)} until {until}, {largest} "
    causes = [cause for cause in CAUSES if any(cause in each.index for each in spent.values())]
    columns = [Column("cause", "waiting for", "text", [words[cause] for cause in causes])]
    bars = []
    for number, (end, each) in enumerate(spent.items()):
        every = each.reindex(causes)
        shares = every / every.sum()
        after = f"_{number}" if number else ""
        columns.append(Column(f"seconds{after}", f"until {end}", "time", every.tolist()))
        columns.append(Column(f"share{after}", "share", "share", shares.tolist()))
        bars.append({"label": f"Simulated time until {end}", "shares": shares.fillna(0).tolist()})
    parts = [_COLORS.get(cause, cause) for cause in causes]
    changes = predicted_changes(run, path)
    setting = section(run, "server", "schedule").get("pause")
    if most == ["pause"] and isinstance(setting, int | float):
        length = format_duration(float(setting))
        finding += f"was the configured pause of {length} between rounds"
    else:
        finding += f"went to: {format_names([words[cause] for cause in most])}"
    if (client := _pacemaker(path, most)) is not None:
        who = f"{'edge server' if run.has_edges else 'client'} {client}"
        paced = path["dispatch_id"][path["client_id"] == client].nunique()
        finding += f", most of it by {who}"
        if run.has_rounds:
            rounds = int(run.aggregations["time_s"].le(whole + 1e-6).sum())
            pace = f"{'all' if paced >= rounds else f'{format_count(paced)} of'} {format_count(rounds)}"
            finding += f", which set the pace of {pace} rounds"
        if (change := _without(run, path, client)) is not None:
            # The client is first unless another change saves more than twice as much.
            rest = [each for each in changes if each["share"] > 2 * change["share"]]
            changes = [*rest, change, *changes[len(rest) :]][:_MOST_CHANGES]
    finding += "."
    if not reached and (after_s := run.simulated_s - whole) > _NOTABLE_AFTER * run.simulated_s:
        finding += f" No update came in the {format_duration(after_s)} after it."
    extra = {"parts": parts, "bars": bars, "changes": changes}
    return Figure("waiting", finding, tuple(columns), extra)


def reached_target(run: Run) -> tuple[str, int] | None:
    """The first target of the scenario that was reached, in words, and the version that reached it."""
    for name, value in targets(run).items():
        time_s = run.time_to(name, value) if name in run.metrics else math.nan
        if math.isfinite(time_s):
            version = run.metrics["version"][run.metrics["time_s"] == time_s].iloc[0]
            goal = run.metric_definition(name).format_target(value)
            return (goal, int(version)) if version else None
    return None


def _pacemaker(path: pd.DataFrame, causes: list[str]) -> int | None:
    """The client with most of the time that a critical path spends on causes, if this is one of several clients."""
    spent = path.assign(seconds=path["to_s"] - path["from_s"])[path["cause"].isin(causes)]
    by_client = spent.groupby("client_id")["seconds"].sum()
    client = int(by_client.index.to_numpy()[by_client.to_numpy().argmax()])
    return client if client >= 0 and by_client.max() > 0.5 * by_client.sum() else None


def _without(run: Run, path: pd.DataFrame, client: int) -> dict[str, Any] | None:
    """The change that keeps a client out, as of :func:`predicted_changes`: each round ends with its last update of the
    others. It is at most that if the selection may choose another client instead. None without rounds."""
    used = run.dispatches.dropna(subset=["aggregated_version", "arrived_s"])
    used = used[used["arrived_s"] <= path["to_s"].iloc[-1]]
    over_selection = section(run, "server", "schedule").get("over_selection") or 1
    if run.has_edges or not run.has_rounds or over_selection != 1:
        return None
    ends_s = used.groupby("aggregated_version")["arrived_s"].max()
    others = used[used["client_id"] != client].groupby("aggregated_version")
    saved_s = (ends_s - others["arrived_s"].max()).sum()
    share = float(saved_s / path["to_s"].iloc[-1])
    cohort = section(run, "server", "selection").get("cohort")
    everybody = cohort is None or used.groupby("round").size().max() < cohort
    return (
        {
            "change": f"leaving out client {client}",
            "effect": f"{'about' if everybody else 'at most'} −{_percent(share, share)}",
            "share": share,
            "least": share if everybody else 0.0,
            "most": share,
            "command": format_command("what-if", run.path, "--without-clients", client),
        }
        if share >= _LEAST_SHARE
        else None
    )


def predicted_changes(run: Run, path: pd.DataFrame) -> list[dict[str, Any]]:
    """The changes that would save most of a critical path's time, each the half of a cause (:func:`saving`): the
    ``change`` and its predicted ``effect`` in words, the ``share`` of the time that it saves (0 if its error is
    larger), its ``least`` and ``most``, and the ``command`` that tries it.

    A setting that a note of the run warns about is left as it is. With edge servers, there are changes of their links
    and of the clients' work in their rounds.
    """
    noted = {note.partition(":")[0] for note in run.info.get("notes", ())}
    spent = waiting_by_cause(path)
    changes: list[dict[str, Any]] = []
    for of_edges in (False, True)[: 1 + run.has_edges]:
        in_rounds = run.has_edges and not of_edges
        taken = set[str]()
        for words, causes, setting, factor in _CHANGES:
            if in_rounds and not setting.startswith("devices."):
                continue
            if of_edges:
                if "compute" in causes:
                    continue  # a round of an edge server is more than the steps of its clients
                setting = setting.replace("devices.network", "server.edges.network")
                words = words.replace("links twice", "links of edge servers twice")
            *above, key = setting.split(".")
            value = section(run, *above).get(key)
            numbers = value if isinstance(value, list) else [value]
            if taken & {*causes} or not all(type(each) in (int, float) for each in numbers):
                continue
            taken |= {*causes}
            if setting in noted or not (in_rounds or spent.reindex(causes).any()):
                continue
            saved = (_saving_in_rounds if in_rounds else saving)(run, path, causes)
            if saved.share < _LEAST_SHARE:
                continue
            share, effect = saved.share, "not predictable from this run"
            # A bound includes its error.
            if saved.error > share - saved.error * saved.is_bound:
                share = 0.0
            else:
                effect = f"{'at most' if saved.is_bound else 'about'} −{_percent(share, share)}"
                if saved.error > _LEAST_ERROR and not saved.is_bound:
                    effect += f" ± {_percent(saved.error, share)}"
            command = format_command("what-if", run.path, "-s", f"{setting}={factor}")
            ends = {"least": 0.0, "most": saved.share}
            if not saved.is_bound:
                ends = {"least": saved.share - saved.error, "most": saved.share + saved.error}
            changes.append(
                {"change": words, "effect": effect, "share": share, **ends, "command": command}
            )
    return sorted(changes, key=lambda change: -change["share"])[:_MOST_CHANGES]


def _percent(value: float, share: float) -> str:
    """A share of the time, or its error, as finely as a prediction of the share deserves."""
    return f"{100 * value:.{0 if share >= 0.1 else 1}f}%"


def _saving_in_rounds(run: Run, path: pd.DataFrame, causes: Collection[str]) -> Saving:
    """What it saves at most to halve causes in the work of clients: each round of an edge server on a critical path
    ends with the last of its updates."""
    used = run.dispatches.dropna(subset=["aggregated_version", "arrived_s"])
    halves_s = used[[f"{cause}_s" for cause in causes]].sum(axis=1) / 2
    ends = used.assign(shorter_s=used["arrived_s"] - halves_s)
    rounds = ends.groupby(["edge", "aggregated_version"])[["arrived_s", "shorter_s"]].max()
    stretches = path[path["cause"] == "compute"].sort_values("from_s")
    on_path = pd.merge_asof(
        rounds.reset_index().astype({"edge": np.int64}).sort_values("arrived_s"),
        stretches.astype({"client_id": np.int64}),
        left_on="arrived_s",
        right_on="from_s",
        left_by="edge",
        right_by="client_id",
    )
    on_path = on_path[on_path["arrived_s"] <= on_path["to_s"] + _SAME_S]
    saved_s = float((on_path["arrived_s"] - on_path["shorter_s"]).sum())
    return Saving(saved_s / float(path["to_s"].iloc[-1]), 0.0, is_bound=True)


def time_spent(run: Run) -> Figure:
    """Client time by activity."""
    clients = run.clients if run.has_clients else None
    spent = statistics.where_time_went(run.work_phases, clients)
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
            Column("work_share", "of dispatches", "share", work_shares),
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
    has_rounds = schedule.get("name") == "sync" and not run.has_edges
    if not has_rounds or deadline_s is None or not len(run.aggregations):
        return ""
    closed_s = run.aggregations.groupby("round")["time_s"].max()
    # Instants are whole nanoseconds.
    share = float(((closed_s - _began_s(run)).dropna() > deadline_s - 5e-9).mean())
    if not share:
        return " No round lasted until its deadline."
    return f" {format_share(share)} of the rounds lasted until their deadline."


def durations(run: Run) -> Figure | None:
    """The distribution of the time between server updates and from dispatch to arrival; None if nothing arrived."""
    every = (
        (
            "between server updates",
            statistics.update_intervals_s(run.aggregations),
            ("of the server updates followed", "of the previous one or the start of the run"),
        ),
        (
            "dispatch to arrival",
            statistics.turnaround_s(run.dispatches),
            ("of the updates arrived", "of their dispatch"),
        ),
    )
    known = [(label, seconds, words) for label, seconds, words in every if len(seconds)]
    if not known:
        return None
    x = places([seconds for _, seconds, _ in known], log=True, times=True)
    shares = (Column(label, label, "share", cumulative(each, x)) for label, each, _ in known)
    dashes = (
        {"key": label, "dash": dash} for (label, *_), dash in zip(known, ([], [4, 2]), strict=False)
    )
    return Figure(
        "durations",
        " ".join(f"{shares_within(seconds, *words)}." for _, seconds, words in known),
        (Column("at_most_s", "at most", "time", x), *shares),
        drawn_as_lines(*dashes, unit="share at most this long", log=True, label="duration"),
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
    others = run.work[run.work["outcome"].isna()]
    if len(others):
        moved = others["bytes_down"].sum() + others["bytes_up"].sum()
        finding += (
            f" {format_counted(len(others), 'message')} without training moved another {format_bytes(moved)} and "
            f"took another {format_energy(others['energy_j'].sum())}."
        )
    occurred = by_outcome[(by_outcome["dispatches"] > 0) | (by_outcome.index == "aggregated")]
    return Figure("work", finding, columns_of(occurred.reset_index(), _WORK))


def _spare(run: Run) -> str:
    """A sentence about late updates that were in time for the deadline, but that over-selection made superfluous."""
    schedule = section(run, "server", "schedule")
    table = run.dispatches
    late = table[table["outcome"] == "late"]
    if not len(late) or (schedule.get("over_selection") or 1) == 1:
        return ""
    waited_s = late["arrived_s"] - late["round"].map(_began_s(run))
    count = int((waited_s <= (seconds_of(schedule.get("deadline")) or math.inf)).sum())
    if not count:
        return ""
    return (
        f" {format_count(count)} of {format_counted(len(late), 'late update')} arrived before the deadline, in rounds "
        "that over-selection had filled earlier."
    )


def _began_s(run: Run) -> pd.Series[float]:
    return run.dispatches.groupby("round")["dispatched_s"].min()


_VECTORS: Columns = (
    ("direction", "direction", "text"),
    ("vector", "vector", "text"),
    ("compression", "compression", "text"),
    ("bytes_raw", "without compression", "bytes"),
    ("bytes", "as sent", "bytes"),
    ("share", "share", "share"),
    ("total", "in the run", "bytes"),
)


def vectors(run: Run) -> Figure | None:
    """Bytes of the vectors of a dispatch, without compression and as sent; None if nothing is compressed."""
    table = pd.DataFrame(run.info.get("vectors", []))
    if table.empty or (table["bytes"] == table["bytes_raw"]).all():
        return None
    table["bytes_raw"] = table["bytes_raw"].clip(lower=1)
    table["share"] = table["bytes"] / table["bytes_raw"]
    table["total"] = [_total(run, row) for _, row in table.iterrows()]
    sizes = table.groupby("direction", sort=False)[["bytes_raw", "bytes"]].sum()
    whole = " of the whole model" if run.info.get("parts") else ""
    finding = format_names(
        [
            f"{'a compressed download' if way == 'down' else 'an upload'}{whole} has {format_bytes(size['bytes'])}, "
            f"{format_share(size['bytes'] / size['bytes_raw'])} of its size without compression"
            for way, size in sizes.iterrows()
            if size["bytes"] != size["bytes_raw"]
        ]
    )
    return Figure("vectors", f"{sentence(finding)}.", columns_of(table, _VECTORS))


def _total(run: Run, vector: pd.Series) -> float:
    """Bytes of a vector in all dispatches: its share of the bytes of each, which may have been cut off."""
    way = vector["direction"]
    first, usual = run.entry("bytes_down_first_dispatch"), run.entry(f"bytes_{way}_per_dispatch")
    is_first = (run.dispatches["sequence"] == 0) & (way == "down")
    sent = run.dispatches[f"bytes_{way}"]
    of_first = sent[is_first].sum() * vector["bytes_first"] / first
    return float(of_first + sent[~is_first].sum() * vector["bytes"] / usual)


def outcomes(run: Run) -> Figure | None:
    """Dispatches by outcome, over the time at which they were sent; None without dispatches."""
    table = run.dispatches
    if not len(table):
        return None
    begun, edges = table["dispatched_s"].to_numpy(), _intervals(run)
    codes = outcome_codes(table)
    # A dispatch at the very end belongs to the last bin.
    counts = [counts_in(begun[codes == code], edges) for code in range(len(OUTCOME_LABELS))]
    totals = statistics.outcome_counts(table)
    number = len(table)
    counted = table["cause"].value_counts()
    causes = [f"{cause} {format_count(count)}" for cause, count in counted[counted > 0].items()]
    dropped = f" Causes of drops: {format_names(causes)}." if causes else ""
    finding = (
        f"{format_count(totals['aggregated'])} of {format_count(number)} dispatches "
        f"({format_share(totals['aggregated'] / number)}) were aggregated.{dropped}"
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
        {"bins": "simulated time", "counted": "dispatches", "totals": totals},
    )


def _intervals(run: Run) -> Floats:
    """Edges of the intervals of time in which dispatches are counted.

    If many clients are dispatched at once, as in rounds, an interval goes from one such moment to the next (or to a
    later one): bins of equal width would hold one, two or no rounds. Edge servers have rounds at different times.
    """
    begun_s, duration_s = run.dispatches["dispatched_s"].to_numpy(), run.simulated_s
    if run.has_edges or not len(begun_s):
        return time_bins(duration_s)
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
    # Between the starts of rounds, if there are any: means over other intervals would zigzag.
    edges = _intervals(run)
    columns, drawn = [], []
    finding = "The number of clients online was not recorded."
    if table is not None and len(table):
        low, high = int(table["online"].min()), int(table["online"].max())
        finding = (
            f"Between {format_count(low)} and {format_count(high)} clients were online at any time."
            if low < high
            else f"{format_counted(low, 'client')} {'was' if low == 1 else 'were'} online all the time."
        )
        since_s, count = table["time_s"].to_numpy(), table["online"].to_numpy()
        client_s = np.append(0.0, np.cumsum(count[:-1] * np.diff(since_s)))
        until_s = np.append(since_s, max(edges[-1], since_s[-1] + 1.0))
        client_s = np.append(client_s, client_s[-1] + count[-1] * (until_s[-1] - since_s[-1]))
        means = np.diff(np.interp(edges, until_s, client_s)) / np.diff(edges)
        columns = [Column("online", "online, on average", "mean", np.append(means, means[-1]))]
        if np.ptp(means):  # The sentence gives a number that never changes.
            drawn = [
                {"key": "online", "color": "online", "fill": True, "plain": True, "step": True}
            ]
    peak, means = statistics.at_work(run.work, run.pauses, edges)
    working = np.append(means, means[-1:])
    mean = float(np.nanmax(working, initial=0.0))
    if not peak and not columns:
        return None
    began_s = run.info.get("time_of_day_s")
    hour, hours = (began_s or 0.0) / 3600, run.simulated_s / 3600
    # If all of the run is at night, shading it would say nothing.
    has_night = began_s is not None and not 6 <= hour <= 22 - hours and (hour + 2) % 24 + hours > 8
    return Figure(
        "online",
        f"{finding} At most {format_counted(peak, 'client')} {'was' if peak == 1 else 'were'} working at once; "
        f"the averages that the curve shows are at most {format_count(mean)}.",
        (
            Column("time_s", "simulated time", "time", np.minimum(edges, run.simulated_s)),
            *columns,
            Column("working", "working, on average", "mean", working),
        ),
        {
            "time_of_day_s": began_s if has_night else None,
            **drawn_as_lines(
                *drawn,
                {"key": "working", "color": "working", "step": True},
                unit="clients",
                kind="count",
                zero=True,
            ),
        },
    )
