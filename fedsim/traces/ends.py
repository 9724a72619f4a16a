"""What a device does beyond the end of its trace."""

from __future__ import annotations

from typing import Literal

OnEnd = Literal["wrap", "hold", "unavailable", "error"]
"""The trace repeats, holds its last state, is down, or ends the run with an error."""
