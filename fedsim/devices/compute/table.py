"""The compute table of a trace bundle by client."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.devices.context import DeviceContext
from fedsim.errors import UserError
from fedsim.formatting import format_counted


class ComputeTable:
    """The first row of each client's device in the bundle's ``compute`` table.

    Args:
        context: the population; its bundle has a table ``compute``.
        task: use only rows of this task; ``*`` for any.
    """

    def __init__(self, context: DeviceContext, task: str = "*") -> None:
        assert context.bundle is not None
        self._bundle, self._device_rows = context.bundle, context.device_rows
        devices = self._bundle.device_rows("compute")
        usable = devices >= 0
        if task != "*":
            usable &= self._bundle.texts("compute", "task") == task
        rows = np.flatnonzero(usable)[::-1]
        first = np.full(self._bundle.device_count, -1, dtype=np.int64)
        first[devices[rows]] = rows
        self._rows = first[self._device_rows]

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

    def require(
        self, values: npt.NDArray[np.float64], lacking: str, hint: str, key: str = "devices.compute"
    ) -> None:
        """Check that values derived from this table are finite for all clients.

        Args:
            values: the values, (N,).
            lacking: what a client lacks if its value is not finite.
            hint: how to fix it.
            key: key of the scenario that needs the values.

        Raises:
            UserError: some values are not finite; the message counts the clients and names the first one's device.
        """
        missing = np.flatnonzero(~np.isfinite(values))
        if len(missing):
            device = self._bundle.device_ids[int(self._device_rows[missing[0]])].as_py()
            raise UserError(
                f"the trace bundle {self._bundle.manifest.name} has no {lacking} "
                f"for {format_counted(len(missing), 'client')}; the first is device '{device}'",
                where=key,
                hint=hint,
            )
