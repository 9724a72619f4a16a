"""TCP: the published formulas, recomputed by hand."""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from fedsim.network.transport import Connection
from fedsim.network.transports.tcp import Tcp, steady_segments_per_s

MS = 1_000_000
FAST = Connection(rtt_ns=100 * MS, rate_bps=1e15, back_bps=1e15)


def tcp(**params: object) -> Tcp:
    return Tcp(Tcp.Params.model_validate({"segment": 1000, "header": 0, **params}))


def test_slow_start_doubles_from_ten_segments() -> None:
    course = tcp().course(100_000, FAST)
    assert course.windows_bytes == (10_000, 20_000, 40_000, 30_000)
    assert course.round_ns == 100 * MS
    assert course.setup_ns == 100 * MS


@pytest.mark.parametrize(("size", "rounds"), [(10_000, 0), (10_001, 1), (70_000, 2), (70_001, 3)])
def test_on_a_fast_link_only_round_trips_count(size: int, rounds: int) -> None:
    assert tcp(connection="reuse").course(size, FAST).alone_s(1e15) == pytest.approx(0.1 * rounds)


def test_static_windows_of_kurose_and_ross() -> None:
    """1 MB of 1000-byte segments at 8 Mbit/s (1 ms each), round trips of 101 ms with the segment.

    Windows of 10, 20, 40 and 80 segments leave the link idle for 91, 81, 61 and 21 ms; 160 segments fill it.
    """
    connection = Connection(rtt_ns=100 * MS, rate_bps=8e6, back_bps=1e15)
    seconds = tcp(connection="reuse").course(1_000_000, connection).alone_s(8e6)
    assert seconds == pytest.approx(1.0 + 0.091 + 0.081 + 0.061 + 0.021)


def test_a_new_connection_takes_a_round_trip() -> None:
    new, reused = (tcp(connection=form).course(5000, FAST) for form in ("new", "reuse"))
    assert new.alone_s(1e15) - reused.alone_s(1e15) == pytest.approx(0.1)


def test_every_segment_has_a_header() -> None:
    assert tcp(header=52).course(10_001, FAST).size_bytes == 10_001 + 11 * 52


def test_a_full_window_per_round_trip() -> None:
    """A window of 20 segments: 10 segments, then 20 segments per 100 ms, as a rate."""
    course = tcp(window=20_000).course(1_000_000, FAST)
    assert course.windows_bytes == (10_000,)
    assert course.stages == ((990_000, pytest.approx(20_000 * 8 / 0.1)),)


def test_padhye_at_one_percent() -> None:
    """R = 0.1 s, T0 = 0.3 s, p = 0.01, Q = p: 0.1 sqrt(0.02 / 3) + 0.01 * 0.3 * 0.01 * 1.0032."""
    denominator = 0.1 * 0.0816497 + 0.01 * 0.3 * 0.01 * 1.0032
    rate = steady_segments_per_s("reno", 0.1, 0.01)
    assert rate == pytest.approx(1 / denominator, rel=1e-6)


def test_cubic_of_rfc_9438() -> None:
    """RFC 9438, tables 1 and 2: mean windows for RTTs of 0.1 and 0.01 s; where Reno's is larger, Reno's."""
    for rtt_s, loss, window in [
        (0.1, 1e-2, 12),
        (0.1, 1e-3, 38),
        (0.1, 1e-4, 187),
        (0.1, 1e-5, 1054),
    ]:
        steady = steady_segments_per_s("cubic", rtt_s, loss) * rtt_s
        assert steady == pytest.approx(window, abs=1)
    for loss, window in [(1e-2, 12), (1e-3, 38), (1e-4, 120), (1e-5, 379), (1e-6, 1200)]:
        rate = steady_segments_per_s("cubic", 0.01, loss)
        assert rate * 0.01 == pytest.approx(max(window, 1.054 * (0.01 / loss) ** 0.75), rel=0.03)


def test_a_rare_loss_costs_its_probability_times_the_time_lost() -> None:
    """One window of 10 segments at a loss of 0.1%: a round trip more if any is lost, and 0.3 s if the last one is."""
    lossy = Connection(rtt_ns=100 * MS, rate_bps=1e12, back_bps=1e12, loss=0.001)
    course = tcp(connection="reuse").course(10_000, lossy)
    expected_s = (1 - 0.999**10) * 0.1 + 0.001 * 0.3
    assert course.alone_s(1e12) == pytest.approx(expected_s, rel=0.01)


def test_a_frequent_loss_ends_slow_start_and_leads_to_the_steady_rate() -> None:
    """At 1%, the first loss is at segment -ln(1 - q) / 0.01; a window of 10 plus that many segments follows it."""
    lossy = Connection(rtt_ns=100 * MS, rate_bps=1e9, back_bps=1e9, loss=0.01, back_loss=0.01)
    course = tcp().course(10_000_000, lossy)
    firsts = [math.log(1 - share) / math.log(0.99) for share in (0.1, 0.3, 0.5, 0.7, 0.9)]
    slow_starts = [pytest.approx(1000 * (10 + 2 * first), rel=1e-3) for first in firsts]
    assert sum(course.windows_bytes) in slow_starts
    rates = [rate for _, rate in course.stages]
    assert rates == sorted(rates, reverse=True)
    steady = steady_segments_per_s("cubic", course.round_ns / 1e9, 0.01)
    assert rates[-1] == pytest.approx(8000 * steady)
    sizes = sum(size for size, _ in course.stages)
    assert sum(course.windows_bytes) + sizes == pytest.approx(course.size_bytes)
    # Either of the two packets of the handshake is lost with probability 0.0199; each loss costs 1, 2, 4, ... s.
    lost = 1 - 0.99**2
    expected_s = 0.1 + sum(2**k * lost ** (k + 1) for k in range(60))
    assert course.setup_ns / 1e9 == pytest.approx(expected_s, abs=1e-3)


