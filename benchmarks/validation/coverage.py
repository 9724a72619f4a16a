"""How often the 90% bands of ``fedsim calibrate`` hold on the logs of real deployments.

``python -m benchmarks.validation.coverage`` reads the first repetition of every configuration of series i,
calibrates on the first fifth of its rounds with nothing but the scenario given, predicts the rest, and writes the table
of ``benchmarks/validation/README.md``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.tables import markdown
from benchmarks.validation.configurations import load
from benchmarks.validation.page import replace_table
from benchmarks.validation.report import measured
from fedsim.calibration.calibrating import Calibration, calibrate
from fedsim.errors import UserError

Counts = dict[str, tuple[int, int]]
"""Values that are predicted right (within their band), and all values, by quantity."""


def calibration(name: str, document: dict[str, Any], folder: Path) -> Calibration:
    """The calibration from one configuration's deployment."""
    log = folder / f"{name}.csv"
    pd.DataFrame(document["dispatches"]).to_csv(log, index=False)
    return calibrate(log, folder / name, load(document["scenario"]))


def counted(calibrated: Calibration) -> Counts:
    """How many values lie within their band, and how many dispatches are rightly predicted to be late or in time."""
    counts = {
        each.name: (round(each.coverage * len(each.logged)), len(each.logged))
        for each in calibrated.predictions
    }
    late = calibrated.lateness
    if late is not None:
        counts["predicted late or in time"] = (round(late.right * len(late.late)), len(late.late))
    return counts


def group_of(name: str) -> tuple[str, str, str]:
    """Schedule, links and availability of a configuration."""
    schedule, rest = name.split("-", 1)
    return schedule, "shared" if "shared" in rest else "alone", rest.rpartition("-")[2]


def table(counts: Mapping[str, Counts]) -> str:
    """One row per schedule, links and availability, as Markdown."""
    groups: dict[tuple[str, str, str], list[Counts]] = defaultdict(list)
    for name, each in counts.items():
        groups[group_of(name)].append(each)
    quantities = sorted({quantity for each in counts.values() for quantity in each})
    rows = []
    for group, members in sorted(groups.items()):
        cells = []
        for quantity in quantities:
            inside, number = (
                sum(each.get(quantity, (0, 0))[index] for each in members) for index in (0, 1)
            )
            cells.append(f"{inside} of {number}" if number else "–")
        rows.append([*group, str(len(members)), *cells])
    return markdown(["schedule", "links", "availability", "logs", *quantities], rows).rstrip()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="configurations whose name begins so")
    only = parser.parse_args().only
    counts: dict[str, Counts] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, runs in measured().items():
            if not name.startswith(only) or name.startswith("ii-"):
                continue
            try:
                counts[name] = counted(calibration(name, runs[0], Path(folder)))
            except UserError as error:
                print(f"{name}: {error}", flush=True)
                continue
            print(name, counts[name], flush=True)
    text = table(counts)
    print(text)
    if not only:
        replace_table("coverage", text)


if __name__ == "__main__":
    main()
