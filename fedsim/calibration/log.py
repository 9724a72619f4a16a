"""Logs of real runs: one row per dispatch, from a table or a run folder; and what their rounds show."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from fedsim.calibration.clock import FAR_DATES, Clock, instants
from fedsim.errors import UserError, nearest, raise_all
from fedsim.files import cells
from fedsim.files.frames import Frame, TableFile, first_of
from fedsim.files.lines import as_table
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.tables import run_starts
from fedsim.units import LONGEST_S
from fedsim.vocabulary.formatting import (
    format_count,
    format_counted,
    format_duration,
    format_names,
    natural_order,
)
from fedsim.vocabulary.outcomes import OUTCOME_LABELS, Outcome

_DECLARED = """
client: client client_id client_name device device_id | name | name of the client
start_s: start start_s dispatched dispatched_s | instant | dispatch by the server
downloaded_s: downloaded downloaded_s download_end download_end_s | instant | end of the download
computed_s: computed computed_s compute_end compute_end_s | instant | end of the local steps
end_s: end end_s arrived arrived_s upload_end upload_end_s | instant |
    arrival of the update at the server; empty if it never arrived
ended_s: ended ended_s | instant | end of a dispatch without an arrival
steps: steps steps_done local_steps | number | local steps done
bytes_down: bytes_down download_bytes | number | bytes that the client received
bytes_up: bytes_up upload_bytes | number | bytes that the client sent
round: round server_round | whole | round, or version of the model that was dispatched
outcome: outcome | outcome | what became of the update
download_s: download_s | number | seconds of the download, without pauses
compute_s: compute_s | number | seconds of the local steps, without pauses
upload_s: upload_s | number | seconds of the upload, without pauses
"""


class Column(NamedTuple):
    """A column of the format: its spellings, the first of which is its name; what its cells are; what it means."""

    spellings: Sequence[str]
    cell: str
    meaning: str


FORMAT = {
    name: Column(spellings.split(), cell, meaning)
    for name, spellings, cell, meaning in re.findall(
        r"^(\w+): (.+?) \| (\w+) \|\s+(.+)$", _DECLARED, re.MULTILINE
    )
}
"""The format of a log, a stable one: columns may be added, none is renamed or changes its meaning."""
NAMES = {name: column.spellings for name, column in FORMAT.items()}
COLUMNS = ", ".join(spellings[0] for spellings in NAMES.values())
_REQUIRED = ("client", "start_s", "end_s")
WORK = {
    "download_s": ("start_s", "downloaded_s"),
    "compute_s": ("downloaded_s", "computed_s"),
    "upload_s": ("computed_s", "end_s"),
}
"""Seconds of work in each phase, without pauses while offline, and the instants between which the phase lies."""
_PHASES = ("start_s", "downloaded_s", "computed_s", "end_s")
INSTANTS = (*_PHASES, "ended_s")
_ROUNDING_S = 1e-6
_OR_EMPTY = "or leave it empty if it is unknown"
_EXACT = cells.Bounds(-(2**53), 2**53, words="between 0 and 2^53")
"""The whole numbers that floats hold exactly, as tables do; negative ones are refused later."""
_COARSE = 10
"""Resolutions of the clock below which a median time is flagged."""
_UNDELIVERED = (Outcome.DROPPED.label, Outcome.CUT.label, Outcome.UNFINISHED.label)
_NEARLY = 0.99
"""Rounds that last at least this share of the rounds with late updates are taken to end at the timeout, too."""
_LONG = 10.0
"""Median rounds above which the time until the next one is a pause."""
IN_TIME = (Outcome.AGGREGATED.label, Outcome.DISCARDED.label)
_MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""Standard error of a median relative to that of a mean, for normal values."""


@dataclass(frozen=True)
class Log:
    """A log as it was read.

    Attributes:
        dispatches: one row per dispatch; its ``client`` is the name in the log.
        named_by: the column of the log that names the clients, as the log spells it.
        origin_s: the first start on the log's clock.
        clock: the clock of its instants.
        flags: statements about how the log was read.
    """

    dispatches: pd.DataFrame
    named_by: str
    origin_s: float
    clock: Clock
    flags: tuple[str, ...]

    def clients(self) -> list[str]:
        """The names of the clients, numbers in their order."""
        return sorted(self.dispatches["client"].cat.categories, key=natural_order)


