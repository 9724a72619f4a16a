"""Parameters of parts that read a trace bundle; importing them loads no table reader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedsim.components import Parameters


class TraceParameters(Parameters):
    """Parameters of a part that may read a trace bundle."""

    trace: Path | None = None
    """Another bundle than ``devices.trace``, relative to the scenario file; client and device are paired by row."""

    def needs_tables(self) -> Mapping[str, str]:
        """Tables of the bundle that these parameters need, each with what to write instead of naming a bundle.

        :mod:`fedsim.composition.requirements` checks that they exist before the part is built.
        """
        return {}
