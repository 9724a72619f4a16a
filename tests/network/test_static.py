"""Static links against hand-worked transfer times."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.network.static import StaticNetwork
from fedsim.units import NEVER

DOWN, UP = Direction.DOWN, Direction.UP


def two_clients() -> StaticNetwork:
    """Client 0: 40 ms, 8 Mbit/s down, 2 up. Client 1: no latency, 3 Mbit/s down, uplink broken."""
    return StaticNetwork(
        latency_s=np.array([0.04, 0.0]),
        down_bps=np.array([8e6, 3e6]),
        up_bps=np.array([2e6, 0.0]),
        clients=2,
    )


@pytest.mark.parametrize(
    ("client", "direction", "size_bytes", "start_ns", "end_ns"),
    [
        (0, DOWN, 1_000_000, 0, 1_040_000_000),  # 8 Mbit at 8 Mbit/s, 40 ms later
        (0, UP, 1_000_000, 7, 4_040_000_007),
        (1, DOWN, 1, 0, 2667),  # 8 bit at 3 Mbit/s = 2666.67 ns, to the nearest
        (1, DOWN, 1_000_000, 0, 2_666_666_667),
        (0, DOWN, 0, 5, 40_000_005),  # an empty message still takes the latency
        (1, UP, 1, 0, NEVER),
        (1, UP, 0, 3, 3),
    ],
)
def test_end_of_a_transfer(
    client: int, direction: Direction, size_bytes: int, start_ns: int, end_ns: int
) -> None:
    end = two_clients().transfer_end_ns(client, direction, size_bytes, start_ns)
    assert end == end_ns
    assert type(end) is int


def test_bytes_of_a_transfer_cut_off() -> None:
    network = two_clients()
    assert network.bytes_by(0, DOWN, 1_000_000, 0, 250_000_000) == 250_000
    assert network.bytes_by(0, DOWN, 1_000_000, 0, 5_000_000_000) == 1_000_000
    assert network.bytes_by(0, DOWN, 1_000_000, 10, 10) == 0
    assert network.bytes_by(0, DOWN, 1_000_000, 10, 5) == 0
    assert network.bytes_by(1, UP, 1_000_000, 0, 5_000_000_000) == 0


def test_a_transfer_beyond_the_clock_never_ends() -> None:
    network = StaticNetwork(latency_s=0, down_bps=1e-3, up_bps=1, clients=1)
    assert network.transfer_end_ns(0, DOWN, 1e9, 0) == NEVER
    assert network.transfer_end_ns(0, DOWN, 1, NEVER - 10) == NEVER


def test_an_infinite_rate_costs_only_the_latency() -> None:
    network = StaticNetwork(latency_s=0.001, down_bps=np.inf, up_bps=1, clients=1)
    assert network.transfer_end_ns(0, DOWN, 1e9, 5) == 1_000_005
    assert network.bytes_by(0, DOWN, 1e9, 5, 6) == 1e9


@pytest.mark.parametrize(
    ("column", "value", "where"),
    [
        ("down_bps", -1.0, "network.down: rate of client 0"),
        ("up_bps", [1.0, np.nan], "network.up: rate of client 1"),
        ("latency_s", [0.0, np.nan], "network.latency: latency of client 1"),
    ],
)
def test_a_bad_column_is_refused(column: str, value: Any, where: str) -> None:
    columns: dict[str, Any] = {"latency_s": 0.0, "down_bps": 1.0, "up_bps": 1.0, column: value}
    with pytest.raises(UserError, match=where):
        StaticNetwork(clients=2, **columns)


@given(
    size_bytes=st.integers(1, 10**10),
    rate_bps=st.floats(1e3, 1e11),
    start_ns=st.integers(0, 10**17),
)
def test_cutting_at_the_end_loses_nothing(size_bytes: int, rate_bps: float, start_ns: int) -> None:
    network = StaticNetwork(latency_s=0, down_bps=rate_bps, up_bps=1, clients=1)
    end_ns = network.transfer_end_ns(0, DOWN, size_bytes, start_ns)
    grain_bytes = rate_bps / 8e9 + 1e-12 * size_bytes  # what moves in one nanosecond
    assert abs(network.bytes_by(0, DOWN, size_bytes, start_ns, end_ns) - size_bytes) <= grain_bytes
