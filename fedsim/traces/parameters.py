"""Parameters of parts that read a trace bundle; importing them does not load pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from fedsim.parts.component import Parameters
from fedsim.scenario.model import Pairing

OnEnd = Literal["wrap", "hold", "unavailable", "error"]
"""Beyond its end, a trace repeats, keeps its last state, is unavailable, or ends the run with an error."""


class TraceParameters(Parameters):
    """Parameters of a part that may read a trace bundle."""

    trace: Path | None = None
    """Bundle to use instead of ``devices.trace``, relative to the scenario file."""
    assign: Pairing | None = None
    """How clients are paired with the devices of the bundle, if not as in ``devices.assign``."""

    def needs_tables(self) -> Mapping[str, str]:
        """Tables of the bundle that these parameters need, each with a setting that works without it.

        :mod:`fedsim.composition.needs` checks that they exist before the part is built.
        """
        return {}
