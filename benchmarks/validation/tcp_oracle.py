"""Kernel TCP against ``transport: {name: tcp}``: single transfers, with loss, and sharing a link.

``python -m benchmarks.validation.tcp_oracle measure`` adds the measurements that are missing to ``tcp_measured.jsonl``
(about an hour, resumable); ``table`` compares them with the model of this checkout and writes ``tcp_oracle.md``.

Conditions: uploads over a new connection, timed from connect() to the receipt of the last byte; buffer of one
bandwidth-delay product, and at least 32 packets; HyStart on (cubic), pacing off, initial timeout 1 s, GSO on, queues
are token buckets of one packet with a drop-tail buffer; delay, serialization and loss by the packet relay.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import markdown
from benchmarks.validation.netns import Link, Net, inside, tcp_socket, unavailable
from benchmarks.validation.page import replace_table
from benchmarks.validation.relay import raise_priority
from fedsim.network.base import Direction
from fedsim.network.graphs import Direct
from fedsim.network.shared import SharedNetwork
from fedsim.network.static import StaticNetwork
from fedsim.network.transport import Transport, TransportedNetwork
from fedsim.network.transports.fluid import Fluid
from fedsim.network.transports.tcp import Tcp
from fedsim.parts.component import Parameters
from fedsim.units import NEVER, to_ns

HERE = Path(__file__).parent
MEASURED = HERE / "tcp_measured.jsonl"
TABLE = HERE / "tcp_oracle.md"
MARK = "transfers"
HELD_OUT = "held out, "
"""Before the names of series with parameters between those of the grid, which nothing in the model was chosen on."""
SERIES = (
    "single",
    "loss",
    "shared",
    "unequal",
    *(HELD_OUT + it for it in ("single", "loss", "shared")),
)
PACKET_BYTES = 1500
LONGEST_S, LONGEST_HELD_OUT_S = 60.0, 20.0
RELAY_BPS = 120e6
"""Mean rate of transfers that are measured at the same time; well below what the relay carries."""
BATCH = 24
"""Transfers with loss that are measured at the same time."""
MOST = 480
"""Most repetitions of a transfer with loss."""
TRIES = 4
LATE_S, LATE_SHARE = 0.002, 0.005
"""A measurement in which a packet was later than either of the two, of the duration, is tried again."""
HYSTART_S = 0.004, 0.016
"""Bounds of the delay that ends a slow start, else an eighth of the round trip (Linux: ``HYSTART_DELAY_THRESH``)."""


@dataclass(frozen=True)
class Case:
    """Uploads that start together, on separate links or through the server's link.

    Attributes:
        series: single, loss, shared or unequal; or one of them held out.
        congestion: reno or cubic.
        rate_bps: rate of each client's link, or of the server's if it is shared.
        rtt_s: base round-trip time of each flow.
        size_bytes: size of each flow.
        start_s: start of each flow.
        loss: share of packets lost, each way.
    """

    series: str
    congestion: str
    rate_bps: float
    rtt_s: tuple[float, ...]
    size_bytes: tuple[int, ...]
    start_s: tuple[float, ...]
    loss: float = 0.0

    @property
    def key(self) -> str:
        """The case as text."""
        return json.dumps(asdict(self))

    @property
    def buffer_bytes(self) -> int:
        """Drop-tail buffer of the limiting queue."""
        return round(max(self.rate_bps * max(self.rtt_s) / 8, 32 * PACKET_BYTES))

    def expected_s(self) -> float:
        """Duration of the longest flow by the model."""
        return max(predicted_s(self, tcp(self)))

    def repetitions(self) -> int:
        """Transfers with loss; enough that the rare second that a lost handshake costs adds an error of 10%."""
        handshake = 1 - (1 - self.loss) ** 2
        return min(max(BATCH, math.ceil(handshake / (0.1 * self.expected_s()) ** 2)), MOST)


def cases() -> Iterator[Case]:
    """The grid and the held-out cases, without those that are expected to take too long."""
    for case in _grid():
        if case.expected_s() <= LONGEST_S:
            yield case
    for case in _held_out():
        if case.expected_s() <= LONGEST_HELD_OUT_S:
            yield case


def _held_out() -> Iterator[Case]:
    for congestion in ("cubic", "reno"):
        for rate in (3e6, 30e6):
            for rtt in (0.005, 0.08, 0.12):
                for size in (300_000, 3_000_000, 30_000_000):
                    path = (congestion, rate, (rtt,), (size,), (0.0,))
                    yield Case(f"{HELD_OUT}single", *path)
                    if size < 30_000_000:
                        yield Case(f"{HELD_OUT}loss", *path, 0.003)
        for rtt in (0.005, 0.08):
            for flows in (3, 10):
                same, together = (rtt,) * flows, (0.0,) * flows
                equal = (20_000_000 // flows,) * flows
                mixed = tuple(round(equal[0] * (i + 0.5) / flows * 2) for i in range(flows))
                for sizes in (equal, mixed):
                    yield Case(f"{HELD_OUT}shared", congestion, 30e6, same, sizes, together)


def _grid() -> Iterator[Case]:
    for congestion in ("cubic", "reno"):
        for rate in (1e6, 10e6, 100e6):
            for rtt in (0.001, 0.01, 0.05, 0.2):
                for size in (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000):
                    yield Case("single", congestion, rate, (rtt,), (size,), (0.0,))
    for congestion in ("cubic", "reno"):
        for loss in (0.001, 0.01):
            for rate in (1e6, 10e6, 100e6):
                for rtt in (0.01, 0.05, 0.2):
                    for size in (100_000, 1_000_000, 10_000_000):
                        yield Case("loss", congestion, rate, (rtt,), (size,), (0.0,), loss)
    for congestion in ("cubic", "reno"):
        for rate in (10e6, 50e6):
            for rtt in (0.02, 0.1):
                for flows in (2, 5, 20):
                    total = 8_000_000 * rate / 10e6
                    together, apart = (0.0,) * flows, (0.0,) * (flows - 1) + (2.0,)
                    same = (rtt,) * flows
                    equal = (round(total / flows),) * flows
                    yield Case("shared", congestion, rate, same, equal, together)
                    mixed = tuple(
                        round(2 * total / flows * (i + 0.5) / flows) for i in range(flows)
                    )
                    yield Case("shared", congestion, rate, same, mixed, together)
                    # One short transfer next to long ones, which have the link to themselves for two seconds.
                    short = (*equal[:-1], 200_000)
                    yield Case("shared", congestion, rate, same, short, apart)
                    unequal = tuple(rtt * (0.25 + 1.5 * i / (flows - 1)) for i in range(flows))
                    yield Case("unequal", congestion, rate, unequal, equal, together)


# -- the model ----------------------------------------------------------------------------------------------------


def tcp(case: Case) -> Transport:
    return Tcp(Tcp.Params(congestion=case.congestion))


def predicted_s(case: Case, transport: Transport) -> list[float]:
    """Duration of each flow by the model."""
    flows = len(case.size_bytes)
    latency_s = [rtt / 2 for rtt in case.rtt_s]
    if flows == 1:
        links = StaticNetwork(
            latency_s=latency_s, down_bps=case.rate_bps, up_bps=case.rate_bps, clients=1
        )
        network = TransportedNetwork(links, transport, loss=case.loss, clients=1)
        return [network.transfer_end_ns(0, Direction.UP, case.size_bytes[0], 0) / 1e9]
    shared = SharedNetwork(
        Direct(name="direct").topology(None),  # type: ignore[arg-type]
        attachment=[0] * flows,
        down_bps=np.inf,
        up_bps=np.inf,
        latency_s=latency_s,
        server_down_bps=np.inf,
        server_up_bps=case.rate_bps,
        transport=transport,
    )
    starts = sorted((to_ns(start), flow) for flow, start in enumerate(case.start_s))
    ends: dict[int, int] = {}
    while len(ends) < flows:
        now = min(shared.next_event_ns(), starts[0][0] if starts else NEVER)
        while starts and starts[0][0] <= now:
            flow = starts.pop(0)[1]
            shared.start_transfer(flow, flow, Direction.UP, case.size_bytes[flow], now)
        ends |= dict.fromkeys(shared.pop_finished(now), now)
    return [ends[flow] / 1e9 - case.start_s[flow] for flow in range(flows)]


# -- the kernel ---------------------------------------------------------------------------------------------------


def measure(case: Case) -> list[list[float]]:
    """Duration of each flow by the kernel, one list per repetition."""
    if case.loss:
        # Repetitions run on separate links of one relay. They start one after another: slow starts at the same time
        # would come at many times the mean rate and wait in the relay, where HyStart takes the delay for a full queue.
        link = Link(case.rate_bps, case.rate_bps, case.rtt_s[0] / 2, case.loss, case.buffer_bytes)
        apart_s = case.size_bytes[0] * 8 / RELAY_BPS
        batch = replace(
            case,
            rtt_s=case.rtt_s * BATCH,
            size_bytes=case.size_bytes * BATCH,
            start_s=tuple(apart_s * flow for flow in range(BATCH)),
        )
        durations: list[list[float]] = []
        while not _enough(case, [duration for duration, *_ in durations]):
            seed = len(durations) + 1
            done = _undisturbed(lambda: Net([link] * BATCH, seed=seed), batch)  # noqa: B023
            durations += [[duration] for duration in done]
        return durations
    if len(case.size_bytes) == 1:
        link = Link(case.rate_bps, case.rate_bps, case.rtt_s[0] / 2, 0.0, case.buffer_bytes)
        repetitions = 3 if case.series == "single" else 1
        return [_undisturbed(lambda: Net([link]), case) for _ in range(repetitions)]
    links = [Link(np.inf, np.inf, rtt / 2) for rtt in case.rtt_s]
    server = {"server_up_bps": case.rate_bps, "server_buffer_bytes": case.buffer_bytes}
    return [_undisturbed(lambda: Net(links, **server), case)]  # type: ignore[arg-type]


def _enough(case: Case, durations_s: Sequence[float]) -> bool:
    """Whether the mean of transfers with loss has a standard error of at most 10%."""
    count = len(durations_s)
    if count < case.repetitions():
        return False
    error_s = statistics.stdev(durations_s) / math.sqrt(count)
    return count >= MOST or error_s <= 0.1 * statistics.mean(durations_s)


def _undisturbed(make: Callable[[], Net], case: Case) -> list[float]:
    """The durations of the flows, repeated if the host delayed the relay; the best of several attempts counts."""
    best: tuple[float, list[float]] = (float("inf"), [])
    hystart_s = min(max(min(case.rtt_s) / 8, HYSTART_S[0]), HYSTART_S[1])
    for _ in range(TRIES):
        net = make()
        try:
            durations = _transfers(net, case)
        finally:
            late_s = net.close().get("late_ns", 0) / 1e9
        best = min(best, (late_s, durations))
        if late_s <= (hystart_s if case.loss else max(LATE_S, LATE_SHARE * max(durations))):
            break
    return best[1]


def _transfers(net: Net, case: Case) -> list[float]:
    """Upload all flows at once; returns their durations."""
    count = len(case.size_bytes)
    # The number of the flow, then zeros: one write, so that only the last segment is short.
    payloads = [
        flow.to_bytes(4, "big") + bytes(size - 4) for flow, size in enumerate(case.size_bytes)
    ]
    begins, ends = [0] * count, [0] * count
    with net.entered(net.server):
        listener = tcp_socket(case.congestion)
        listener.bind((net.SERVER, 0))
        listener.listen(count)
    port = listener.getsockname()[1]
    sockets = []
    for client in net.clients:
        with net.entered(client):
            sockets.append(tcp_socket(case.congestion))
    ready = time.monotonic_ns() + 50_000_000

    def send(flow: int) -> None:
        start_ns = ready + round(case.start_s[flow] * 1e9)
        time.sleep(max(start_ns - time.monotonic_ns(), 0) / 1e9)
        begins[flow] = time.monotonic_ns()
        sockets[flow].connect((net.SERVER, port))
        sockets[flow].sendall(payloads[flow])

    def receive() -> None:
        connection, _ = listener.accept()
        buffer = bytearray(1 << 18)
        got = connection.recv_into(buffer)
        flow = int.from_bytes(buffer[:4], "big")
        while got < case.size_bytes[flow]:
            got += connection.recv_into(buffer)
        ends[flow] = time.monotonic_ns()
        connection.close()

    threads = [threading.Thread(target=receive) for _ in range(count)]
    threads += [threading.Thread(target=send, args=(flow,)) for flow in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for used in (*sockets, listener):
        used.close()
    return [(end - begin) / 1e9 for begin, end in zip(begins, ends, strict=True)]


def relay_limit() -> dict[str, float]:
    """Throughput of one unlimited transfer through the relay."""
    net = Net([Link(np.inf, np.inf, 0.0005)])
    size = 100_000_000
    try:
        case = Case("limit", "cubic", np.inf, (0.001,), (size,), (0.0,))
        seconds = _transfers(net, case)[0]
    finally:
        counts = net.close()
    return {
        "relay_bps": size * 8 / seconds,
        "relay_packets_per_s": counts["packets"] / seconds,
        "latest_ms": counts["late_ns"] / 1e6,
    }


def run_missing(series: Sequence[str]) -> None:
    """Measure the cases that are not in the file yet."""
    raise_priority(10)
    known = {json.dumps(row["case"]) for row in measurements(MEASURED)}
    todo = [case for case in cases() if case.key not in known and case.series in series]
    todo.sort(key=lambda case: (series.index(case.series), case.size_bytes))
    with MEASURED.open("a") as file:
        limit = relay_limit()
        print(json.dumps(limit))
        for number, case in enumerate(todo):
            load = os.getloadavg()[0]
            durations = measure(case)
            row = {
                "case": asdict(case),
                "seconds": durations,
                "load": load,
                "kernel": platform.release(),
                **limit,
            }
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{number + 1}/{len(todo)} {case.series} {case.key}", flush=True)


def measurements(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


# -- comparison ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Measured and predicted durations of the flows of one case; means over repetitions."""

    case: Case
    measured_s: list[float]
    tcp_s: list[float]
    fluid_s: list[float]

    def errors(self, predicted_s: Sequence[float]) -> list[float]:
        """Relative error of each flow."""
        pairs = zip(predicted_s, self.measured_s, strict=True)
        return [predicted / measured - 1 for predicted, measured in pairs]

    def makespan_error(self, predicted_s: Sequence[float]) -> float:
        """Relative error of the time until the last flow ends."""
        ends = [
            max(start + each for start, each in zip(self.case.start_s, durations, strict=True))
            for durations in (predicted_s, self.measured_s)
        ]
        return ends[0] / ends[1] - 1


