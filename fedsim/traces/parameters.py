"""Parameters of parts that read a trace bundle; importing them loads no table reader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedsim.components import Parameters
from fedsim.errors import UserError

if TYPE_CHECKING:
    from fedsim.traces.bundle import TraceBundle


class TraceParameters(Parameters):
    """Parameters of a part that may read a trace bundle."""

    trace: Path | None = None
    """Another bundle than ``devices.trace``, relative to the scenario file; client and device are paired by row."""

    def needs_tables(self) -> Mapping[str, str]:
        """Tables of the bundle that these parameters need, each with what to write instead of naming a bundle."""
        return {}


def require_tables(params: Parameters, bundle: TraceBundle | None, where: str) -> None:
    """Check that the bundle has the tables that a part needs.

    Raises:
        UserError: there is no bundle, or it lacks a table.
    """
    if not isinstance(params, TraceParameters):
        return
    for table, instead in params.needs_tables().items():
        if bundle is None or table not in bundle.tables:
            raise UserError(
                f"there is no {table} table to read",
                where=where,
                hint=f"name a trace bundle that has one (devices.trace), or {instead}",
            )