def numbered(dispatches: pd.DataFrame, clients: Sequence[str]) -> pd.DataFrame:
    """Dispatches whose ``client`` is the number of its name in ``clients``, instead of the name."""
    result = dispatches.copy(deep=False)
    numbers = dispatches["client"].cat.set_categories(clients).cat.codes
    result["client"] = numbers.astype(np.int64)
    return result


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one row of a log, with the first spelling of each column."""
    cells_of: dict[str, dict[str, Any]] = {
        "name": {"type": ["string", "integer"], "minLength": 1},
        "instant": {"type": ["number", "string", "null"]},
        "number": {"type": ["number", "null"], "minimum": 0},
        "whole": {"type": ["integer", "null"], "minimum": 0},
        "outcome": {"enum": [*OUTCOME_LABELS, None]},
    }
    properties = {
        column.spellings[0]: {"description": column.meaning, **cells_of[column.cell]}
        for column in FORMAT.values()
    }
    properties["start"]["type"] = ["number", "string"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A dispatch in the log of a federated run",
        "type": "object",
        "properties": properties,
        "required": [FORMAT[name].spellings[0] for name in _REQUIRED],
    }


def read_log(path: Path, *, every_row: bool = False) -> Log:
    """Read a log: its dispatches in order of their start, with columns as in :data:`COLUMNS`.

    Instants are seconds from the first start; values that the log does not give are NaN. ``client`` and ``outcome`` are
    categories. ``end`` is the arrival of the update. If the log has no column ``ended``, the ``end`` of a dispatch that
    was dropped, cut or unfinished is when it ended without an arrival, and becomes its ``ended``. The seconds of work
    in a phase that was completed are the time between its instants if the log does not give them.

    Args:
        path: the log: a table or a run folder.
        every_row: errors name the first twenty wrong rows of each kind and the number of the others, instead of the
            first one and their number. Cells that cannot be read come first: what compares cells is checked once all
            can be read.
    """
    is_run = (path / "run.json").exists()
    if is_run:
        from fedsim.analysis.run import load_run

        table = load_run(path).dispatches.to_parquet(index=False)
        sources = [(SourceFile("dispatches", f"{path}, dispatches", table), "")]
    elif path.exists() and not path.is_dir():  # It may be a pipe.
        sources = [as_table(source) for source in Sources([path])]
    else:
        hint = "give a table (CSV, Parquet, JSON lines, ...) with one row per dispatch, or a run folder"
        raise UserError("there is no such log", where=path, hint=hint)
    frame = Frame([TableFile(source) for source, _ in sources])
    column = spelled(NAMES, frame)
    for name in (each for each in _REQUIRED if each not in column):
        hint = f"{nearest(name[:-2], frame.names)}it needs client, start and end; the other columns improve the"
        hint += f" estimates: {COLUMNS}"
        lists = ", ".join(each for file in frame.files for each in file.nested)
        hint += f"; lists are left out ({lists}): write one row per dispatch" if lists else ""
        frame.require_header()
        raise UserError(f"the log has no column {NAMES[name][0]}", where=frame.where, hint=hint)
    frame.require_in_all([column[name] for name in _REQUIRED])
    frame.require_values([each for every in NAMES.values() for each in every])
    frame.mistakes = {} if every_row else None
    frame.load(column.values(), [column[each] for each in ("client", "outcome") if each in column])
    log = pd.DataFrame(index=range(len(frame)))
    for name in ("client", "outcome"):
        none = np.full(len(frame), -1), list[str]()
        read = frame.ids if name == "client" else frame.text
        codes, words = read(column[name]) if name in column else none
        named = pd.Categorical.from_codes(codes, pd.Index(words, dtype=object))
        log[name] = named.reorder_categories(pd.Index(sorted(words), dtype=object))
    seconds, clock = instants(frame, {name: column[name] for name in INSTANTS if name in column})
    for name in INSTANTS:
        log[name] = seconds.pop(name, np.nan)
    origin_s = float(log["start_s"].min())
    hint = "it must be within a hundred years of the first start"
    for name in filter(column.__contains__, INSTANTS):
        late = (log[name] - origin_s > LONGEST_S).to_numpy()
        frame.refuse(late, f"{column[name]} is {{}}", hint, column[name])
    hint = f"every dispatch needs its client, and when it started; {FAR_DATES} are unknown"
    for name in ("client", "start_s"):
        frame.refuse(log[name].isna().to_numpy(), f"{column[name]} is {{}}", hint, column[name])
    frame.drop([column[name] for name in ("client", "outcome", *INSTANTS) if name in column])
    for name in (each for each, column_ in FORMAT.items() if column_.cell in ("number", "whole")):
        form: cells.Form = "duration" if name in WORK else ""
        log[name] = frame.number(column[name], 1.0, _EXACT, form=form) if name in column else np.nan
    raise_all(error for _, error in sorted((frame.mistakes or {}).items()))
    frame.drop(column.values())
    for name in INSTANTS:
        log[name] -= origin_s
    flags = [flag for _, flag in sources if flag] + list(clock.flags)
    flags += [f"{doubt.capitalize()}." for doubt in frame.doubted.values()]
    unused = [each for each in NAMES["client"] if each in frame and each != column["client"]]
    if unused and not is_run:
        flags.append(f"Clients are named by '{column['client']}', not by {format_names(unused)}.")
    order = np.lexsort((log["client"].cat.codes, log["start_s"]))
    flags += _complete(log, frame, order, 0.0 if is_run else clock.resolution_s, every_row)
    for column_name in log:
        log[column_name] = log[column_name].array[order]
    numbers = log["round"].dropna()
    if numbers.empty:
        early_s = log["end_s"].groupby(log["client"], observed=True).shift() - log["start_s"]
        if overlaps := int((early_s > max(clock.resolution_s, 1e-3)).sum()):
            flags.append(
                f"Dispatches begin before the previous one of their client has ended ({format_count(overlaps)}): check"
                f" that '{column['client']}' names the clients."
            )
    if len(back := numbers[numbers < numbers.cummax()]):
        flags.append(
            f"Round {back.iloc[0]:.0f} begins again {format_duration(log['start_s'][back.index[0]])} after the first"
            " dispatch: the log seems to contain several runs, whose rounds are mixed. Split it."
        )
    begin_s = log.groupby("round")["start_s"].min()
    in_time_s = log["end_s"].where(log["outcome"] != Outcome.LATE.label)
    over_s = in_time_s.groupby(log["round"]).max().cummax().ffill()
    skipped = np.diff(begin_s.index) - 1
    # Of an asynchronous server, nobody may have been sent a version while others were at work.
    skipped *= ~(begin_s.to_numpy()[1:] < over_s.to_numpy()[:-1]) & (not is_run)
    if (gaps := np.flatnonzero(skipped)).size:
        flags.append(
            f"The log lacks {format_counted(int(skipped.sum()), 'round')}, the first one after round"
            f" {begin_s.index[gaps[0]]:.0f}: the time of the rounds before and after them includes theirs. Add their"
            " rows, or number the rounds without gaps if there were no others."
        )
    # What Arrow has freed only now.
    pa.default_memory_pool().release_unused()
    return Log(log, column["client"], origin_s, clock, tuple(flags))


def spelled(names: Mapping[str, Sequence[str]], frame: Frame) -> dict[str, str]:
    """The first spelling of each name that is a column of the frame; only clients may have several."""
    present = {name: [each for each in every if each in frame] for name, every in names.items()}
    for name, own in present.items():
        if len(own) > 1 and name not in ("client", "part"):
            message = f"has the columns {format_names(own)}, which mean the same"
            raise frame.error(message, "remove or rename one of them")
    return {name: spellings[0] for name, spellings in present.items() if spellings}


def _complete(
    log: pd.DataFrame, frame: Frame, order: Any, resolution_s: float, every_row: bool
) -> list[str]:
    """Fill in ``ended`` and the seconds of work; refuse impossible rows; flags about the resolution of the clock.

    ``order`` sorts the rows by start and client.
    """
    errors: list[UserError] = []

    def check(rows: pd.Series, message: str, hint: str, *values: pd.Series) -> None:
        """Note each of these rows, or the first and their number; ``values`` fill the message's placeholders."""
        wrong = np.flatnonzero(rows)
        count = f" ({format_counted(len(wrong), 'such row')})"
        for row, more in first_of(wrong) if every_row else [(row, count) for row in wrong[:1]]:
            text = message.format(*(column.iloc[row] for column in values)) + more
            errors.append(UserError(text, where=frame.place(row), hint=hint))

    again = ~run_starts(log["client"].cat.codes.to_numpy()[order], log["start_s"].to_numpy()[order])
    alike = np.sort(order[again | np.append(again[1:], False)])
    twice = np.zeros(len(log), np.bool_)
    twice[alike] = log.iloc[alike].duplicated()
    pairs = [*itertools.combinations(_PHASES, 2), ("start_s", "ended_s"), ("end_s", "ended_s")]
    backwards = [(a, b) for a, b in pairs if (log[b] < log[a]).any()]
    clock = "start, downloaded, computed, end are instants of one clock, in seconds or as ISO 8601 timestamps"
    check(pd.Series(twice), "repeats an earlier row", "write one row per dispatch")
    named = pd.Series(twice, index=log.index)
    for a, b in backwards if every_row else backwards[:1]:
        check((log[b] < log[a]) & ~named, f"{b[:-2]} is before {a[:-2]}", clock)
        named |= log[b] < log[a]
    for name in ("steps", "bytes_down", "bytes_up"):
        message = f"{name} is {{:g}}, but cannot be negative"
        check(log[name] < 0, message, f"correct it, {_OR_EMPTY}", log[name])
    message, fix = "round is {:g}, but rounds are counted from 0", f"correct it, {_OR_EMPTY}"
    rounds = log["round"].fillna(0)
    check((rounds % 1 != 0) | (rounds < 0), message, fix, rounds)
    delivered, ends = ~log["outcome"].isin(_UNDELIVERED), log["end_s"]
    if log["ended_s"].isna().all():
        log["ended_s"], log["end_s"] = ends.where(~delivered), ends.where(delivered)
    columns = ["client", "round", "start_s", "end_s"]
    has_another = log["round"].notna() & log.duplicated(columns[:2], keep=False) & ~named
    # Instants may be rounded to milliseconds, and the end of a lost dispatch be noticed late.
    rows = log.loc[has_another, columns].dropna().sort_values(columns)
    over_s = rows.groupby(columns[:2], observed=True)["end_s"].shift() - rows["start_s"]
    later = np.flatnonzero(over_s > max(resolution_s, 1e-3))
    extra = pd.Series(log.index.isin(np.maximum(rows.index[later], rows.index[later - 1])))
    fix = "write one row per dispatch of one run, under its client's own name"
    check(extra, "overlaps another dispatch of {} in round {:g}", fix, log["client"], log["round"])
    arrival = "the end is the arrival of the update; if it never arrived,"
    never = log["outcome"].notna() & delivered & ends.isna()
    message = "outcome is {}, but it has no end"
    check(never, message, f"{arrival} the outcome is dropped", log["outcome"])
    both = log["outcome"].isin(_UNDELIVERED[:2]) & log["end_s"].notna()
    check(both, "outcome is {}, but it has an end", f"{arrival} it is empty", log["outcome"])
    spans_s = {name: log[end] - log[begin] for name, (begin, end) in WORK.items()}
    computed_s, has_steps = spans_s["compute_s"].fillna(log["compute_s"]), log["steps"] != 0
    message = "steps is 0, but the client computed for {:g} s"
    fix = f"give the number of local steps that it did, {_OR_EMPTY}"
    check(~has_steps & (computed_s > 0) & delivered, message, fix, computed_s)
    for begin, end in (_PHASES[::3], _PHASES[1:3]):
        instantly = (log[begin] == log[end]) & has_steps & delivered & (not resolution_s)
        message = f"{end[:-2]} is {begin[:-2]}, but local steps take time"
        check(instantly, message, f"correct it, {_OR_EMPTY}")
    instantly = (log["compute_s"] == 0) & has_steps & delivered
    check(instantly, "compute_s is 0, but local steps take time", f"correct it, {_OR_EMPTY}")
    total_s = log["end_s"] - log["start_s"]
    log["end_s"] += resolution_s * (total_s == 0)
    given_s = pd.Series(0.0, index=log.index)
    for name, span_s in spans_s.items():
        marks = " to ".join(each[:-2] for each in WORK[name])
        beyond = (log[name] < 0) | (log[name] > span_s + _ROUNDING_S)
        message = f"{name} is {{:g}} s, but it is {{:g}} s from {marks}"
        fix = f"{name} is the time of work in this phase in seconds, without pauses; leave it empty if unknown"
        check(beyond, message, fix, log[name], span_s)
        # Of a dispatch that did not arrive, a phase without its instants may not have been completed.
        log[name] = log[name].where(span_s.notna() | total_s.notna())
        given_s += log[name].where(span_s.isna()).fillna(0)
        log[name] = log[name].fillna(span_s.clip(lower=resolution_s))
    rest_s = total_s - log["download_s"] - log["upload_s"]
    log["compute_s"] = log["compute_s"].fillna(rest_s.where(rest_s > resolution_s))
    beyond = (given_s > total_s + max(resolution_s, _ROUNDING_S)) & (total_s >= 0)
    message = f"{format_names(list(WORK))} are {{:g}} s, but it is {{:g}} s from start to end"
    check(beyond, message, f"give seconds of work, {_OR_EMPTY}", given_s, total_s)
    unknown, fix = log["outcome"].notna(), f"outcomes are {', '.join(OUTCOME_LABELS)}, {_OR_EMPTY}"
    unknown &= ~log["outcome"].isin(OUTCOME_LABELS)
    check(unknown, "unknown outcome '{}'", fix, log["outcome"])
    raise_all(errors)
    if not log["end_s"].notna().any():
        raise UserError("no dispatch of the log ended", where=frame.where)
    spans = [each for each in (*spans_s.values(), total_s) if each.notna().any()]
    middles = [each.median() for each in spans[:3]]
    if not (coarse := [each for each in middles if each < _COARSE * resolution_s]):
        return []
    resolution, shortest = format_duration(resolution_s), format_duration(min(coarse))
    flag = f"The log's times have a resolution of {resolution}, and the median of a phase is {shortest}: rates, step"
    flag += " times and their errors are inexact."
    if short := sum(int((each == 0).sum()) for each in spans[:3]):
        flag += f" Phases of 0 s ({format_count(short)}) count as {resolution}, so their rates are lower bounds."
    return [flag]


