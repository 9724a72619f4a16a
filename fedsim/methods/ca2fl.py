"""CA2FL: buffered aggregation, calibrated with cached updates."""

from __future__ import annotations

from fedsim.methods.fedvarp import FedVarp


class Ca2fl(FedVarp):
    """The model moves by the mean over the buffer of (change - cached change) + mean over all clients of the cache.

    Then the changes of the buffer are cached. The rule is FedVARP's, applied to buffers of stale updates instead of
    rounds; while the cache is empty, it is FedBuff without staleness weights. Of two updates of one client in a buffer,
    the second is calibrated with the first.
    """

    name = "ca2fl"
    title = "CA2FL"
    paper = (
        "Wang et al., Tackling the Data Heterogeneity in Asynchronous Federated Learning with Cached Update "
        "Calibration, ICLR 2024, Algorithm 2"
    )
    paper_schedules = ("buffered",)
