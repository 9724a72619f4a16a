"""Logs of real runs: one row per dispatch, from CSV, Parquet or a run folder; and what their rounds show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedsim.errors import UserError, raise_all
from fedsim.files.delimited import hint_of_header
from fedsim.tasks.reading.files import read_table, row_place
from fedsim.vocabulary.formatting import format_counted, natural_order
from fedsim.vocabulary.outcomes import OUTCOME_LABELS, Outcome

_NAMES = {
    "client": ("client", "client_id", "client_name", "device", "device_id"),
    "start_s": ("start", "start_s", "dispatched", "dispatched_s"),
    "downloaded_s": ("downloaded", "downloaded_s", "download_end", "download_end_s"),
    "computed_s": ("computed", "computed_s", "compute_end", "compute_end_s"),
    "end_s": ("end", "end_s", "arrived", "arrived_s", "upload_end", "upload_end_s"),
    "ended_s": ("ended", "ended_s"),
    "steps": ("steps", "steps_done", "local_steps"),
    "bytes_down": ("bytes_down", "download_bytes"),
    "bytes_up": ("bytes_up", "upload_bytes"),
    "round": ("round", "server_round"),
    "outcome": ("outcome",),
    "download_s": ("download_s",),
    "compute_s": ("compute_s",),
    "upload_s": ("upload_s",),
}
_REQUIRED = ("client", "start_s", "end_s")
WORK = {
    "download_s": ("start_s", "downloaded_s"),
    "compute_s": ("downloaded_s", "computed_s"),
    "upload_s": ("computed_s", "end_s"),
}
"""Seconds of work in each phase, without pauses while offline, and the instants between which the phase lies."""
_NUMBERS = ("steps", "bytes_down", "bytes_up", "round", *WORK)
_PHASES = ("start_s", "downloaded_s", "computed_s", "end_s")
INSTANTS = ("start_s", "downloaded_s", "computed_s", "end_s", "ended_s")
_ROUNDING_S = 1e-6
_UNDELIVERED = (Outcome.DROPPED.label, Outcome.CUT.label, Outcome.UNFINISHED.label)
_TIMES = "give seconds, or ISO 8601 timestamps such as 2026-01-31T12:00:00.250Z"
_OFFSET = r"[T ].*(?:[Zz]|[+-]\d{2}(?::?\d{2})?)\s*$"
"""The end of a timestamp that has an offset from UTC."""
_TIMESTAMP = r"^\d{4}-\d|\dT\d"
_NEARLY = 0.99
"""Rounds that last at least this share of the rounds with late updates are taken to end at the timeout, too."""
IN_TIME = (Outcome.AGGREGATED.label, Outcome.DISCARDED.label)
_MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""Standard error of a median relative to that of a mean, for normal values."""
_Place = Callable[[int], str]
"""Where a row of a log stands, for messages."""
COLUMNS = ", ".join(names[0] for names in _NAMES.values())


@dataclass(frozen=True)
class Log:
    """A log as it was read.

    Attributes:
        dispatches: one row per dispatch; its ``client`` is the name in the log.
        named_by: the column of the log that names the clients, as the log spells it.
    """

    dispatches: pd.DataFrame
    named_by: str

    def clients(self) -> list[str]:
        """The names of the clients, numbers in their order."""
        return sorted(self.dispatches["client"].unique(), key=natural_order)


def numbered(dispatches: pd.DataFrame, clients: Sequence[str]) -> pd.DataFrame:
    """Dispatches whose ``client`` is the number of its name in ``clients``, instead of the name."""
    number = {name: index for index, name in enumerate(clients)}
    return dispatches.assign(client=dispatches["client"].map(number).astype(np.int64))


def read_log(path: Path) -> Log:
    """Read a log: its dispatches in order of their start, with columns as in :data:`COLUMNS`.

    Instants are seconds from the first start; values that the log does not give are NaN. ``client`` is text. ``end`` is
    the arrival of the update. If the log has no column ``ended``, the ``end`` of a dispatch that was dropped, cut or
    unfinished is when it ended without an arrival, and becomes its ``ended``. The seconds of work in a phase that was
    completed are the time between its instants if the log does not give them.
    """
    if (path / "run.json").exists():
        from fedsim.analysis.run import load_run

        table = load_run(path).dispatches
    elif path.suffix in (".parquet", ".csv") and path.exists():
        table = read_table(path, "repair the file, or write the log again")
    else:
        hint = "give a .csv or .parquet file with one row per dispatch, or a run folder"
        raise UserError("there is no such log", where=str(path), hint=hint)
    in_file = path.is_file()

    def place(row: int) -> str:
        return row_place(path, row) if in_file else f"{path}, row {row + 1} of dispatches"

    if table.empty:
        raise UserError("the log has no rows", where=str(path), hint="write one row per dispatch")
    raise_all(
        _error(table.duplicated(), place, "repeats an earlier row", "write one row per dispatch")
    )
    named_by = next((each for each in _NAMES["client"] if each in table.columns), "client")
    return Log(_normalized(table, str(path), place), named_by)


