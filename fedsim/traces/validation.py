"""Everything that is wrong with a trace bundle, by table and row.

All checks are whole-column operations; only the problems found become Python objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import UserError, UserErrors
from fedsim.traces.bundle import TraceBundle, file_sha256, table_path
from fedsim.traces.tables import DIRECTIONS, EVENT_KEYS, PHASES, columns, single_chunk

MAX_TZ_OFFSET_S = 14 * 3600
LISTED_PER_KIND = 1000

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a bundle.

    Args:
        table: table concerned, or ``manifest``.
        row: row number in the table from 0; None when it concerns the whole table.
        message: what is wrong.
    """

    table: str
    row: int | None
    message: str

    def __str__(self) -> str:
        place = self.table if self.row is None else f"{self.table} row {self.row}"
        return f"{place}: {self.message}"


def validate_bundle(bundle: TraceBundle, *, limit: int = LISTED_PER_KIND) -> list[Problem]:
    """Every problem of a bundle.

    Args:
        bundle: the bundle.
        limit: problems listed one by one for each kind; a further one then says how many more there are.

    Returns:
        The problems, by table and kind; empty for a sound bundle.
    """
    checker = _Checker(bundle, limit)
    checker.run()
    return checker.problems


def require_sound(bundle: TraceBundle, *, shown: int = 10) -> None:
    """Refuse a bundle that has problems.

    Raises:
        UserErrors: the bundle has problems; names the first ``shown``.
    """
    problems = validate_bundle(bundle, limit=shown)
    if problems:
        errors = [UserError(str(problem), where=bundle.where) for problem in problems[:shown]]
        if len(problems) > shown:
            errors.append(UserError("and more: see `fedsim traces validate`", where=bundle.where))
        raise UserErrors(errors)


