"""What the exporters of rate series share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle


@dataclass(frozen=True)
class Link:
    """One direction of one series: edges of its pieces (us), shape (n + 1,), and their rates, shape (n,)."""

    series_id: str
    direction: str
    edges_us: npt.NDArray[np.int64]
    rate_bps: npt.NDArray[np.float64]

    @property
    def file_name(self) -> str:
        """The series' name if it can be a file name."""
        return self.series_id.replace("/", "_")


def links(bundle: TraceBundle) -> Iterator[Link]:
    """The series of a bundle, each from its first piece on.

    Raises:
        UserError: the bundle has no series, a rate is unknown, or two names would be the same file.
    """
    table = bundle.table("network_series")
    start = bundle.numpy("network_series", "start_us")
    end = start + bundle.numpy("network_series", "dur_us")
    rate = bundle.numpy("network_series", "rate_bps")
    unknown = np.flatnonzero(np.isnan(rate))
    if len(unknown):
        raise UserError(
            f"network_series row {unknown[0]} has no rate",
            where=bundle.where,
            hint="the format cannot express an unknown rate",
        )
    series = table.column("series_id").cast(pa.string()).to_numpy()
    direction = table.column("direction").cast(pa.string()).to_numpy()
    change = (series[1:] != series[:-1]) | (direction[1:] != direction[:-1])
    first = np.append(0, np.flatnonzero(change) + 1)[: len(series)]
    seen: dict[tuple[str, str], str] = {}
    for low, high in zip(first, np.append(first[1:], len(series)), strict=True):
        link = Link(
            str(series[low]),
            str(direction[low]),
            np.append(start[low:high], end[high - 1]),
            rate[low:high],
        )
        other = seen.setdefault((link.file_name, link.direction), link.series_id)
        if other != link.series_id:
            raise UserError(
                f"the series '{other}' and '{link.series_id}' would be the same file",
                where=bundle.where,
                hint="rename one of them",
            )
        yield link


def check_folder(path: Path) -> None:
    """Refuse a path that is a file where a folder of files is to be written.

    Raises:
        UserError: ``path`` is a file.
    """
    if path.exists() and not path.is_dir():
        raise UserError(
            "is a file", where=str(path), hint="name a folder: there is one file a series"
        )
