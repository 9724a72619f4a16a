"""AVT, the text form of the Repository of Availability Traces (Godfrey): one line per node, up-intervals in seconds.

``id TAB n TAB start stop start stop ...``, whole seconds from the trace's start. The observation window is not in the
file.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from fedsim.errors import UserError
from fedsim.files.cells import TIME_S
from fedsim.files.sources import Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import (
    microseconds,
    note_outside,
    numbers_of,
    observed_tables,
)
from fedsim.traces.tables import run_starts
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
        cells: list[list[str]] = []
        for source in sources:
            for line, text in source.lines(skip="#"):
                name, *numbers = text.split()
                if name in lines:
                    raise source.error(f"repeats the node {name} of {lines[name]}", line=line)
                lines[name] = source.line(line)
                cells.append(numbers)
        if not lines:
            raise sources.error("has no nodes", "an AVT file has one line per node")
        ids, wheres = list(lines), list(lines.values())
        device = np.repeat(np.arange(len(ids)), [*map(len, cells)])
        flat = [*chain.from_iterable(cells)]
        seconds = numbers_of(flat, "a time", lambda at: wheres[device[at]], TIME_S, "s")
        if len(odd := np.flatnonzero(seconds % 1)):
            raise UserError(f"a time is '{flat[odd[0]]}'", where=wheres[device[odd[0]]], hint=_LINE)
        is_first = run_starts(device)
        counted = np.full(len(ids), np.nan)
        counted[device[is_first]] = seconds[is_first]
        for row in np.flatnonzero(2 * counted + 1 != [*map(len, cells)])[:1]:
            message = f"its number of intervals does not agree with its {len(cells[row])} numbers"
            raise UserError(message, where=wheres[row], hint=_LINE)
        start_us, end_us = microseconds(seconds[~is_first]).reshape(-1, 2).T
        device = device[~is_first][::2]
        caveats = []
        if params.window is not None:
            window_us = round(params.window * 1e6)
        else:
            window_us = max(int(start_us.max(initial=0)), int(end_us.max(initial=0)))
            caveats.append("no window was given: it is assumed to end with the last stop")
        if window_us <= 0:
            hint = "give the length of the observation: -s window=2478200"
            raise sources.error("has no interval after time 0 and no window", hint)
        counts: dict[str, int] = {}
        window = 0, window_us
        tables, intervals = observed_tables(ids, device, start_us, end_us, window, counts)
        note_outside(intervals, counts, window_us, caveats, sources.where)
        return Imported(tables, counts, caveats, eligibility="up")
