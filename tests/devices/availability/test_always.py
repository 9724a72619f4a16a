"""Clients that are always online, unless they are not eligible."""

from __future__ import annotations

import numpy as np

from fedsim.devices.availability.always import Always
from fedsim.units import NEVER
from tests.devices.compute.population import context


def test_eligible_clients_are_online_at_every_time() -> None:
    model = Always(Always.Params(), context(3, eligible=np.array([True, False, True])))
    clients = np.arange(3)
    for now_ns in (0, 10**18):
        times_ns = np.full(3, now_ns)
        first_ns = model.index().next_online_many(clients, times_ns)
        assert first_ns.tolist() == [now_ns, NEVER, now_ns]
    assert model.offset_ns() == 0
