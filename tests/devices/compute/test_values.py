"""Step times given in the scenario."""

from __future__ import annotations

import pytest

from fedsim.errors import UserError
from tests.devices.compute.population import context, times


def test_one_time_for_all_clients_or_one_each() -> None:
    assert times("values", context(3), step=0.5).step_s.tolist() == [0.5] * 3
    assert times("values", context(2), step=["1s", "250ms"]).step_s.tolist() == [1.0, 0.25]
    with pytest.raises(UserError, match="2 step times for 3 clients"):
        times("values", context(3), step=[1, 2])
