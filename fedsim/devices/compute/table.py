"""The compute table of a trace bundle by client."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from fedsim.traces.bundle import TraceBundle


class ComputeTable:
    """For each client the first row of its device in the bundle's ``compute`` table.

    Args:
        bundle: bundle with a table ``compute``.
        device_rows: row of each client's device in ``devices``, (N,).
        task: take only rows of this task; ``*`` takes those of any.
    """

    def __init__(
        self, bundle: TraceBundle, device_rows: npt.NDArray[np.int64], task: str = "*"
    ) -> None:
        self._bundle = bundle
        devices = bundle.device_rows("compute")
        usable = devices >= 0
        if task != "*":
            usable &= self._equals("task", task)
        rows = np.flatnonzero(usable)[::-1]
        first = np.full(bundle.device_count, -1, dtype=np.int64)
        first[devices[rows]] = rows
        self._rows = first[device_rows]

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """A numeric column, (N,); NaN where it is not known."""
        if name not in self._bundle.tables["compute"].column_names:
            return np.full(len(self._rows), np.nan)
        values = np.append(self._bundle.numpy("compute", name).astype(np.float64), np.nan)
        taken: npt.NDArray[np.float64] = values[self._rows]
        return taken

    def is_inference(self) -> npt.NDArray[np.bool_]:
        """Whether each client's row was measured for inference, (N,)."""
        taken: npt.NDArray[np.bool_] = np.append(self._equals("phase", "inference"), False)[
            self._rows
        ]
        return taken

    def _equals(self, name: str, word: str) -> npt.NDArray[np.bool_]:
        column = self._bundle.tables["compute"].column(name)
        equal: npt.NDArray[np.bool_] = pc.fill_null(pc.equal(column, word), False).to_numpy()
        return equal
