"""Logs of real runs: one row per dispatch, from CSV, Parquet or a run folder."""

from __future__ import annotations

import difflib
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedsim.errors import UserError, nearest_or_all, raise_all
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
_INSTANTS = ("start_s", "downloaded_s", "computed_s", "end_s", "ended_s")
_ROUNDING_S = 1e-6
_UNDELIVERED = (Outcome.DROPPED.label, Outcome.CUT.label, Outcome.UNFINISHED.label)
_TIMES = "give seconds, or ISO 8601 timestamps such as 2026-01-31T12:00:00.250Z"
_OFFSET = r"[T ].*(?:[Zz]|[+-]\d{2}(?::?\d{2})?)\s*$"
"""The end of a timestamp that has an offset from UTC."""
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

    Raises:
        UserError: the file cannot be read, lacks a column, or contains values that are not times.
    """
    if (path / "run.json").exists():
        from fedsim.analysis.run import load_run

        table = load_run(path).dispatches
    elif path.suffix in (".parquet", ".csv") and path.exists():
        table = read_table(path, "repair the file, or write the log again")
        _name_unused(list(map(str, table.columns)), str(path))
    else:
        raise UserError(
            "is not a log" if path.exists() else "there is no such file or folder",
            where=str(path),
            hint="give a .csv or .parquet file with one row per dispatch, or a run folder",
        )
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
    local: dict[str, pd.Series] = {}
    for name, spellings in _NAMES.items():
        spelling = next((each for each in spellings if each in table.columns), None)
        if spelling is not None:
            column = table[spelling]
        elif name in _REQUIRED:
            raise UserError(
                f"the log has no column {name.removesuffix('_s')}",
                where=where,
                hint=hint_of_header(
                    map(str, table.columns),
                    f"it needs client, start and end; the other columns improve the estimates: {COLUMNS}",
                ),
            )
        else:
            column = pd.Series(np.nan, table.index, dtype=object if name == "outcome" else float)
        if name in ("client", "start_s") and (row := _first(column.isna())) is not None:
            hint = "every dispatch needs its client, and when it started"
            raise UserError(f"{spelling} is empty", where=place_of(row), hint=hint)
        if name in _INSTANTS:
            local[spelling or name] = _is_local(column)
            column = _seconds(column, spelling or name, place_of)
        elif name in _NUMBERS:
            column = _numbers(column, spelling or name, place_of)
        log[name] = column
    _check_offsets(pd.DataFrame(local), table, where, place_of)
    log["client"] = log["client"].astype(str)
    origin_s = log["start_s"].min()
    for name in _INSTANTS:
        log[name] -= origin_s
    errors = [*_disordered(log, place_of), *_impossible(log, place_of)]
    if log["ended_s"].isna().all():
        log["ended_s"] = log["end_s"].where(log["outcome"].isin(_UNDELIVERED))
        log["end_s"] = log["end_s"].where(log["ended_s"].isna())
    for name, (begin, end) in WORK.items():
        span_s = log[end] - log[begin]
        errors += _beyond(log[name], span_s, name, place_of)
        log[name] = log[name].where(span_s.notna()).fillna(span_s)
    errors += _unknown_outcomes(log["outcome"], place_of)
    raise_all(errors)
    if not log["end_s"].notna().any():
        raise UserError("no dispatch of the log ended", where=where)
    return log.sort_values(["start_s", "client"], kind="stable").reset_index(drop=True)


def _name_unused(columns: Iterable[str], where: str) -> None:
    """A note about columns that are not read, but whose names are almost those of missing ones."""
    present = set(columns)
    known = {each for names in _NAMES.values() for each in names}
    missing = [each for names in _NAMES.values() if present.isdisjoint(names) for each in names]
    for column in columns:
        if column in known:
            continue
        if similar := difflib.get_close_matches(column, missing, n=1, cutoff=0.85):
            logging.getLogger("fedsim").warning(
                "note: %s: the column %s is not read; did you mean %s?", where, column, similar[0]
            )


def _disordered(log: pd.DataFrame, place_of: _Place) -> Iterator[UserError]:
    """An error if the phases of a row do not follow each other; the first pair of instants is named."""
    for before, after in itertools.combinations(_PHASES, 2):
        backwards = log[after] < log[before]
        if backwards.any():
            names = [name.removesuffix("_s") for name in (after, before)]
            is_whole = names == ["end", "start"]
            what = "ends before it starts" if is_whole else f"{names[0]} is before {names[1]}"
            yield from _error(
                backwards,
                place_of,
                what,
                f"{', '.join(name.removesuffix('_s') for name in _PHASES)} are instants of one clock, in seconds or as "
                "ISO 8601 timestamps",
            )
            return


def _impossible(log: pd.DataFrame, place_of: _Place) -> Iterator[UserError]:
    """Errors for negative counts, and for steps that took time although there were none."""
    for name in ("steps", "bytes_down", "bytes_up"):
        yield from _error(
            log[name] < 0,
            place_of,
            f"{name} is {{:g}}, but cannot be negative",
            "correct it, or leave it empty if it is unknown",
            log[name],
        )
    computed_s = log["computed_s"] - log["downloaded_s"]
    idle = (log["steps"] == 0) & (computed_s > 0) & ~log["outcome"].isin(_UNDELIVERED)
    yield from _error(
        idle,
        place_of,
        "steps is 0, but the client computed for {:g} s",
        "give the number of local steps that it did, or leave it empty if it is unknown",
        computed_s,
    )


def _beyond(
    worked_s: pd.Series, span_s: pd.Series, name: str, place_of: _Place
) -> Iterator[UserError]:
    """An error if a row worked in a phase for a negative time, or for longer than the phase lasted."""
    begin, end = (instant.removesuffix("_s") for instant in WORK[name])
    return _error(
        (worked_s < 0) | (worked_s > span_s + _ROUNDING_S),
        place_of,
        f"{name} is {{:g}} s, but it is {{:g}} s from {begin} to {end}",
        f"{name} is the time of work in this phase in seconds, without pauses; leave it empty if unknown",
        worked_s,
        span_s,
    )


def _unknown_outcomes(outcomes: pd.Series, place_of: _Place) -> Iterator[UserError]:
    unknown = outcomes.notna() & ~outcomes.isin(OUTCOME_LABELS)
    if (row := _first(unknown)) is not None:
        given = str(outcomes.iloc[row])
        every = f"outcomes are {', '.join(OUTCOME_LABELS)}; leave it empty if it is unknown"
        yield UserError(
            f"unknown outcome '{given}' ({format_counted(int(unknown.sum()), 'such row')})",
            where=place_of(row),
            hint=nearest_or_all(given, OUTCOME_LABELS, every),
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


def _is_local(column: pd.Series) -> pd.Series:
    """Whether each timestamp lacks an offset from UTC; missing for numbers and empty cells."""
    if pd.api.types.is_datetime64_any_dtype(column):
        is_local = pd.Series(column.dt.tz is None, column.index)
        return is_local.where(column.notna())
    text = column.where(pd.to_numeric(column, errors="coerce").isna()).dropna().astype(str)
    return (~text.str.contains(_OFFSET)).reindex(column.index)


def _check_offsets(local: pd.DataFrame, table: pd.DataFrame, where: str, place_of: _Place) -> None:
    """Refuse timestamps some of which have an offset from UTC, and note if none of them has."""
    without = local.eq(True)
    if not without.to_numpy().any():
        return
    if not local.eq(False).to_numpy().any():
        logging.getLogger("fedsim").warning(
            "note: %s: the timestamps have no offset from UTC and are read as UTC; if they are local times and the"
            " clocks changed, times across the change are wrong by an hour",
            where,
        )
        return
    row = int(without.any(axis=1).to_numpy().argmax())
    name = without.columns[without.iloc[row]][0]
    raise UserError(
        f"column {name}: '{table[name].iloc[row]}' has no offset from UTC, but other timestamps of the log have one",
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
        raise UserError(
            f"column {name}: cannot read '{column.iloc[row]}'",
            where=place_of(row),
            hint=hint,
        )


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
