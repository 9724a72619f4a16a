"""AVT, the text form of the Repository of Availability Traces (Godfrey): one line per node, up-intervals in seconds.

``id TAB n TAB start stop start stop ...``, whole seconds from the trace's start. The observation window is not in the
file. The repository's Skype trace was polled about every 30 minutes.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from fedsim.errors import UserError
from fedsim.files.cells import TIME_S
from fedsim.files.sources import Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import (
    note_outside,
    note_polling,
    numbers_of,
    observed_tables,
)
from fedsim.units import Duration

_LINE = "a line is: id, number of intervals, then start and stop of each"


class Avt(Importer):
    """Availability in AVT; one window for all nodes, which repeats."""

    name = "avt"
    description = "AVT availability traces (Godfrey's repository), one line per node"
    signature = r"\.avt\n|\n\S+\t(\d+)\t *\d+ \d+"

    class Params(ImporterParams):
        """Options of the AVT importer."""

        window: Duration | None = None
        """Length of the observation from the start of the trace (Skype: 2478200). By default up to the last stop in the
        files, which is too short if no node was up at the end."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One device per line."""
        lines: dict[str, str] = {}
        times: list[list[int]] = []
        for source in sources:
            for line, text in source.lines(skip="#"):
                name, *numbers = text.split()
                if name in lines:
                    raise source.error(f"repeats the node {name} of {lines[name]}", line=line)
                lines[name] = source.line(line)
                times.append(_times(numbers, lines[name]))
        if not lines:
            raise sources.error("has no nodes", "an AVT file has one line per node")
        ids = list(lines)
        times_us = np.fromiter(chain.from_iterable(times), np.int64).reshape(-1, 2) * 1_000_000
        lengths = np.fromiter(map(len, times), np.int64) // 2
        device = np.repeat(np.arange(len(ids), dtype=np.int64), lengths)
        caveats = []
        if params.window is not None:
            end_us = round(params.window * 1e6)
        else:
            end_us = int(times_us.max(initial=0))
            caveats.append("no window was given: it is assumed to end with the last stop")
        if end_us <= 0:
            hint = "give the length of the observation: -s window=2478200"
            raise sources.error("has no interval after time 0 and no window", hint)
        counts: dict[str, int] = {}
        tables, intervals = observed_tables(
            ids, device, times_us[:, 0], times_us[:, 1], (0, end_us), counts
        )
        note_outside(intervals, counts, end_us, caveats, sources.where)
        note_polling(intervals, counts, caveats)
        return Imported(tables, counts, caveats, eligibility="up")


def _times(cells: list[str], where: str) -> list[int]:
    """Starts and stops of a line (s), alternating."""
    times = numbers_of(cells, "a time", lambda _: where, TIME_S, "s")
    if (times % 1 != 0).any():
        raise UserError(
            f"a time is {cells[int((times % 1 != 0).argmax())]!r}", where=where, hint=_LINE
        )
    numbers = times.astype(np.int64).tolist()
    if not numbers or len(numbers) - 1 != 2 * numbers[0]:
        message = f"its number of intervals does not agree with its {len(cells)} numbers"
        raise UserError(message, where=where, hint=_LINE)
    return list(numbers[1:])
