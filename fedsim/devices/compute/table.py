"""The compute table of a trace bundle by client."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.devices.context import DeviceContext


class ComputeTable:
    """The first row of each client's device in the bundle's ``compute`` table.

    Args:
        context: the population; its bundle has a table ``compute``.
        task: use only rows of this task; ``*`` for any.
    """

    def __init__(self, context: DeviceContext, task: str = "*") -> None:
        self._bundle = context.traces
        devices = self._bundle.device_rows("compute")
        usable = devices >= 0
        if task != "*":
            usable &= self._bundle.texts("compute", "task") == task
        rows = np.flatnonzero(usable)[::-1]
        first = np.full(self._bundle.device_count, -1, dtype=np.int64)
        first[devices[rows]] = rows
        self._rows = first[context.device_rows]

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """A numeric column, (N,); NaN where unknown."""
        if not self._bundle.has("compute", name):
            return np.full(len(self._rows), np.nan)
        values = np.append(self._bundle.numpy("compute", name).astype(np.float64), np.nan)
        taken: npt.NDArray[np.float64] = values[self._rows]
        return taken

    def is_inference(self) -> npt.NDArray[np.bool_]:
        """Whether each client's row was measured for inference, (N,)."""
        inference = self._bundle.texts("compute", "phase") == "inference"
        return np.append(inference, False)[self._rows]