def test_reno_halves_its_window_at_every_loss() -> None:
    """From the window W at the first loss: W / 2 segments and one more per round, until 100 are sent."""
    lossy = Connection(rtt_ns=100 * MS, rate_bps=1e9, back_bps=1e9, loss=0.01)
    course = tcp(congestion="reno").course(10_000_000, lossy)
    size, rate = course.stages[0]
    rounds = (size * 8 / rate - 100 * 0.01**2 * 0.3) / 0.1
    half = (sum(course.windows_bytes) / 1000 + 10) / 4
    assert size == pytest.approx(100_000)
    assert half * rounds + rounds**2 / 2 == pytest.approx(100, rel=3e-3)


def test_segments_sent_after_each_number_of_losses() -> None:
    """Pr(more than k losses) / p segments at the window after k of them, by the Poisson distribution's sum."""
    lossy = Connection(rtt_ns=100 * MS, rate_bps=1e9, back_bps=1e9, loss=0.001)
    course = tcp(congestion="reno").course(10_000_000, lossy)
    mean = sum(size for size, _ in course.stages) / 1e6
    probabilities = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(8)]
    for losses, (size, _) in enumerate(course.stages[:8]):
        assert size == pytest.approx(1e6 * (1 - sum(probabilities[: losses + 1])))


@pytest.mark.parametrize(("congestion", "beta", "rise"), [("reno", 0.5, 1), ("cubic", 0.7, 9 / 17)])
def test_a_link_as_fast_as_the_law_is_not_always_full(
    congestion: Literal["reno", "cubic"], beta: float, rise: float
) -> None:
    """Against segments that are lost at random: a window W grows by rise / W for each, and shrinks to beta W."""
    rng = np.random.default_rng(1)
    squared, rounds = 0.0, []
    for gap in rng.exponential(100, size=20_000):
        squared += 2 * rise * gap
        rounds.append(1 / math.sqrt(squared))  # losses see the average over time
        squared *= beta**2
    times = np.array(rounds[100:]) / np.mean(rounds[100:])
    rate = steady_segments_per_s(congestion, 0.1, 0.01)
    lossy = Connection(rtt_ns=100 * MS, rate_bps=8000 * rate, back_bps=1e15, loss=0.01)
    course = tcp(congestion=congestion).course(100_000_000, lossy)
    law_s = 1 / steady_segments_per_s(congestion, course.round_ns / 1e9, 0.01)
    expected_s = np.mean(np.maximum(1 / rate, law_s * times))
    assert 8000 / course.stages[-1][1] == pytest.approx(expected_s, rel=0.01)


def test_the_mean_of_transfers_whose_segments_are_lost_at_random() -> None:
    """1000 segments over reno, 1% of them lost, on a fast link: segment after segment, in round trips."""
    rng = np.random.default_rng(1)
    durations = []
    for first in rng.geometric(0.01, size=400):
        window = 10.0 + first
        sent = first + window
        rounds = math.ceil(math.log2(min(sent, 1000) / 10 + 1))
        window /= 2
        lost = rng.random(1000) < 0.01
        for segment in range(int(min(sent, 1000)), 1000):
            rounds += 1 / window
            window = window / 2 if lost[segment] else window + 1 / window
        durations.append(rounds)
    lossy = Connection(rtt_ns=100 * MS, rate_bps=1e12, back_bps=1e12, loss=0.01)
    course = tcp(congestion="reno", connection="reuse").course(1_000_000, lossy)
    assert course.alone_s(1e12) == pytest.approx(0.1 * np.mean(durations), rel=0.03)


@pytest.mark.parametrize("window", [None, 30_000])
def test_more_bytes_loss_or_latency_never_make_a_transfer_shorter(window: int | None) -> None:
    rng = np.random.default_rng(1)

    def seconds(control: str, bps: float, size_bytes: float, loss: float, rtt_s: float) -> float:
        connection = Connection(round(rtt_s * 1e9), bps, bps, loss, loss)
        transport = tcp(congestion=control, window=window)
        return transport.course(int(size_bytes), connection).alone_s(bps)

    for control in ("cubic", "reno") * 15:
        bps, size_bytes = 10 ** rng.uniform(5.5, 9), 10 ** rng.uniform(3.5, 7.7)
        loss, rtt_s = 10 ** rng.uniform(-4.5, -1.3), 10 ** rng.uniform(-3, -0.5)
        more = 1 + 10 ** rng.uniform(-3, 0)
        least = seconds(control, bps, size_bytes, loss, rtt_s) * (1 - 1e-9)
        assert seconds(control, bps, size_bytes, 0.0, rtt_s) <= least
        assert seconds(control, bps, size_bytes * more, loss, rtt_s) >= least
        assert seconds(control, bps, size_bytes, loss * more, rtt_s) >= least
        assert seconds(control, bps, size_bytes, loss, rtt_s * more) >= least


def test_a_rate_of_loss_near_zero_costs_nothing() -> None:
    connection = Connection(rtt_ns=50 * MS, rate_bps=1e8, back_bps=1e8)
    rare = replace(connection, loss=1e-12)
    seconds = [tcp().course(10_000_000, path).alone_s(1e8) for path in (connection, rare)]
    assert seconds[1] == pytest.approx(seconds[0])


def test_a_link_that_is_down() -> None:
    down = Connection(rtt_ns=100 * MS, rate_bps=0.0, back_bps=1e6)
    assert tcp().course(1000, down).alone_s(0.0) == math.inf