def _normalized(table: pd.DataFrame, where: str, place_of: _Place) -> pd.DataFrame:
    log = pd.DataFrame(index=table.index)
    instants = [each for name in INSTANTS for each in _NAMES[name] if each in table.columns]
    for name, spellings in _NAMES.items():
        spelling = next((each for each in spellings if each in table.columns), None)
        if spelling is not None:
            column = table[spelling]
        elif name in _REQUIRED:
            every = f"it needs client, start and end; the other columns improve the estimates: {COLUMNS}"
            hint = hint_of_header(map(str, table.columns), every)
            raise UserError(
                f"the log has no column {name.removesuffix('_s')}", where=where, hint=hint
            )
        else:
            column = pd.Series(np.nan, table.index, dtype=object if name == "outcome" else float)
        if name in ("client", "start_s") and (row := _first(column.isna())) is not None:
            hint = "every dispatch needs its client, and when it started"
            raise UserError(f"{spelling} is empty", where=place_of(row), hint=hint)
        if name in INSTANTS:
            column = _seconds(column, spelling or name, place_of)
        elif name in _NUMBERS:
            column = _numbers(column, spelling or name, place_of)
        log[name] = column
    _check_offsets(table[instants], place_of)
    log["client"] = log["client"].astype(str)
    origin_s = log["start_s"].min()
    for name in INSTANTS:
        log[name] -= origin_s
    errors = [*_impossible(log, place_of)]
    if log["ended_s"].isna().all():
        log["ended_s"] = log["end_s"].where(log["outcome"].isin(_UNDELIVERED))
        log["end_s"] = log["end_s"].where(log["ended_s"].isna())
    for name, (begin, end) in WORK.items():
        span_s = log[end] - log[begin]
        worked_s, marks = log[name], [each.removesuffix("_s") for each in (begin, end)]
        errors += _error(
            (worked_s < 0) | (worked_s > span_s + _ROUNDING_S),
            place_of,
            f"{name} is {{:g}} s, but it is {{:g}} s from {marks[0]} to {marks[1]}",
            f"{name} is the time of work in this phase in seconds, without pauses; leave it empty if unknown",
            worked_s,
            span_s,
        )
        log[name] = log[name].where(span_s.notna()).fillna(span_s)
    errors += _error(
        log["outcome"].notna() & ~log["outcome"].isin(OUTCOME_LABELS),
        place_of,
        "unknown outcome '{}'",
        f"outcomes are {', '.join(OUTCOME_LABELS)}; leave it empty if it is unknown",
        log["outcome"],
    )
    raise_all(errors)
    if not log["end_s"].notna().any():
        raise UserError("no dispatch of the log ended", where=where)
    return log.sort_values(["start_s", "client"], kind="stable").reset_index(drop=True)


def _impossible(log: pd.DataFrame, place_of: _Place) -> Iterator[UserError]:
    """Errors for instants in the wrong order, negative counts, and steps that took time although there were none."""
    for before, after in itertools.combinations(_PHASES, 2):
        if (backwards := log[after] < log[before]).any():
            last, first = (name.removesuffix("_s") for name in (after, before))
            yield from _error(
                backwards,
                place_of,
                f"{last} is before {first}",
                "start, downloaded, computed, end are instants of one clock, in seconds or as ISO 8601 timestamps",
            )
            break
    for name in ("steps", "bytes_down", "bytes_up"):
        yield from _error(
            log[name] < 0,
            place_of,
            f"{name} is {{:g}}, but cannot be negative",
            "correct it, or leave it empty if it is unknown",
            log[name],
        )
    computed_s = log["computed_s"] - log["downloaded_s"]
    yield from _error(
        (log["steps"] == 0) & (computed_s > 0) & ~log["outcome"].isin(_UNDELIVERED),
        place_of,
        "steps is 0, but the client computed for {:g} s",
        "give the number of local steps that it did, or leave it empty if it is unknown",
        computed_s,
    )


