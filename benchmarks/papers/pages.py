"""The pages with the papers' tables, and what is written into them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from benchmarks.papers import (
    compression,
    fedcompass,
    fedlga,
    fedsum,
    generalized_fedavg,
    optimal_time,
    partial_personalization,
    submodels,
)
from benchmarks.papers.claims import claims_table
from benchmarks.papers.results import SCENARIOS, Results, Tables

PAGES = [*sorted(SCENARIOS.glob("*/README.md")), Path(__file__).parent / "README.md"]
MARKED = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
CLAIMS = {
    "FedCompass": fedcompass.CLAIMS,
    "FedLGA": fedlga.CLAIMS,
    "FedSUM": fedsum.CLAIMS,
    "Generalized FedAvg": generalized_fedavg.CLAIMS,
    "FedAvg-P, Scaffold-P": partial_personalization.CLAIMS,
    "Optimal time, DiLoCo": optimal_time.CLAIMS,
    "Compression": compression.CLAIMS,
    "Submodels": submodels.CLAIMS,
}
TABLES: Tables = {
    **fedcompass.TABLES,
    **fedlga.TABLES,
    **fedsum.TABLES,
    **generalized_fedavg.TABLES,
    **partial_personalization.TABLES,
    **optimal_time.TABLES,
    **compression.TABLES,
    **submodels.TABLES,
}


def write_tables(runs: Path, pages: Iterable[Path] = PAGES) -> None:
    """Replace every marked table whose sweeps have finished runs."""
    read = cache(lambda sweep: Results(sweep, runs))
    for page in pages:
        text = page.read_text(encoding="utf-8")

        def replaced(match: re.Match[str]) -> str:
            if match["name"] == "claims":
                table = claims_table(CLAIMS, read, match[0])
            else:
                write, *sweeps = TABLES[match["name"]]
                results = [read(sweep) for sweep in sweeps]
                table = write(*results) if all(result.runs for result in results) else ""
            return f"{match[1]}\n{table}\n{match[3]}" if table.strip() else match[0]

        page.write_text(MARKED.sub(replaced, text), encoding="utf-8")
