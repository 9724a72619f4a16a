"""The script that writes the papers' tables: its numbers, and the places in the pages that it fills."""

import json
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.papers import pages, results
from benchmarks.papers.running import LONG, SMALL


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (135.4, 2, "135"),
        (0.90712, 3, "0.907"),
        (1234.5, 3, "1,234"),
        (0.00021, 2, "2.1e-4"),
        (float("nan"), 3, "–"),
        (0.0, 3, "0"),
    ],
)
def test_numbers(value: float, digits: int, text: str) -> None:
    assert results.number(value, digits) == text


def test_a_spread_says_how_many_seeds_reached_the_target() -> None:
    assert results.spread([40.0, 50.0], 2) == "45 (40 to 50)"
    assert results.spread([40.0, float("nan")], 2) == "40, 1 of 2"
    assert results.spread([float("nan")]) == results.spread([]) == "–"


def test_every_marked_table_is_known_and_every_table_is_in_a_page() -> None:
    marked = [
        match["name"]
        for page in pages.PAGES
        for match in pages.MARKED.finditer(page.read_text(encoding="utf-8"))
    ]
    assert sorted(marked) == sorted([*pages.TABLES, "claims"])
    for sweep in (*SMALL, *LONG):
        assert (results.SCENARIOS / f"{sweep}.yaml").is_file()
    for claims in pages.CLAIMS.values():
        for claim in claims:
            assert (results.SCENARIOS / f"{claim.sweep}.yaml").is_file()


def fake_run(folder: Path, method: str, seed: int, losses: list[float], status: str) -> None:
    folder.mkdir(parents=True)
    scenario = {
        "seed": seed,
        "server": {"method": {"name": method}, "selection": {"name": "uniform", "cohort": 20}},
    }
    (folder / "scenario.yaml").write_text(json.dumps(scenario))
    (folder / "run.json").write_text(json.dumps({"status": status}))
    rounds = [5 * number for number in range(len(losses))]
    metrics = pd.DataFrame({"time_s": rounds, "round": rounds, "loss": losses})
    metrics.to_parquet(folder / "metrics.parquet")


def test_a_table_is_written_from_finished_runs_alone(tmp_path: Path) -> None:
    sweep = tmp_path / "fedsum" / "patterns_small"
    fake_run(sweep / "a", "fedsum", 0, [2.0, 0.31, 0.3], "complete")
    fake_run(sweep / "b", "fedsum", 1, [2.0, 0.29, 0.1], "complete")
    fake_run(sweep / "c", "fedavg", 0, [2.0, 1.0, 0.5], "complete")
    fake_run(sweep / "d", "fedavg", 1, [0.1], "running")
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- table fedsum-patterns -->\nold\n<!-- end -->\nafter\n")
    pages.write_tables(tmp_path, [page])
    text = page.read_text()
    assert "| FedSUM | 7.5 (5.0 to 10) | – |" in text
    assert "| FedAvg | – | – |" in text
    assert "2 of 3 seeds finished, 3 runs" in text
    assert text.startswith("before\n<!-- table")
    assert text.endswith("<!-- end -->\nafter\n")
    # Without runs the old table stays.
    pages.write_tables(tmp_path / "nothing", [page])
    assert page.read_text() == text


def test_claims_keep_their_rows_where_nothing_was_run(tmp_path: Path) -> None:
    page = tmp_path / "index.md"
    text = (results.ROOT / "benchmarks" / "papers" / "README.md").read_text(encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    pages.write_tables(tmp_path / "nothing", [page])
    assert page.read_text(encoding="utf-8") == text
    claim = pages.CLAIMS["FedSUM"][0]
    page.write_text(text.replace(claim.text, "another claim"), encoding="utf-8")
    pages.write_tables(tmp_path / "nothing", [page])
    assert f"| {claim.text} | open: not yet run | – | 0 | – |" in page.read_text(encoding="utf-8")
