"""The command line: ``python -m benchmarks.papers``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import benchmarks.papers as package
from benchmarks.papers.pages import write_tables
from benchmarks.papers.results import ROOT
from benchmarks.papers.running import LONG, SMALL, run_sweeps


def main() -> None:
    """Run the sweeps or not, then write the tables."""
    parser = argparse.ArgumentParser(description=(package.__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=["run", "tables"])
    parser.add_argument(
        "--long", action="store_true", help="the sweeps that take hours, not minutes"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "papers")
    options = parser.parse_args()
    if options.command == "run":
        options.runs.mkdir(parents=True, exist_ok=True)
        run_sweeps(LONG if options.long else SMALL, options.runs.resolve(), options.jobs)
    write_tables(options.runs)


if __name__ == "__main__":
    main()
