"""Runs the whole board, and writes what comes with fedsim: the rows of all runs, the page and the map.

python -m benchmarks.board          # hours on two cores; repeat the command after an interruption
python -m benchmarks.board --larger # would still larger learning rates be better? 20 minutes
python -m benchmarks.board --write  # only write the page and the map again, from the rows that come with fedsim
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedsim.board.page import grid
from fedsim.board.results import SHIPPED, Table, table
from fedsim.board.running import run_board
from fedsim.board.suite import BASELINE, MEASURED, suite
from fedsim.sweeps.local import prepare

PAGE = Path("docs/board.md")
LARGEST_LR = 2
"""The setting with the largest learning rate."""
MARK = "<!-- Below this line, written by benchmarks/board.py. -->\n"


def written(rows: pd.DataFrame) -> str:
    """What the page says below its mark, of the scenarios that have rows."""
    whole = suite()
    measured = [q for name, q in whole.scenarios.items() if (rows["scenario"] == name).any()]
    if not measured:
        return ""
    tables = [table(rows, question) for question in measured]
    draw(tables, Path("docs/images/board.svg"))
    lines = [
        "## Map",
        "",
        "Times to the target as multiples of FedAvg's; blue is faster, and entries are in the order of their mean:",
        "",
        "![Ratios of the time to the target, by entry and scenario](images/board.svg)",
        "",
        "## Hours against server updates",
        "",
        _reversals(tables),
        "",
        "tau is Kendall's rank correlation between the entries' times to the target and their numbers of server "
        "updates to it; 1 if both rank them alike. An asynchronous method has one per client update.",
        "",
        "## Who wins where, and why",
        "",
        "Relative to FedAvg, the fastest entry's time to the target, the client updates that it needs, and those that "
        "it gets per hour; `*`: the seeds do not separate it from FedAvg.",
        "",
        "| scenario | fastest | time | updates needed | updates per hour | tau |",
        "|---|---|---:|---:|---:|---:|",
        *_scenarios(tables),
        "",
    ]
    return "\n".join([*_tuning(rows), *lines])


def _scenarios(tables: Sequence[Table]) -> Iterator[str]:
    """What won in each scenario, and why, as rows of a table."""
    for each in tables:
        first, base = each.fastest, each.of(BASELINE)
        ratio = first.ratio
        assert ratio is not None
        doubt = " *" if ratio.high >= 1 else ""
        factors = [
            first.medians[name] / base.medians[name] for name in ("updates", "updates_per_h")
        ]
        numbers = " | ".join(f"{value:.2f}" for value in (ratio.value, *factors, each.tau))
        yield f"| {each.question.name} | {first.entry}{doubt} | {numbers} |"


def draw(tables: Sequence[Table], path: Path) -> None:
    """Draw the map as a picture."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = grid(tables)
    values = np.array([[math.nan if r is None else min(r, 8.0) for r in row] for _, row in rows])
    size = (1.2 + 0.75 * len(tables), 1.6 + 0.26 * len(rows))
    with mpl.rc_context({"svg.hashsalt": "board", "font.size": 8, "svg.fonttype": "none"}):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        axes.imshow(np.log2(values), cmap="RdBu_r", vmin=-2.5, vmax=2.5, aspect="auto")
        axes.set_xticks(range(len(tables)), [t.question.name.replace("_", "\n") for t in tables])
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.xaxis.tick_top()
        for (y, x), value in np.ndenumerate(values):
            ratio = rows[y][1][x]
            if ratio is not None:
                text = "never" if math.isinf(ratio) else f"{ratio:.2f}"
                dark = abs(math.log2(value)) > 1.5
                axes.text(x, y, text, ha="center", va="center", color="white" if dark else "black")
        figure.savefig(path, metadata={"Date": None})


def _tuning(rows: pd.DataFrame) -> list[str]:
    """How often the largest learning rate won the tuning, as lines of the page."""
    measured = rows[(rows["kind"] == MEASURED) & (rows["error"] == "")]
    chosen = measured.groupby(["scenario", "entry"])["setting"].first()
    largest = chosen == LARGEST_LR
    fedavg = largest.xs(BASELINE, level="entry")
    return [
        f"In {largest.sum()} of {len(largest)} cases the largest learning rate won the tuning, FedAvg's in "
        f"{fedavg.sum()} of {len(fedavg)} scenarios.",
        "",
    ]


def _reversals(tables: list[Table]) -> str:
    """How often rankings by rounds and by hours disagree, as a sentence."""
    sure = [[one for one in each.standings if one.reached == one.runs] for each in tables]
    fewest = [min(each, key=lambda one: one.medians["versions"]) for each in sure]
    other = sum(each.fastest != first for each, first in zip(tables, fewest, strict=True))
    taus = [each.tau for each in tables]
    return (
        f"Few rounds are not few hours: in {other} of {len(tables)} scenarios, the fastest entry is not the one with "
        f"the fewest server updates, and the two rankings hardly agree (tau from {min(taus):.2f} to {max(taus):.2f}, "
        f"median {statistics.median(taus):.2f})."
    )


def main() -> None:
    """Run, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="run nothing")
    parser.add_argument("--larger", action="store_true", help="try larger learning rates")
    parser.add_argument("--folder", type=Path, default=Path("runs/board"))
    arguments = parser.parse_args()
    if arguments.larger:
        prepare()
        larger(arguments.folder / "larger")
        return
    if not arguments.write:
        prepare()
        rows = run_board(suite(), arguments.folder, on_progress=_report).frame()
        narrow = rows.select_dtypes("float64").columns
        rows.astype(dict.fromkeys(narrow, "float32")).to_parquet(
            SHIPPED, index=False, compression="zstd"
        )
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    PAGE.write_text(before + MARK + "\n" + written(pd.read_parquet(SHIPPED)), encoding="utf-8")


def larger(folder: Path) -> None:
    """Print how often FedAvg and FedBuff miss the target with nine times the learning rate of a scenario."""
    whole = suite()
    two = {name: whole.entries[name] for name in (BASELINE, "FedBuff")}
    wider = replace(whole, lr_factors=[1, 3, 9], entries=two, seeds=[])
    rows = run_board(wider, folder, on_progress=_report).frame()
    largest = rows[rows["setting"] == LARGEST_LR]
    print(f"{largest['time_s'].isna().sum()} of {len(largest)} runs miss the target")


def _report(scenario: str, runs: int, done: int) -> None:
    if done % 20 == 0:
        print(f"{scenario}: {done} of {runs} runs", flush=True)


if __name__ == "__main__":
    main()
