"""Pensieve's "cooked" throughput traces: lines of ``time_s TAB Mbit/s``.

A rate is the mean over the interval that ends at its time. Source: Mao, Netravali, Alizadeh, "Neural Adaptive Video
Streaming with Pensieve", SIGCOMM 2017; many bandwidth collections are published in this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._assemble import bundle, microseconds
from fedsim.traces.importers._files import SourceFile, source_files
from fedsim.traces.importers._series import Series, require_single, series_names, series_tables


class PensieveParams(ImporterParams):
    """Options of the Pensieve importer."""

    direction: Literal["down", "up", "both"] = "down"
    """Direction that was measured."""
    app_limited: bool = False
    """The rates are those of an application (a video player), not what the link could carry (Puffer): noted in the
    manifest, since such a link looks slower than it is."""


class Pensieve(Importer):
    """One series a file, from its first time on; the first line's rate belongs to no interval and is dropped.

    Lines at one time are joined: the last interval that ends there counts. The series repeats when it runs out.
    """

    name: ClassVar[str] = "pensieve"
    description: ClassVar[str] = "Pensieve cooked throughput traces (time, Mbit/s), a file a link"
    Params: ClassVar[type[Parameters]] = PensieveParams

    @classmethod
    def read(cls, paths: Sequence[Path], params: PensieveParams) -> TraceBundle:
        """See :meth:`Importer.read`."""
        sources = list(source_files(paths))
        names = series_names([source.name for source in sources], (".txt", ".log", ".csv"))
        require_single(names, [source.where for source in sources])
        counts = {"first_rates": 0, "zero_length": 0}
        series = []
        for name, source in zip(names, sources, strict=True):
            time_us, rate_bps = _samples(source)
            length = np.diff(time_us)
            late = np.flatnonzero(length < 0)
            if len(late):
                raise UserError(
                    f"sample {late[0] + 2} is at {time_us[late[0] + 1] / 1e6:g} s, before its forerunner",
                    where=source.where,
                    hint="times must not go back; split the file there",
                )
            keep = length > 0
            if not keep.any():
                raise UserError(
                    "has no interval between two times",
                    where=source.where,
                    hint="a cooked trace has at least two lines at different times",
                )
            counts["first_rates"] += 1
            counts["zero_length"] += int(np.count_nonzero(~keep))
            edges_us = np.append(0, np.cumsum(length[keep]))
            series.append(Series(name, params.direction, edges_us, rate_bps[1:][keep]))
        tables = series_tables(series)
        caveats = ["rates of an application, not of the link"] if params.app_limited else []
        return bundle(
            cls,
            params,
            paths,
            tables,
            counts,
            horizon_us=int(tables["devices"].column("window_end_us").to_numpy().max()),
            on_end="wrap",
            caveats=caveats,
        )


def _samples(
    source: SourceFile,
) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.float64]]:
    lines = [
        (number, text.split())
        for number, text in enumerate(source.text().splitlines(), start=1)
        if text.strip()
    ]
    for number, fields in lines:
        if len(fields) != 2:
            raise UserError(
                f"has {len(fields)} fields, not 2",
                where=source.line(number),
                hint="a cooked trace has lines of: time in seconds, a tab, Mbit/s",
            )
    try:
        values = np.array([fields for _, fields in lines], dtype=np.float64).reshape(-1, 2)
    except ValueError:
        values = np.array([[_number(field) for field in fields] for _, fields in lines])
    good = np.isfinite(values).all(axis=1) & (np.abs(values[:, 0]) < 4e12) & (values[:, 1] >= 0)
    if not good.all():
        row = int(np.argmin(good))
        raise UserError(
            f"'{' '.join(lines[row][1])}' is not a time and a rate of 0 or more",
            where=source.line(lines[row][0]),
            hint="a cooked trace has lines of: time in seconds, a tab, Mbit/s",
        )
    return microseconds(values[:, 0]), values[:, 1] * 1e6


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
