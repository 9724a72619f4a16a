"""The report page: its numbers against independent queries of the Parquet files, its text, its safety."""

import re
from pathlib import Path

import pytest

from fedsim.analysis.figures import base
from fedsim.analysis.figures.timeline import MAX_BARS_SHOWN
from fedsim.analysis.pages import TEMPLATES
from fedsim.analysis.report import render
from fedsim.analysis.run import Run, load_run
from fedsim.errors import UserError
from fedsim.runs import RunFolder
from fedsim.runs.folder import Status
from tests.analysis.documents import columns, embedded
from tests.runs.synthetic_runs import build_run


def test_failed_run_shows_its_error(tmp_path: Path) -> None:
    build_run(tmp_path / "run", clients=10, hours=1, finish=False)
    RunFolder(tmp_path / "run").update_info(status="failed", error="ValueError: no <b>luck</b>")
    page = render(load_run(tmp_path / "run"))
    assert "ended with an error (ValueError: no &lt;b&gt;luck&lt;/b&gt;)" in page


@pytest.mark.parametrize("name", ["dispatches", "aggregations"])
def test_streams_of_two_killed_runs_contradict_each_other(name: str, tmp_path: Path) -> None:
    for seed in (0, 1):
        build_run(tmp_path / str(seed), clients=10, hours=6, finish=False, seed=seed)
    assert render(load_run(tmp_path / "0"))
    (tmp_path / "1" / f"{name}.arrows").replace(tmp_path / "0" / f"{name}.arrows")
    problem = r"aggregations\.arrows: contradicts dispatches\.arrows, for example in dispatch \d"
    with pytest.raises(UserError, match=problem):
        render(load_run(tmp_path / "0"))


def test_page_is_self_contained(run: Run) -> None:
    page = render(run)
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    library = (TEMPLATES.parent / "vendor" / "echarts.min.js").read_text(encoding="utf-8")
    assert library in page
    assert not re.search(r"@import|url\(", page.replace(library, ""))
    # Namespaces are names, not addresses that are fetched.
    addresses = re.findall(r"https?://[^\s\"'<]+", page.replace(library, ""))
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page
    assert "unsafe-eval" not in page


def test_dashes_are_explained_where_there_are_any(run: Run, tmp_path: Path) -> None:
    words = "A dash marks a level that was not reached."
    assert words not in render(run)
    missed = build_run(tmp_path / "run", clients=12, hours=6)
    text = missed.folder.scenario.read_text().replace("accuracy: 0.8", "accuracy: 0.99")
    missed.folder.scenario.write_text(text)
    missed.folder.close(missed.status)
    assert words in render(load_run(missed.path))


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=6, hours=1)
    evil = "</script><script>alert(1)</script>"
    run.folder.scenario.write_text(f"name: '{evil}'\n")
    run.folder.close(Status.COMPLETE)
    page = render(load_run(run.path))
    assert evil not in page
    assert page.count("<script") == 3


def test_large_runs_stay_small(tmp_path: Path) -> None:
    run = build_run(
        tmp_path / "run", clients=900, hours=24, cohort=120, classes=100, model_bytes=200_000
    )
    assert len(run.dispatches) > 15_000
    page = render(run)
    data = re.search(r'id="data">(.*?)</script>', page, re.S)
    assert data is not None
    assert len(data.group(1)) < 1_000_000
    assert len(page) - len(data.group(1)) < 1_500_000
    data = embedded(page)
    assert len(columns(data, "timeline")["dispatch_id"]) <= MAX_BARS_SHOWN
    assert len(columns(data, "learning")["time_s"]) <= base.MAX_POINTS + 1
