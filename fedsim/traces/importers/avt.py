"""AVT, the text form of the Repository of Availability Traces (Godfrey): a line a node, up-intervals in seconds.

``id TAB n TAB start stop start stop ...``, whole seconds from the trace's start. The observation window is not in the
file. The Skype trace of the repository was polled about every 30 minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import Eligibility, TraceBundle
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._assemble import (
    availability_table,
    bundle,
    devices_table,
    single_ids,
)
from fedsim.traces.importers._files import source_files
from fedsim.traces.ordering import normalise, polling_interval
from fedsim.units import Duration

# The clock holds 146,000 years.
_LONGEST_S = 4_611_686_018_427


class AvtParams(ImporterParams):
    """Options of the AVT importer."""

    window: Duration | None = None
    """Length of the observation from the trace's start (Skype: 2478200). By default the last stop in the files, which
    is too short where no node was up at the end."""


class Avt(Importer):
    """Availability in AVT; one window for all nodes, which repeats."""

    name: ClassVar[str] = "avt"
    description: ClassVar[str] = "AVT availability traces (Godfrey's repository), a line a node"
    Params: ClassVar[type[Parameters]] = AvtParams

    @classmethod
    def read(cls, paths: Sequence[Path], params: AvtParams) -> TraceBundle:
        """See :meth:`Importer.read`."""
        ids: list[str] = []
        numbers: list[list[int]] = []
        for source in source_files(paths):
            for line, text in enumerate(source.text().splitlines(), start=1):
                if not text.strip() or text.startswith("#"):
                    continue
                name, values = _line(text, source.line(line))
                ids.append(name)
                numbers.append(values)
        where = ", ".join(map(str, paths))
        if not ids:
            raise UserError("has no nodes", where=where, hint="an AVT file has a line a node")
        single_ids(ids, where, "node")
        times_us = np.fromiter(chain.from_iterable(numbers), np.int64).reshape(-1, 2) * 1_000_000
        device = np.repeat(
            np.arange(len(ids), dtype=np.int64), np.fromiter(map(len, numbers), np.int64) // 2
        )
        if params.window is not None:
            end_us = round(params.window * 1e6)
        else:
            end_us = int(times_us.max(initial=0))
        if end_us <= 0:
            raise UserError(
                "has no intervals and no window" if params.window is None else "window is 0",
                where=where,
                hint="say how long the observation was: window=2478200",
            )
        window_start = np.zeros(len(ids), np.int64)
        window_end = np.full(len(ids), end_us)
        intervals = normalise(
            device,
            times_us[:, 0],
            times_us[:, 1],
            window_start=window_start,
            window_end=window_end,
        )
        counts = dict(intervals.counts)
        caveats = []
        if params.window is None:
            caveats.append("the window was not told: it is taken to end with the last stop")
        polled_us = polling_interval(intervals.end - intervals.start)
        if polled_us is not None:
            counts["polling_interval_s"] = round(polled_us / 1e6)
            caveats.append(
                f"lengths cluster at multiples of {polled_us / 1e6:.0f} s: the source was polled and shorter changes"
                " are unseen"
            )
        return bundle(
            cls,
            params,
            paths,
            {
                "devices": devices_table(ids, window_end_us=end_us),
                "availability": availability_table(
                    intervals, ids, window_start_us=window_start, window_end_us=window_end
                ),
            },
            counts,
            horizon_us=end_us,
            on_end="wrap",
            eligibility=Eligibility(words="up"),
            caveats=caveats,
        )


def _line(text: str, where: str) -> tuple[str, list[int]]:
    fields = text.split()
    try:
        values = list(map(int, fields[1:]))
    except ValueError:
        bad = next(field for field in fields[1:] if not field.lstrip("-").isdigit())
        raise UserError(
            f"'{bad}' is not a whole number of seconds",
            where=where,
            hint="a line is: id, number of intervals, then start and stop of each",
        ) from None
    if not values or len(values) - 1 != 2 * values[0]:
        said = f"{values[0]} intervals but {len(values) - 1} times" if values else "an id alone"
        raise UserError(
            f"has {said}",
            where=where,
            hint="a line is: id, number of intervals, then start and stop of each",
        )
    times = values[1:]
    if times and not -_LONGEST_S <= min(times) <= max(times) <= _LONGEST_S:
        raise UserError("has a time beyond 146,000 years", where=where)
    return fields[0], times
