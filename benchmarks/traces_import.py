"""Importing large logs, beside pandas' own reading of the same file: processor time and peak memory of each process.

    python benchmarks/traces_import.py [--rows 10000000] [--keep FOLDER]

Two CSV files of 20,000 devices over a week: sessions (device, start, end) and changes of state (device, time, state).
pandas reads them with ``read_csv(parse_dates=...)``; fedsim imports them, which also checks and writes the bundle and
describes it. The exit code is 1 if an import takes more than three times of pandas' time or memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from multiprocessing import Process
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

DEVICES = 20_000
MOST = 3.0
READ = "import sys, pandas; pandas.read_csv(sys.argv[1], parse_dates=sys.argv[2].split(','))"
LOGS = {"sessions": ("start,end", []), "changes": ("time", ["-s", "online=state == on"])}


def instants(unix_s: np.ndarray) -> pa.Array:
    text = pa.array(unix_s.astype("M8[s]")).cast(pa.string())
    return pc.binary_join_element_wise(pc.replace_substring(text, " ", "T"), "Z", "")


def make(folder: Path, rows: int) -> None:
    """Write the two logs: sessions by device, changes by time."""
    rng = np.random.default_rng(0)
    ids = pa.array([f"p{number:05d}" for number in range(DEVICES)])
    device = np.sort(rng.integers(0, DEVICES, rows))
    start_s = 1_714_550_400 + rng.integers(0, 7 * 86_400, rows)
    end_s = start_s + rng.integers(60, 600, rows)
    order = np.argsort(start_s, kind="stable")
    states = pa.array(["on", "off"]).take(pa.array(rng.integers(0, 2, rows)))
    tables = {
        "sessions": {
            "device": ids.take(pa.array(device)),
            "start": instants(start_s),
            "end": instants(end_s),
        },
        "changes": {
            "device": ids.take(pa.array(device[order])),
            "time": instants(start_s[order]),
            "state": states,
        },
    }
    for name, columns in tables.items():
        file = folder / f"{name}.csv"
        csv.write_csv(pa.table(columns), file, csv.WriteOptions(quoting_style="none"))


def measured(command: list[str]) -> tuple[float, float]:
    """Processor time (s) and peak memory (GB) of a command."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keep", type=Path, help="make (or use) the logs in this folder")
    options = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        if not (folder / "changes.csv").exists():
            # A process inherits the peak memory of the one that starts it.
            maker = Process(target=make, args=(folder, options.rows))
            maker.start()
            maker.join()
        print(f"{options.rows:,} rows: processor time (s), peak memory (GB)\n")
        print(f"{'':<12}{'pandas':>16}{'fedsim':>16}{'ratio':>16}")
        for name, (times, extra) in LOGS.items():
            file, out = str(folder / f"{name}.csv"), str(Path(temporary) / name)
            pandas = measured([sys.executable, "-c", READ, file, times])
            imported = [sys.executable, "-m", "fedsim", "traces", "import", "table", file]
            fedsim = measured([*imported, "-o", out, *extra])
            ratios = [ours / theirs for ours, theirs in zip(fedsim, pandas, strict=True)]
            worst = max(worst, *ratios)
            cells = [f"{a:.1f} {b:.2f}" for a, b in (pandas, fedsim, ratios)]
            print(f"{name:<12}" + "".join(f"{cell:>16}" for cell in cells))
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
