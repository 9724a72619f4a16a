"""The interval index against a reference that looks at every microsecond, and against cases worked by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.traces.availability import AvailabilityIndex, OnlineSampler, Sweep
from fedsim.traces.tables import make_table
from fedsim.units import NEVER
from tests.traces import cases

US = 1000
SPAN_US = 90
"""The reference looks this far; every answer that is not NEVER lies well within it."""


def bundle_of(devices, on_end="wrap"):
    """A bundle from one dict a device: window, period, valid, intervals (all in us)."""
    return cases.bundle_of(
        {f"d{number}": device["intervals"] for number, device in enumerate(devices)},
        devices={
            "window_start_us": [device["window"][0] for device in devices],
            "window_end_us": [device["window"][1] for device in devices],
            "period_us": [device.get("period") for device in devices],
            "valid": [device.get("valid", True) for device in devices],
        },
        on_end=on_end,
    )


@st.composite
def device(draw):
    start = draw(st.integers(0, 4))
    edges = draw(st.lists(st.integers(0, 10), max_size=8, unique=True).map(sorted))
    end = start + max([*edges[-1:], 1]) + draw(st.integers(0, 2))
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    if draw(st.booleans()) and len(pairs) > 1:
        # Zero gaps: intervals that touch.
        pairs = [
            (a, pairs[i + 1][0]) if i + 1 < len(pairs) else (a, b) for i, (a, b) in enumerate(pairs)
        ]
    period = draw(st.none() | st.integers(end - start, end - start + 3))
    return {
        "window": (start, end),
        "period": period,
        "valid": draw(st.sampled_from([True, True, True, False])) or bool(pairs),
        "intervals": [(start + a, start + b) for a, b in pairs],
    }


@st.composite
def population(draw):
    devices = draw(st.lists(device(), min_size=1, max_size=4))
    count = draw(st.integers(1, 5))
    rows = draw(st.lists(st.integers(0, len(devices) - 1), min_size=count, max_size=count))
    shifts = draw(st.lists(st.integers(-9, 12), min_size=count, max_size=count))
    eligible = draw(
        st.lists(st.sampled_from([True, True, True, False]), min_size=count, max_size=count)
    )
    start = draw(st.integers(0, 6))
    mode = draw(st.sampled_from(["wrap", "wrap", "hold", "unavailable"]))
    return devices, rows, shifts, eligible, start, mode


def reference_online(device, trace_us, mode):
    low, high = device["window"]
    if mode == "wrap":
        period = device["period"] or high - low
        trace_us = low + (trace_us - low) % period
    elif mode == "hold":
        trace_us = min(max(trace_us, low), high - 1)
    return any(a <= trace_us < b for a, b in device["intervals"])


def reference_table(case):
    devices, rows, shifts, eligible, start, mode = case
    return np.array(
        [
            [ok and reference_online(devices[row], start + shift + t, mode) for t in range(SPAN_US)]
            for row, shift, ok in zip(rows, shifts, eligible, strict=True)
        ]
    )


def make_index(case):
    devices, rows, shifts, eligible, start, mode = case
    return AvailabilityIndex.from_bundle(
        bundle_of(devices, mode),
        np.array(rows),
        np.array(shifts) * US,
        np.array(eligible),
        start_us=start,
    )


def first_where(states, begin, value):
    matches = np.flatnonzero(states[begin:] == value)
    return begin + int(matches[0]) if len(matches) else None


def reference_finish(states, t_ns, work_ns):
    if work_ns <= 0:
        return t_ns
    while t_ns // US < SPAN_US:
        step = min(US - t_ns % US, work_ns)
        if states[t_ns // US]:
            work_ns -= step
            if not work_ns:
                return t_ns + step
        else:
            step = US - t_ns % US
        t_ns += step
    return NEVER


@settings(max_examples=70, deadline=None)
@given(population(), st.integers(0, 40 * US), st.integers(0, 12 * US))
def test_every_look_up_agrees_with_the_reference(case, t_ns, work_ns):
    table = reference_table(case)
    index = make_index(case)
    clients = np.arange(index.clients)
    now = t_ns // US
    until, following = [], []
    for client in range(index.clients):
        states = table[client]
        online = bool(states[now])
        off, on = first_where(states, now, False), first_where(states, now, True)
        until.append(t_ns if not online else NEVER if off is None else off * US)
        following.append(t_ns if online else NEVER if on is None else on * US)
        assert index.is_online(client, t_ns) == online
        assert index.online_until(client, t_ns) == until[-1]
        assert index.next_online(client, t_ns) == following[-1]
        # More work than the reference can look ahead for is never finished in its eyes.
        finish = index.finish_after(client, t_ns, work_ns)
        assert min(finish, SPAN_US * US) == min(
            reference_finish(states, t_ns, work_ns), SPAN_US * US
        )
    assert index.state_many(clients, t_ns)[0].tolist() == table[:, now].tolist()
    assert index.online_clients(t_ns).tolist() == np.flatnonzero(table[:, now]).tolist()
    rises = np.flatnonzero((table[:, now + 1 :] & ~table[:, now:-1]).any(axis=0))
    assert index.next_arrival(t_ns) == ((now + 1 + int(rises[0])) * US if len(rises) else NEVER)


@settings(max_examples=70, deadline=None)
@given(population(), st.integers(0, 30 * US), st.integers(0, 40 * US))
def test_spans_agree_with_the_reference(case, start_ns, length_ns):
    table = reference_table(case)
    index = make_index(case)
    end_ns = start_ns + length_ns
    lengths = np.zeros(SPAN_US, np.int64)
    for us in range(SPAN_US):
        lengths[us] = max(0, min(end_ns, (us + 1) * US) - max(start_ns, us * US))
    expected = (table * lengths).sum(axis=1)
    assert index.online_between_ns(start_ns, end_ns).tolist() == expected.tolist()
    who, begin, until = index.intervals_between(np.arange(index.clients), start_ns, end_ns)
    total = np.zeros(index.clients, np.int64)
    np.add.at(total, who, until - begin)
    assert total.tolist() == expected.tolist()
    assert (begin < until).all()
    same = who[1:] == who[:-1]
    assert (who[1:] >= who[:-1]).all()
    assert (begin[1:][same] > until[:-1][same]).all()
    for client, a, b in zip(who, begin, until, strict=True):
        assert table[client, a // US : -(-b // US)].all()
    for step_ns in (700, US, 10**6):
        instants = np.arange(0, end_ns + 1, step_ns)
        counts, online_ns = index.online_summary(step_ns, end_ns)
        assert counts.tolist() == table[:, instants // US].sum(axis=0).tolist()
        assert online_ns.tolist() == index.online_between_ns(0, end_ns).tolist()


@settings(max_examples=60, deadline=None)
@given(population(), st.lists(st.integers(0, 40 * US), min_size=1, max_size=8))
def test_the_sweep_answers_the_same_in_any_order_of_instants(case, instants):
    table = reference_table(case)
    index = make_index(case)
    sweep = Sweep(index, np.arange(index.clients))
    for t_ns in instants:
        sweep.advance(t_ns)
        for online in (sweep.online_clients, index.online_clients(t_ns)):
            assert online.tolist() == np.flatnonzero(table[:, t_ns // US]).tolist()
        for client in sweep.online_clients.tolist():
            assert int(sweep.change_ns[client]) == index.online_until(client, t_ns)


def one(intervals, window=(0, 10), **more):
    return bundle_of([{"window": window, "intervals": intervals, **more}])


def test_on_end_error_refuses_instants_beyond_the_window():
    index = AvailabilityIndex.from_bundle(one([(8, 10)]), on_end="error")
    assert index.horizon_ns == 10 * US
    assert index.online_until(0, 9 * US) == 10 * US
    for ask in (
        lambda: index.is_online(0, 10 * US),
        lambda: index.online_until(0, 10 * US),
        lambda: index.next_online(0, 10 * US),
        lambda: index.finish_after(0, 10 * US, 1),
        lambda: index.state_many([0], 10 * US)[0],
        lambda: index.online_between_ns(0, 11 * US),
        lambda: index.online_summary(US, 10 * US),
    ):
        with pytest.raises(UserError, match="on_end is error"):
            ask()


def test_rows_of_unavailability_are_gaps():
    bundle = one([(0, 2), (2, 5), (5, 7)])
    table = bundle.tables["availability"].append_column("state", [np.array([1, 0, 1], np.int8)])
    bundle.tables["availability"] = make_table(
        "availability", {name: table.column(name) for name in table.column_names}
    )
    index = AvailabilityIndex.from_bundle(bundle)
    assert [index.is_online(0, t * US) for t in range(8)] == [1, 1, 0, 0, 0, 1, 1, 0]


def test_always_and_nobody():
    index = AvailabilityIndex.always(3)
    assert index.online_until(2, 5) == NEVER
    assert index.next_online(0, 7) == 7
    assert index.finish_after(1, 7, 5) == 12
    assert index.online_clients(10**15).tolist() == [0, 1, 2]
    assert index.online_between_ns(5, 10**15).tolist() == [10**15 - 5] * 3
    assert index.online_summary(10**14, 10**14)[0].tolist() == [3, 3]
    assert index.next_arrival(0) == NEVER
    nobody = AvailabilityIndex.from_bundle(one([]))
    assert nobody.next_online(0, 3) == NEVER
    assert nobody.online_clients(3).tolist() == []
    assert nobody.online_between_ns(0, 10**9).tolist() == [0]
    assert AvailabilityIndex.always(0).online_clients(0).tolist() == []


@pytest.mark.parametrize(
    ("intervals", "message"),
    [
        ([(0, 5), (3, 7)], "availability row 1: starts at 3 us and overlaps"),
        ([(5, 3)], "availability row 0: the interval .5, 3. us is reversed"),
        ([(5, 12)], "not inside the window"),
    ],
)
def test_a_contradictory_trace_is_refused_with_its_row(intervals, message):
    with pytest.raises(UserError, match=message):
        AvailabilityIndex.from_bundle(one(intervals))


# Sampling ---------------------------------------------------------------------------------------------------------


def busy_week(clients, seed=0):
    """Clients with many short sessions over 600 s, on a fifth of the time."""
    generator = np.random.default_rng(seed)
    devices = []
    for _ in range(clients):
        edges = np.cumsum(generator.exponential(np.tile([40e6, 10e6], 30))).astype(np.int64)
        edges = edges[edges < 600_000_000]
        pairs = [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=False) if a < b]
        devices.append({"window": (0, 600_000_000), "intervals": pairs})
    return AvailabilityIndex.from_bundle(bundle_of(devices))


WEEKS = [busy_week(40), busy_week(200, seed=1)]


def sampler_of(index, stream, everybody):
    """A sampler that draws from everybody, as from a large population, or from lists."""
    sampler = OnlineSampler(index, stream)
    if everybody:
        sampler._LARGE = 0
    return sampler


@pytest.mark.parametrize("everybody", [False, True])
@pytest.mark.parametrize(("k", "busy_share"), [(1, 0.0), (1, 0.97), (3, 0.0), (3, 0.9), (30, 0.0)])
def test_every_acceptable_client_is_drawn_equally_often(k, busy_share, everybody):
    index = busy_week(400)
    t_ns = 300_000_000_000
    online = index.online_clients(t_ns)
    busy = np.zeros(400, np.bool_)
    busy[online[: int(busy_share * len(online))]] = True
    acceptable = online[~busy[online]]
    k = min(k, len(acceptable) - 1) or 1
    sampler = sampler_of(index, Stream(5, Purpose.SELECTION), everybody)
    # A client that is drawn twice as often as the others exceeds its share by 7 standard deviations in 4000 draws of
    # one from 73 clients, and by 11 or more in 1000 draws from the few that are left if many are busy.
    draws = 1000 if busy_share else 4000
    counts = np.zeros(400)
    for draw in range(draws):
        counts[sampler.sample(k, t_ns, busy, draw)] += 1
    assert counts.sum() == counts[acceptable].sum() == k * draws
    share = k / len(acceptable)
    spread = np.sqrt(draws * share * (1 - share))
    assert np.abs(counts[acceptable] - draws * share).max() <= 4.5 * spread


def plain_draw(index, stream, k, t_ns, busy, draw, everybody):
    """What is to be drawn: attempts on everybody or the list of the bin; else the acceptable clients by their keys."""
    bin_ns = min(max(index.mean_session_ns // 4, 10**9), 86_400 * 10**9)
    start_ns = t_ns // bin_ns * bin_ns
    every = range(index.clients)
    listed = [c for c in every if index.next_online(c, start_ns) < start_ns + bin_ns]
    acceptable = [c for c in every if index.is_online(c, t_ns) and not busy[c]]
    attempts = 64 if k == 1 else 64 + 8 * k if 4 * k < len(listed) else 0
    probes = [int(stream.uniform(0, (1 << 41) + k) * index.clients) for k in range(512)]
    probed_ns = t_ns // (8 * bin_ns) * 8 * bin_ns
    share = np.mean([index.is_online(client, probed_ns) for client in probes])
    if everybody and share >= 1 / 32:
        listed = every
        attempts = int(12 / share) + 64 + (0 if k == 1 else int(8 * k / share))
        if k > 1 and 4 * k >= share * index.clients:
            attempts = 0
    chosen = []
    for attempt in range(attempts if listed else 0):
        client = listed[int(stream.uniform(draw, attempt) * len(listed))]
        if client in acceptable and client not in chosen:
            chosen.append(client)
        if len(chosen) == k:
            return chosen
    return sorted(acceptable, key=lambda c: stream.hash(draw, c + (1 << 20)))[:k]


@st.composite
def draws_while_clients_come_and_go(draw):
    """Numbers wanted at instants that mostly grow, and how many more of those online are free then."""
    steps = st.sampled_from([0, 0, 1, 10**6, 10**8, 10**9, 4 * 10**9, 10**11, -(10**9), -(10**10)])
    counts = st.sampled_from([1, 1, 2, 3, 5, 9, 30])
    more = st.sampled_from([-2, -1, 0, 0, 1, 1, 4, 60])
    asked = draw(st.lists(st.tuples(steps, counts, more), min_size=1, max_size=40))
    return (
        draw(st.integers(0, 2**32)),
        draw(st.integers(0, 10) | st.integers(10**11, 10**12)),
        asked,
    )


@pytest.mark.parametrize(
    ("short", "everybody"), [(OnlineSampler._SHORT, False), (0, False), (0, True)]
)
@settings(max_examples=25, deadline=None)
@given(draws_while_clients_come_and_go())
def test_what_is_drawn_is_what_the_plain_way_draws(short, everybody, case):
    seed, t_ns, asked = case
    index, stream = WEEKS[seed % 2], Stream(seed, Purpose.SELECTION)
    sampler = sampler_of(index, stream, everybody)
    sampler._SHORT = short
    busy = np.zeros(index.clients, np.bool_)
    for draw, (step_ns, k, more) in enumerate(asked):
        t_ns = max(t_ns + step_ns, 0)
        busy[:] = True
        busy[index.online_clients(t_ns)[seed % 5 :][: max(k + more, 0)]] = False
        expected = plain_draw(index, stream, k, t_ns, busy, draw, everybody)
        assert sampler.sample(k, t_ns, busy, draw) == expected
        until_ns = {client: index.online_until(client, t_ns) for client in expected}
        assert sampler.online_until_ns == until_ns or (k > 1 and not sampler.online_until_ns)


def test_past_the_end_of_a_trace_without_one_is_refused_though_nobody_comes_or_goes():
    stays, ends = {"window": (0, 50), "intervals": [(0, 50)]}, {"window": (0, 9), "intervals": []}
    index = AvailabilityIndex.from_bundle(bundle_of([stays] * 20 + [ends], "error"))
    sampler = OnlineSampler(index, Stream(1, Purpose.SELECTION))
    free = np.zeros(21, np.bool_)
    for draw, k in enumerate((1, 2, 20)):
        assert len(sampler.sample(k, 9 * US - 1, free, draw)) == k
        with pytest.raises(UserError, match="on_end is error"):
            sampler.sample(k, 9 * US, free, draw)


def test_fewer_than_asked_and_nobody():
    index = AvailabilityIndex.from_bundle(
        bundle_of([{"window": (0, 10), "intervals": [(a, a + 5)]} for a in (0, 2, 4)])
    )
    sampler = OnlineSampler(index, Stream(0, Purpose.SELECTION))
    free = np.zeros(3, np.bool_)
    assert sorted(sampler.sample(5, 4 * US, free, 0)) == [0, 1, 2]
    assert sampler.sample(5, 1 * US, free, 1) == [0]
    assert sampler.sample(1, 9 * US, free, 2) == []
    assert sampler.sample(0, 4 * US, free, 3) == []
    assert sampler.sample(2, 4 * US, np.ones(3, np.bool_), 4) == []


@pytest.mark.parametrize("on_end", ["wrap", "hold", "unavailable"])
@pytest.mark.parametrize("start_h", [0, 5, 30, 60])
def test_the_share_of_time_that_was_not_observed(on_end: str, start_h: int) -> None:
    """Every hour of the run is looked up in the windows, which a trace that wraps repeats."""
    windows = [(8, 40, 32), (0, 48, 48), (20, 30, 50), (5, 5, 1)]
    bundle = cases.bundle_of({name: [] for name in "abcd"}, days=2)
    columns = {name: bundle.devices.column(name) for name in bundle.devices.column_names}
    for name, position in (("window_start_us", 0), ("window_end_us", 1), ("period_us", 2)):
        columns[name] = [window[position] * cases.HOUR for window in windows]
    columns["valid"] = [True, True, True, False]
    bundle.tables["devices"] = make_table("devices", columns)
    index = AvailabilityIndex.from_bundle(bundle, start_us=start_h * cases.HOUR, on_end=on_end)
    until = 130
    lost = 0
    for low, high, period in windows[:3]:
        for hour in range(start_h, start_h + until):
            folded = low + (hour - low) % period if on_end == "wrap" and hour >= low else hour
            lost += not low <= folded < high
    share = index.unobserved_share(until * cases.HOUR * 1000)
    assert share == pytest.approx(lost / (4 * until), abs=1e-12)
