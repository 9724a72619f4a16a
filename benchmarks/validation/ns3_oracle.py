"""ns-3's TCP against ``transport: {name: tcp}``: a second oracle, beside the kernel's.

``python -m benchmarks.validation.ns3_oracle run`` compiles ``ns3_transfer.cc``, adds the cases that are missing to
``ns3_measured.jsonl`` (some minutes of CPU time) and compares them with the model of this checkout in
``ns3_oracle.md``; ``table`` only compares. Without ns-3 or a compiler (Debian: ``libns3-dev``, ``g++``) ``run`` is
skipped.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.validation.tcp_oracle import (
    PACKET_BYTES,
    Case,
    cases,
    comparisons,
    measurements,
    table,
    write,
)

HERE = Path(__file__).parent
SOURCE = HERE / "ns3_transfer.cc"
MEASURED = HERE / "ns3_measured.jsonl"
TABLE = HERE / "ns3_oracle.md"
MARK = "ns-3"
SEEDS = 20
LARGEST_BYTES = 10_000_000
LIBRARIES = "core", "network", "internet", "point-to-point", "applications", "traffic-control"

_CONDITIONS = """\
Errors are predicted over measured time, minus one. Written by `python -m benchmarks.validation.ns3_oracle table` from
`ns3_measured.jsonl`: ns-3 {version}, `TcpLinuxReno` and `TcpCubic`, initial window of 10 segments, SACK, PRR, one
acknowledgment per segment, least timeout 0.2 s, a point-to-point link whose queue holds one bandwidth-delay product and
at least 32 packets; with loss, the mean over at least {seeds} seeds.

What differs from Linux:

- `TcpCubic` of this version has no Reno-friendly region (RFC 9438, section 4.3). With 1% loss it is slower than Linux
  and the model where that region applies, by factors at short round trips; with long ones, where it does not, faster.
- `TcpLinuxReno` is up to a fifth faster at 1% loss than Linux and the law (10 MB at 100 Mbit/s and 10 ms: 4.7 s; Linux
  6.0 s; model 5.7 s).
- There is no RACK-TLP (RFC 8985): a lost retransmission costs a timeout, which doubles from loss to loss.
- The sender fills its own queue, which TCP small queues prevent in Linux; at the end of slow start it overflows also
  without `loss` (worst case: 100 kB at 1 Mbit/s and 50 ms)."""


def selected() -> Iterator[Case]:
    """Unshared cases of at most 10 MB."""
    for case in cases():
        if case.series in ("single", "loss") and case.size_bytes[0] <= LARGEST_BYTES:
            yield case


def unavailable() -> str | None:
    """Why ns-3 cannot be run here; None if it can."""
    for program in ("g++", "pkg-config"):
        if shutil.which(program) is None:
            return f"there is no program {program}"
    try:
        version()
    except subprocess.CalledProcessError:
        return "ns-3 is not installed (Debian: libns3-dev)"
    return None


def version() -> str:
    query = ["pkg-config", "--modversion", "ns3-core"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


def run_missing() -> None:
    """Run the cases that are not in the file yet."""
    known = {json.dumps(row["case"]) for row in measurements(MEASURED)}
    todo = [case for case in selected() if case.key not in known]
    with tempfile.TemporaryDirectory() as folder, MEASURED.open("a") as file:
        program = Path(folder, "transfer")
        libraries = [f"-lns3-{name}" for name in LIBRARIES]
        subprocess.run(["g++", "-std=c++17", "-O1", "-o", program, SOURCE, *libraries], check=True)
        simulator = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert simulator.stdin is not None
        assert simulator.stdout is not None
        for number, case in enumerate(todo):
            packets = math.ceil(case.buffer_bytes / PACKET_BYTES)
            line = f"{case.congestion} {case.rate_bps:.0f} {case.rtt_s[0]} {case.size_bytes[0]} {case.loss}"
            print(
                f"{line} {packets} 1 {max(SEEDS, case.repetitions()) if case.loss else 1}",
                file=simulator.stdin,
                flush=True,
            )
            seconds = [[float(word)] for word in simulator.stdout.readline().split()]
            row = {"case": asdict(case), "seconds": seconds, "ns3": version()}
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{number + 1}/{len(todo)} {case.key}", flush=True)
        simulator.stdin.close()
        simulator.wait()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("do", choices=["run", "table"])
    options = parser.parse_args(arguments)
    if options.do == "run":
        if reason := unavailable():
            print(f"skipped: {reason}", file=sys.stderr)
            return 0
        run_missing()
    versions = sorted({row["ns3"] for row in measurements(MEASURED)})
    conditions = _CONDITIONS.format(version=", ".join(versions), seeds=SEEDS)
    rows = [
        replace(row, case=replace(row.case, series=f"{row.case.series}, {row.case.congestion}"))
        for row in comparisons(MEASURED)
    ]
    series = [f"{name}, {control}" for name in ("single", "loss") for control in ("reno", "cubic")]
    write(table("ns-3 against the model", conditions, rows, series), TABLE, MARK)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
