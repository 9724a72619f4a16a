"""The papers' claims and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.papers.results import Results, number
from benchmarks.tables import markdown


@dataclass(frozen=True)
class Claim:
    """A row of the table of claims.

    Attributes:
        text: the paper's claim.
        verdict: confirmed, refuted, conditional or open.
        sweep: the sweep that shows it, below ``scenarios/papers``.
        figure: the decisive number, from the runs.
    """

    text: str
    verdict: str
    sweep: str
    figure: Callable[[Results], str]


def claims_table(
    papers: Mapping[str, Sequence[Claim]], read: Callable[[str], Results], written: str
) -> str:
    """Every claim with its verdict, figure, seeds, CPU time and command.

    Claims whose sweeps have no finished run keep the row of ``written``, the table on the page.
    """
    lines = (line.strip("| ").split(" | ") for line in written.splitlines() if "`fedsim" in line)
    earlier = {(cells[-1], cells[-6]): cells[-4:-1] for cells in lines}
    rows = []
    for paper, claims in papers.items():
        for claim in claims:
            results = read(claim.sweep)
            command = f"`fedsim sweep scenarios/papers/{claim.sweep}.yaml`"
            if figure := claim.figure(results) if results.runs else "":
                cells = [figure, str(results.seeds), number(results.cpu_minutes, 2)]
            else:
                cells = earlier.get((command, claim.text), ["–", "0", "–"])
            verdict = claim.verdict if cells[0] != "–" else "open: not yet run"
            rows.append([paper, claim.text, verdict, *cells, command])
            paper = ""
    header = [
        "paper",
        "claim",
        "verdict",
        "figure (range over seeds)",
        "seeds",
        "CPU min",
        "command",
    ]
    return markdown(header, rows)