def _seconds(column: pd.Series, name: str, place_of: _Place) -> pd.Series:
    """Instants in seconds, from numbers or timestamps."""
    if pd.api.types.is_numeric_dtype(column):
        return column.astype(float)
    instants = pd.to_datetime(column, utc=True, format="ISO8601", errors="coerce")
    if not pd.api.types.is_datetime64_any_dtype(column):
        numbers = pd.to_numeric(column, errors="coerce").astype(float)
        if numbers.count() >= instants.count():
            _require_known(column, numbers, name, place_of, _TIMES)
            return numbers
    _require_known(column, instants, name, place_of, _TIMES)
    seconds: pd.Series = (instants - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
    return seconds


def _check_offsets(instants: pd.DataFrame, place_of: _Place) -> None:
    """Refuse timestamps only some of which have an offset from UTC."""
    cells = instants.astype(str).stack()
    stamps = cells[cells.str.contains(_TIMESTAMP)]
    without = ~stamps.str.contains(_OFFSET)
    if not without.any() or without.all():
        return
    row, name = without.index[int(without.to_numpy().argmax())]
    raise UserError(
        f"column {name}: '{instants[name].loc[row]}' has no offset from UTC, but other timestamps of the log have one",
        where=place_of(row),
        hint="write it in all of them: 2026-01-31T12:00:00Z, or 2026-01-31T12:00:00+02:00",
    )


def _numbers(column: pd.Series, name: str, place_of: _Place) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    _require_known(column, numbers, name, place_of, "give a number, or leave it empty")
    return numbers


def _require_known(
    column: pd.Series, values: pd.Series, name: str, place_of: _Place, hint: str
) -> None:
    """Refuse a cell that could not be read; an empty one is unknown."""
    if (row := _first(column.notna() & values.isna())) is not None:
        message = f"column {name}: cannot read '{column.iloc[row]}'"
        raise UserError(message, where=place_of(row), hint=hint)


def _error(
    rows: pd.Series, place_of: _Place, message: str, hint: str, *values: pd.Series
) -> Iterator[UserError]:
    """An error at the first of these rows, with their number; none if there are no such rows.

    The placeholders of ``message`` are filled with the row's ``values``.
    """
    if (row := _first(rows)) is not None:
        text = message.format(*(column.iloc[row] for column in values))
        count = format_counted(int(rows.sum()), "such row")
        yield UserError(f"{text} ({count})", where=place_of(row), hint=hint)


def _first(rows: pd.Series) -> int | None:
    """The first of these rows; None if there is none."""
    return int(rows.to_numpy().argmax()) if rows.any() else None


@dataclass(frozen=True)
class Rounds:
    """What a log shows about the server.

    Attributes:
        timeout_s: how long a round waits for its updates; None if no update is late.
        gap_s, gap_error_s: time from the last arrival of a round to the first dispatch of the next one, and its
            standard error; NaN if no round shows it.
        gaps_s: this time in each round that shows it.
    """

    timeout_s: float | None
    gap_s: float
    gap_error_s: float
    gaps_s: tuple[float, ...]


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
        log.assign(
            late=log["outcome"] == Outcome.LATE.label, arrived=arrived & log["end_s"].notna()
        )
        .groupby("round")
        .agg({"start_s": "min", "end_s": "max", "late": "any", "arrived": "all"})
        .reindex(durations_s.index)
    )
    late = rounds["late"].astype(bool)
    timeout_s = float(durations_s[late].median()) if late.any() else math.inf
    whole = rounds["arrived"].astype(bool) & (durations_s < _NEARLY * timeout_s)
    gaps_s = (durations_s - (rounds["end_s"] - rounds["start_s"]))[whole].to_numpy()
    # Updates that arrive after the end of their round say nothing about the next one.
    gaps_s = gaps_s[gaps_s >= 0]
    gap_s = error_s = math.nan
    if count := len(gaps_s):
        gap_s = float(np.median(gaps_s) if always_online else gaps_s.min())
        error_s = _MEDIAN_ERROR * float(gaps_s.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    return Rounds(
        None if timeout_s == math.inf else timeout_s - (0.0 if math.isnan(gap_s) else gap_s),
        gap_s,
        error_s,
        tuple(gaps_s.tolist()),
    )
