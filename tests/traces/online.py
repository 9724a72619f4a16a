"""Numbers of clients online, for several tests."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.traces.availability import AvailabilityIndex


def online_counts(
    index: AvailabilityIndex, times_ns: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Number of clients online at each of some instants (ns, ascending)."""
    clients = np.arange(index.clients)
    return np.array([index.is_online_many(clients, t_ns).sum() for t_ns in times_ns])