def comparisons(path: Path) -> list[Comparison]:
    """Every measured case that the grids contain, against the model of this checkout."""
    known = {case.key: case for case in cases()}
    result = []
    for row in measurements(path):
        case = known.get(json.dumps(row["case"]))
        if case is None:
            continue
        middle = statistics.mean if case.loss else statistics.median
        measured = [middle(flow) for flow in zip(*row["seconds"], strict=True)]
        fluid = predicted_s(replace(case, loss=0.0), Fluid(Parameters()))
        result.append(Comparison(case, measured, predicted_s(case, tcp(case)), fluid))
    return result


def table(title: str, conditions: str, rows: Sequence[Comparison], series: Sequence[str]) -> str:
    """The committed page: summary of these series, then one line per case."""
    summary = []
    for name in series:
        chosen = [row for row in rows if row.case.series == name]
        for model in ("tcp", "fluid"):
            durations = [getattr(row, f"{model}_s") for row in chosen]
            pairs = list(zip(chosen, durations, strict=True))
            flows = [abs(error) for row, predicted in pairs for error in row.errors(predicted)]
            if len(flows) == len(chosen) > 0:
                summary.append([name, model, *_spread(flows), _verdict(name, flows)])
            elif chosen:
                makespan = [abs(row.makespan_error(predicted)) for row, predicted in pairs]
                for title, errors in ((f"{name}, makespan", makespan), (f"{name}, flows", flows)):
                    summary.append([title, model, *_spread(errors), _verdict(title, errors)])
    listed = []
    for row in sorted(rows, key=lambda row: row.case.key):
        case = row.case
        worst = [max(row.errors(model), key=abs) for model in (row.tcp_s, row.fluid_s)]
        rtt = f"{min(case.rtt_s) * 1e3:g}"
        if min(case.rtt_s) < max(case.rtt_s):
            rtt += f" to {max(case.rtt_s) * 1e3:g}"
        sizes = f"{min(case.size_bytes)}"
        if min(case.size_bytes) < max(case.size_bytes):
            sizes += f" to {max(case.size_bytes)}"
        listed.append(
            [
                *(case.series, case.congestion, f"{case.rate_bps / 1e6:g}", rtt),
                *(f"{case.loss * 100:g}", str(len(case.size_bytes)), sizes),
                *(f"{max(row.measured_s):.3f}", f"{worst[0]:+.1%}", f"{worst[1]:+.1%}"),
            ]
        )
    # The column of goals comes last.
    width = len(_SUMMARY) - all(row[-1] == "-" for row in summary)
    parts = [
        f"# {title}\n",
        f"{conditions}\n",
        "## Summary\n",
        markdown(_SUMMARY[:width], [row[:width] for row in summary]),
        "## Cases\n",
        markdown(_CASES, listed),
    ]
    return "\n".join(parts)