class _Checker:
    def __init__(self, bundle: TraceBundle, limit: int) -> None:
        self.bundle = bundle
        self.limit = limit
        self.problems: list[Problem] = []

    def run(self) -> None:
        self._digests()
        for name, check in (
            ("devices", self._devices),
            ("availability", self._availability),
            ("device_events", self._device_events),
            ("compute", self._compute),
            ("compute_series", self._compute_series),
            ("network", self._network),
            ("network_series", self._network_series),
            ("network_assign", self._network_assign),
            ("rtt_matrix", self._rtt_matrix),
        ):
            if name in self.bundle.tables:
                self._nulls(name)
                check(name)

    def add(self, table: str, bad: BoolArray, message: str, *values: npt.NDArray[Any]) -> None:
        """Report the rows where ``bad`` holds; ``values`` fill the braces of ``message``."""
        rows = np.flatnonzero(bad)
        for row in rows[: self.limit]:
            text = message.format(*(value[row] for value in values))
            self.problems.append(Problem(table, int(row), text))
        if len(rows) > self.limit:
            self.problems.append(
                Problem(table, None, f"and {len(rows) - self.limit} more rows of the same kind")
            )

    def column(self, table: str, name: str) -> npt.NDArray[Any] | None:
        """A numeric column, or None where the table does not have it."""
        if name not in self.bundle.tables[table].column_names:
            return None
        return self.bundle.numpy(table, name)

    def integers(self, table: str, name: str) -> npt.NDArray[np.int64]:
        """A required integer column; nulls, reported elsewhere, read as 0."""
        column = pc.fill_null(single_chunk(self.bundle.tables[table].column(name)), 0)
        result: npt.NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
        return result

    def codes(self, table: str, name: str) -> npt.NDArray[np.int64]:
        """Numbers that are equal where the text of an id column is equal; -1 for null."""
        column = single_chunk(self.bundle.tables[table].column(name))
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        unique = pc.index_in(column.dictionary, value_set=column.dictionary.unique())
        lookup = np.append(unique.to_numpy(zero_copy_only=False).astype(np.int64), -1)
        indices = pc.fill_null(column.indices, len(lookup) - 1)
        result: npt.NDArray[np.int64] = lookup[indices.to_numpy(zero_copy_only=False)]
        return result

    def texts(self, table: str, name: str) -> npt.NDArray[Any]:
        """An id column as Python strings."""
        result: npt.NDArray[Any] = (
            self.bundle.tables[table].column(name).cast(pa.string()).to_numpy()
        )
        return result

    def _digests(self) -> None:
        if self.bundle.path is None:
            return
        for name, expected in sorted(self.bundle.manifest.sha256.items()):
            file = table_path(self.bundle.path, name)
            if not file.is_file():
                self.problems.append(
                    Problem(name, None, "the manifest names it, but it is missing")
                )
            elif file_sha256(file) != expected:
                self.problems.append(
                    Problem(name, None, "its file is not the one whose SHA-256 the manifest holds")
                )

    def _nulls(self, table: str) -> None:
        for name, column in columns(table).items():
            if column.nullable or name not in self.bundle.tables[table].column_names:
                continue
            values = single_chunk(self.bundle.tables[table].column(name))
            if values.null_count:
                bad = pc.is_null(values).to_numpy(zero_copy_only=False)
                self.add(table, bad, f"{name} is null")

    def _known_devices(self, table: str) -> npt.NDArray[np.int64]:
        rows = self.bundle.device_rows(table)
        bad = rows < 0
        if bad.any():
            self.add(table, bad, "'{}' is not in the table devices", self.texts(table, "device_id"))
        return rows

    def _range(
        self, table: str, name: str, low: float, high: float, *, open_low: bool = False
    ) -> None:
        """Report numbers that are not finite or outside [low, high] (or (low, high]); nulls of floats read as NaN."""
        if name not in self.bundle.tables[table].column_names:
            return
        column = single_chunk(self.bundle.tables[table].column(name))
        known = pc.is_valid(column).to_numpy(zero_copy_only=False)
        values = column.to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            inside = (values > low) if open_low else (values >= low)
            inside &= values <= high
        unit = columns(table)[name].unit
        bound = f"{'more than' if open_low else 'at least'} {low:g}"
        if np.isfinite(high):
            bound += f" and at most {high:g}"
        message = f"{name} is {{}}{' ' + unit if unit else ''}; it must be {bound}"
        with np.errstate(invalid="ignore"):
            finite = np.isfinite(values.astype(np.float64))
        self.add(table, known & finite & ~inside, message, values)
        self.add(table, known & ~finite, f"{name} is {{}}, not a finite number", values)

    def _words(self, table: str, name: str, allowed: tuple[str, ...]) -> None:
        column = single_chunk(self.bundle.tables[table].column(name))
        value_set = pa.array([*allowed, None], type=pa.string())
        known = pc.is_in(column.cast(pa.string()), value_set=value_set)
        bad = ~known.to_numpy(zero_copy_only=False)
        if bad.any():
            message = f"{name} is '{{}}'; it must be one of {', '.join(allowed)}"
            self.add(table, bad, message, self.texts(table, name))

    def _unique(self, table: str, *keys: npt.NDArray[np.int64], what: str) -> None:
        order = np.lexsort((np.arange(len(keys[0])), *reversed(keys)))
        same = np.ones(max(len(order) - 1, 0), np.bool_)
        for key in keys:
            same &= key[order[1:]] == key[order[:-1]]
        bad = np.zeros(len(order), np.bool_)
        bad[order[1:][same]] = True
        self.add(table, bad, f"says again {what}")

    def _devices(self, table: str) -> None:
        ids = self.codes(table, "device_id")
        self._unique(table, ids, what="a device_id of an earlier row")
        empty = pc.equal(single_chunk(self.bundle.devices.column("device_id")), "")
        self.add(
            table,
            pc.fill_null(empty, False).to_numpy(zero_copy_only=False),
            "device_id is empty",
        )
        start = self.integers(table, "window_start_us")
        end = self.integers(table, "window_end_us")
        # An invalid device may have a window of no length: the source says nothing about it.
        valid = pc.fill_null(single_chunk(self.bundle.devices.column("valid")), True)
        valid = valid.to_numpy(zero_copy_only=False)
        self.add(
            table,
            (end < start) | (valid & (end == start)),
            "the window [{}, {}) us has no length",
            start,
            end,
        )
        self._range(table, "period_us", 0, np.inf, open_low=True)
        period = self.column(table, "period_us")
        if period is not None:
            with np.errstate(invalid="ignore"):
                short = period < end - start
            self.add(table, short, "period_us {} is shorter than the window", period)
        self._range(table, "tz_offset_s", -MAX_TZ_OFFSET_S, MAX_TZ_OFFSET_S)
        if not self.bundle.device_count:
            self.problems.append(Problem(table, None, "there is no device"))

    def _order(
        self,
        table: str,
        group: npt.NDArray[np.int64],
        start: npt.NDArray[np.int64],
        end: npt.NDArray[np.int64],
        *,
        gaps: bool,
    ) -> None:
        """Report reversed, empty, unsorted and overlapping intervals (and, unless ``gaps``, holes) of each group."""
        self.add(table, end < start, "the interval [{}, {}) us is reversed", start, end)
        self.add(table, end == start, "the interval [{}, {}) us has zero length", start, end)
        same = np.zeros(len(group), np.bool_)
        same[1:] = group[1:] == group[:-1]
        earlier_start = np.roll(start, 1)
        earlier_end = np.roll(end, 1)
        unsorted = same & (start < earlier_start)
        self.add(table, unsorted, "starts at {} us, before the row above it", start)
        self.add(
            table,
            same & ~unsorted & (start < earlier_end),
            "starts at {} us and overlaps the row above it, which ends at {} us",
            start,
            earlier_end,
        )
        if not gaps:
            self.add(
                table,
                same & (start > earlier_end),
                "starts at {} us and leaves a hole after the row above it, which ends at {} us",
                start,
                earlier_end,
            )
        self._contiguous(table, group)

    def _contiguous(self, table: str, group: npt.NDArray[np.int64]) -> None:
        first = np.ones(len(group), np.bool_)
        first[1:] = group[1:] != group[:-1]
        first &= group >= 0
        heads = np.flatnonzero(first)
        _, kept = np.unique(group[heads], return_index=True)
        again = np.ones(len(heads), np.bool_)
        again[kept] = False
        bad = np.zeros(len(group), np.bool_)
        bad[heads[again]] = True
        self.add(table, bad, "continues rows of which others stand between: sort the table")

    def _availability(self, table: str) -> None:
        rows = self._known_devices(table)
        start, end = self.integers(table, "start_us"), self.integers(table, "end_us")
        self._order(table, rows, start, end, gaps=True)
        known = rows >= 0
        low = self.integers("devices", "window_start_us")[rows]
        high = self.integers("devices", "window_end_us")[rows]
        self.add(
            table,
            known & ((start < low) | (end > high)),
            "[{}, {}) us is not inside the window [{}, {}) us of its device",
            start,
            end,
            low,
            high,
        )
        self._range(table, "state", 0, 1)
        self._range(table, "censored", 0, 3)
        valid = pc.fill_null(single_chunk(self.bundle.devices.column("valid")), True)
        valid = valid.to_numpy(zero_copy_only=False)
        self.add(table, known & ~valid[rows], "belongs to a device that is not valid")

    def _device_events(self, table: str) -> None:
        rows = self._known_devices(table)
        self._words(table, "key", EVENT_KEYS)
        time = self.integers(table, "time_us")
        bad = np.zeros(len(rows), np.bool_)
        bad[1:] = (rows[1:] == rows[:-1]) & (time[1:] < time[:-1])
        self.add(table, bad, "is at {} us, before the row above it", time)
        self._contiguous(table, rows)

    def _compute(self, table: str) -> None:
        rows = self._known_devices(table)
        self._words(table, "phase", PHASES)
        for name in ("step_fixed_s", "sample_s", "sample_s_std"):
            self._range(table, name, 0, np.inf)
        for name in ("relative_speed", "score", "ram_bytes", "batch_size"):
            self._range(table, name, 0, np.inf, open_low=True)
        keys = [rows, self.codes(table, "task"), self.codes(table, "phase")]
        if "batch_size" in self.bundle.tables[table].column_names:
            batch = single_chunk(self.bundle.tables[table].column("batch_size"))
            keys.append(pc.fill_null(batch, -1).to_numpy(zero_copy_only=False).astype(np.int64))
        self._unique(table, *keys, what="the device, task, phase and batch size of an earlier row")
        speeds = [
            single_chunk(self.bundle.tables[table].column(name))
            for name in ("step_fixed_s", "sample_s", "relative_speed", "score")
            if name in self.bundle.tables[table].column_names
        ]
        unknown = np.ones(len(rows), np.bool_)
        for column in speeds:
            unknown &= pc.is_null(column).to_numpy(zero_copy_only=False)
        self.add(table, unknown, "tells no speed: neither a time, a relative speed nor a score")

    def _compute_series(self, table: str) -> None:
        rows = self._known_devices(table)
        start = self.integers(table, "start_us")
        self._order(table, rows, start, start + self.integers(table, "dur_us"), gaps=False)
        self._range(table, "multiplier", 0, np.inf, open_low=True)

    def _link(self, table: str) -> None:
        self._words(table, "direction", DIRECTIONS)
        self._range(table, "rtt_s", 0, np.inf)
        self._range(table, "loss", 0, 1)

    def _network(self, table: str) -> None:
        rows = self._known_devices(table)
        self._link(table)
        self._range(table, "bandwidth_bps", 0, np.inf, open_low=True)
        self._range(table, "bandwidth_cv", 0, np.inf)
        direction = self.codes(table, "direction")
        self._unique(table, rows, direction, what="the device and direction of an earlier row")
        both = self.texts(table, "direction") == "both"
        has_both = np.zeros(self.bundle.device_count + 1, np.bool_)
        has_both[rows[both]] = True
        self.add(
            table, ~both & has_both[rows] & (rows >= 0), "its device has a row for both already"
        )

    def _network_series(self, table: str) -> None:
        self._link(table)
        self._range(table, "rate_bps", 0, np.inf)
        start = self.integers(table, "start_us")
        direction = self.codes(table, "direction")
        group = self.codes(table, "series_id") * (direction.max(initial=0) + 1) + direction
        self._order(table, group, start, start + self.integers(table, "dur_us"), gaps=False)

    def _network_assign(self, table: str) -> None:
        rows = self._known_devices(table)
        self._range(table, "scale", 0, np.inf, open_low=True)
        self._unique(
            table,
            rows,
            self.codes(table, "series_id"),
            what="the device and series of an earlier row",
        )
        if "network_series" not in self.bundle.tables:
            self.problems.append(Problem(table, None, "there is no table network_series"))
            return
        series = pc.unique(
            self.bundle.tables["network_series"].column("series_id").cast(pa.string())
        )
        names = self.bundle.tables[table].column("series_id").cast(pa.string())
        known = pc.is_in(single_chunk(names), value_set=series).to_numpy(zero_copy_only=False)
        self.add(
            table, ~known, "'{}' is not in the table network_series", self.texts(table, "series_id")
        )

    def _rtt_matrix(self, table: str) -> None:
        self._range(table, "rtt_s", 0, np.inf)
        keys = [self.codes(table, "src"), self.codes(table, "dst")]
        if "slice_us" in self.bundle.tables[table].column_names:
            keys.append(self.integers(table, "slice_us"))
        self._unique(table, *keys, what="the nodes and slice of an earlier row")