@dataclass(frozen=True)
class Rounds:
    """What a log shows about the server.

    Attributes:
        timeout_s: how long a round waits for its updates; None if no update is late.
        gap_s, gap_error_s: time from the last arrival of a round to the first dispatch of the next one, and its
            standard error; NaN if no round shows it.
        gaps_s: this time in each round that shows it.
        overlaps: number of rounds that end after the next one begins, although all their updates arrived.
        pause: the round after which the longest time passes, and this time, if it is far longer than a round.
    """

    timeout_s: float | None
    gap_s: float
    gap_error_s: float
    gaps_s: tuple[float, ...]
    overlaps: int = 0
    pause: tuple[float, float] | None = None


def round_durations_s(log: pd.DataFrame) -> pd.Series:
    """Time from the first dispatch of each round to that of the next; the last round has none."""
    starts = log.groupby("round")["start_s"].min().sort_index()
    return starts.diff().shift(-1).dropna()


def rounds_of(log: pd.DataFrame, last: float = math.inf, *, always_online: bool = True) -> Rounds:
    """What the rounds of a log show about the server.

    A round shows the time until the next one if all its updates arrived before a timeout.

    Args:
        log: the dispatches.
        last: the last round to be considered.
        always_online: the clients are always online, so that no round begins later because it waits for them. Otherwise
            the shortest time counts instead of the median.
    """
    durations_s = round_durations_s(log)
    durations_s = durations_s[durations_s.index <= last]
    arrived = log["outcome"].isna() | log["outcome"].isin(IN_TIME)
    rounds = (
        log[["round", "start_s", "end_s"]]
        .assign(late=log["outcome"] == Outcome.LATE.label, arrived=arrived & log["end_s"].notna())
        .groupby("round")
        .agg({"start_s": "min", "end_s": "max", "late": "any", "arrived": "all"})
        .reindex(durations_s.index)
    )
    late = rounds["late"].astype(bool)
    timeout_s = float(durations_s[late].median()) if late.any() else math.inf
    whole = rounds["arrived"].astype(bool) & (durations_s < _NEARLY * timeout_s)
    gaps = (durations_s - (rounds["end_s"] - rounds["start_s"]))[whole]
    overlaps = int((gaps < 0).sum())
    long = gaps[gaps > _LONG * durations_s.median()]
    pause = (float(long.index[int(long.argmax())]), float(long.max())) if len(long) else None
    # Updates that arrive after the end of their round say nothing about the next one, nor does a pause.
    gaps_s = gaps[(gaps >= 0) & ~gaps.index.isin(long.index)].to_numpy()
    gap_s = error_s = math.nan
    if count := len(gaps_s):
        gap_s = float(np.median(gaps_s) if always_online else gaps_s.min())
        error_s = _MEDIAN_ERROR * float(gaps_s.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    return Rounds(
        None if timeout_s == math.inf else timeout_s - (0.0 if math.isnan(gap_s) else gap_s),
        gap_s,
        error_s,
        tuple(gaps_s.tolist()),
        overlaps,
        pause,
    )