def write(text: str, path: Path, mark: str) -> None:
    """Write the page, and its summary into the documentation."""
    path.write_text(text)
    summary = text.partition("## Summary\n")[2].partition("## Cases")[0].strip()
    replace_table(mark, summary)
    print(summary)


_SUMMARY = ["series", "model", "cases", "median error", "95th percentile", "worst", "goal"]
_CASES = ["series", "control", "Mbit/s", "RTT ms", "loss %", "flows", "bytes", "measured s"]
_CASES += ["tcp", "fluid"]
_CONDITIONS = """\
Errors are predicted over measured time, minus one; of several flows, the error of the worst. Written by
`python -m benchmarks.validation.tcp_oracle table` from `tcp_measured.jsonl`. Held-out series have parameters between
those of the others; no constant of the model was fitted to them."""


GOALS = {
    "single": ((0.5, 0.05), (0.95, 0.15)),
    "loss": ((1.0, 0.25),),
    "shared, makespan": ((0.5, 0.05),),
    "shared, flows": ((0.5, 0.15),),
}
"""Quantiles of the absolute errors of a series, and the largest that they should have."""
_QUANTILES = {0.5: "median", 0.95: "95th percentile", 1.0: "every case"}


def _verdict(name: str, errors: Sequence[float]) -> str:
    """The goals of a series, whether they are met, and how many cases are beyond the first one; ``-`` without any."""
    goals = GOALS.get(name.removeprefix(HELD_OUT))
    if not goals:
        return "-"
    is_met = all(np.quantile(errors, share) <= goal for share, goal in goals)
    beyond = sum(error > goals[0][1] for error in errors)
    texts = [f"{_QUANTILES[share]} {goal:.0%}" for share, goal in goals]
    return (
        f"{', '.join(texts)}: {'met' if is_met else 'missed'} ({beyond} beyond {goals[0][1]:.0%})"
    )


def _spread(errors: Sequence[float]) -> list[str]:
    """How many errors there are, their median, their 95th percentile and the worst."""
    return [str(len(errors)), *(f"{np.quantile(errors, share):.1%}" for share in (0.5, 0.95, 1.0))]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("do", choices=["measure", "measure-inside", "table"])
    parser.add_argument("--series", nargs="*", default=SERIES)
    options = parser.parse_args(arguments)
    if options.do == "measure":
        reason = unavailable()
        if reason:
            print(f"cannot measure: {reason}", file=sys.stderr)
            return 1
        return inside(
            "benchmarks.validation.tcp_oracle", ["measure-inside", "--series", *options.series]
        )
    if options.do == "measure-inside":
        run_missing(options.series)
        return 0
    rows = comparisons(MEASURED)
    write(table("Kernel TCP against the model", _CONDITIONS, rows, SERIES), TABLE, MARK)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
