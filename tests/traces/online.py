"""Numbers of clients online, for several tests."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.traces.availability import AvailabilityIndex


def online_counts(index: AvailabilityIndex, times_ns: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Number of clients online at each of some instants (ns, ascending)."""
    times = np.asarray(times_ns, dtype=np.int64)
    return index.online_summary(times, int(times[0]), int(times[-1]) + 1)[0]
