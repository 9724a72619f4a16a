"""The figure of what crossed the network, vector by vector."""

from __future__ import annotations

import pandas as pd

from fedsim.analysis.figures.base import Columns, Figure, columns_of
from fedsim.runs import Run
from fedsim.vocabulary.formatting import format_bytes, format_names, format_share

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
    table["share"] = table["bytes"] / table["bytes_raw"]
    table["total"] = [_total(run, row) for _, row in table.iterrows()]
    sizes = table.groupby("direction", sort=False)[["bytes_raw", "bytes"]].sum()
    whole = " of the whole model" if run.info.get("parts") else ""
    parts = [
        f"{'a compressed download' if way == 'down' else 'an upload'}{whole} has {format_bytes(size['bytes'])}, "
        f"{format_share(size['bytes'] / size['bytes_raw'])} of its size without compression"
        for way, size in sizes.iterrows()
        if size["bytes"] != size["bytes_raw"]
    ]
    finding = format_names(parts)
    return Figure("vectors", f"{finding[0].upper()}{finding[1:]}.", columns_of(table, _VECTORS))


def _total(run: Run, vector: pd.Series) -> float:
    """Bytes of a vector in all dispatches: its share of the bytes of each, which may have been cut off."""
    way = vector["direction"]
    first, usual = run.info["bytes_down_first_dispatch"], run.info[f"bytes_{way}_per_dispatch"]
    is_first = (run.dispatches["sequence"] == 0) & (way == "down")
    sent = run.dispatches[f"bytes_{way}"]
    of_first = sent[is_first].sum() * vector["bytes_first"] / first
    return float(of_first + sent[~is_first].sum() * vector["bytes"] / usual)
