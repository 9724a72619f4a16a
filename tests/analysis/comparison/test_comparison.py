"""Comparing runs: choices, runs that are left out, the command, and the interface in Python."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from fedsim.analysis.comparison import Comparison, Target, compare
from fedsim.analysis.comparison.loading import PAGE
from fedsim.analysis.comparison.page import render
from fedsim.errors import UserError
from fedsim.runs import RunFolder
from fedsim.runs.records import DECISION
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import (
    GROUPS,
    SETTINGS,
    TARGETS,
    VARIANTS,
    folders,
    parquet,
    row,
)
from tests.analysis.comparison.made import of, run
from tests.runs.synthetic_runs import build_run


def test_baseline_can_be_chosen(sweep: Sweep) -> None:
    chosen = compare(sweep.path, targets=["accuracy=0.5"], baseline="fedbuff")
    assert row(chosen.targets, SETTINGS[0], "fedbuff")["relative"] == 1
    times = chosen.targets.set_index(["setting", "label"])["time_s"]
    expected = times[SETTINGS[0], "fedavg"] / times[SETTINGS[0], "fedbuff"]
    assert row(chosen.targets, SETTINGS[0], "fedavg")["relative"] == pytest.approx(expected)
    with pytest.raises(UserError, match="there is no variant 'fedprox'"):
        compare(folders(sweep, *GROUPS[0]), baseline="fedprox")


def test_targets_are_checked_and_have_a_default(sweep: Sweep) -> None:
    pair = [folders(sweep, SETTINGS[0], variant)[0] for variant in VARIANTS]
    for target, problem in (
        ("f2=0.5", "no run measured 'f2'"),
        ("accuracy:0.5", "write a metric, '=' and a number"),
        ("=90%", r"  for example accuracy=0\.9 or accuracy=90%$"),
    ):
        with pytest.raises(UserError, match=problem):
            compare(pair, targets=[target])
    assert [goal.value for goal in compare(pair, targets=["accuracy=90%"]).goals] == [0.9]
    levels = [goal.value for goal in compare(pair).goals]
    best = max(parquet(path, "metrics")["accuracy"].max() for path in pair)
    assert levels == sorted(levels)
    assert levels[-1] <= best < levels[-1] + 0.05
    assert str(Target("accuracy", 0.9)) == "accuracy=0.9"


def test_runs_that_are_not_complete_are_left_out_and_named(sweep: Sweep, tmp_path: Path) -> None:
    shutil.copytree(sweep.path, tmp_path / "sweep")
    for name, status in (("failed", "failed"), ("killed", "running")):
        path = next((tmp_path / "sweep").glob(f"alpha5.0_fedavg_*seed{int(name == 'killed')}"))
        RunFolder(path).update_info(status=status, error="no luck")
    shutil.rmtree(next((tmp_path / "sweep").glob("alpha5.0_fedavg_*seed2")))
    (path / "scenario.yaml").write_text("edited: true\n")
    comparison = compare(tmp_path / "sweep")
    assert [(g.setting, g.label) for g in comparison.groups] == GROUPS[1:2] + GROUPS[2:]
    assert [item.reason for item in comparison.left_out] == [
        "failed (no luck)",
        f"was interrupted ({path / 'scenario.yaml'}: it has changed since fedsim wrote it)",
        "is damaged (run.json: no such file, though the run is complete)",
    ]
    assert "3\u00a0runs left out" in render(comparison)


def test_a_sweep_without_runs_is_to_be_started_again(sweep: Sweep, tmp_path: Path) -> None:
    shutil.copytree(sweep.path, tmp_path / "sweep")
    for entry in sweep.record["runs"]:
        shutil.rmtree(tmp_path / "sweep" / entry["run"])
    with pytest.raises(UserError, match="no complete run") as refusal:
        compare(tmp_path / "sweep")
    path = tmp_path / "sweep"
    assert refusal.value.where == str(path)
    again = f"repeat the sweep with its options: fedsim sweep {path / 'scenario.yaml'} -o {path}"
    first = path / sweep.record["runs"][0]["run"]
    lost = "is damaged (run.json: no such file, though the run is complete)"
    assert refusal.value.hint == f"{first} {lost}; {again}"
    (path / "compare.html").touch()
    left_out = compare([path, sweep.path]).left_out
    assert [one.path for one in left_out] == [path / entry["run"] for entry in sweep.record["runs"]]


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        compare(tmp_path / "nothing")
    with pytest.raises(UserError, match="the folder contains no run"):
        compare(tmp_path)
    build_run(tmp_path / "killed", hours=3, finish=False)
    with pytest.raises(UserError, match="no complete run"):
        compare(tmp_path)


def test_a_folder_has_the_runs_of_the_folders_and_sweeps_in_it(
    sweep: Sweep, tmp_path: Path
) -> None:
    shutil.copytree(sweep.path, tmp_path / "sweep")
    build_run(tmp_path / "deep" / "below" / "run", hours=3)
    names = {f"sweep/{entry['run']}" for entry in sweep.record["runs"]} | {"deep/below/run"}
    facts = compare(tmp_path).facts
    assert {one.path.relative_to(tmp_path).as_posix() for one in facts} == names
    # As written by runs/*: not all runs of a decision, but those of a folder with sweeps and an earlier page.
    (tmp_path / PAGE).touch()
    DECISION.write(
        tmp_path / "deep", {"asked": {}, "files": {}, "batch": 1, "batches": 0, "spent_s": 0}
    )
    paths = {one.path.parent for one in compare([tmp_path, tmp_path / "deep"]).facts}
    assert paths == {tmp_path / "sweep"}


def test_figures_and_files_take_the_labels_of_the_command(tmp_path: Path) -> None:
    comparison = of(run("fedavg"), run("fedbuff"), baseline="fedbuff")
    labels = {"fedavg": r"FedAvg $\alpha_1$", "fedbuff": "50% & more"}
    figure = comparison.plot("accuracy", labels=labels)
    names = figure.axes[0].get_legend_handles_labels()[1]
    assert names == list(labels.values())
    assert comparison.groups[0].label == "fedavg", "the comparison itself keeps its names"
    for use in (comparison.plot, comparison.write):
        target = "accuracy" if use == comparison.plot else tmp_path
        with pytest.raises(UserError, match="labels: there is no variant or setting 'nobody'"):
            use(target, labels={"nobody": "A"})


@pytest.fixture(scope="module")
def page(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return comparison.write(tmp_path_factory.mktemp("written") / "out")


def test_files(sweep: Sweep, comparison: Comparison, page: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in page.parent.iterdir()) == [
        "compare.html",
        "curves.pdf",
        "curves.png",
        "curves.svg",
        "summary.csv",
        "summary.parquet",
        "table.tex",
        "targets.csv",
        "targets.parquet",
    ]
    for name in ("summary", "targets"):
        frame = getattr(comparison, name)
        pd.testing.assert_frame_equal(pd.read_parquet(page.parent / f"{name}.parquet"), frame)
        back = pd.read_csv(page.parent / f"{name}.csv", keep_default_na=True)
        pd.testing.assert_frame_equal(back, frame, check_dtype=False)
    first = {path.name: path.read_bytes() for path in page.parent.iterdir()}
    compare(sweep.path, targets=[f"accuracy={value}" for value in TARGETS]).write(
        tmp_path / "again"
    )
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}


def test_names_of_folders_control_no_page(sweep: Sweep, tmp_path: Path) -> None:
    names = ["\x1b[31mred", "two\nlines", "\u202elatot", "not\x1bfinished"]
    copies = [shutil.copytree(next(sweep.path.glob("*/")), tmp_path / name) for name in names]
    RunFolder(copies[-1]).update_info(status="failed", error="\x1b")
    compare(copies).write(tmp_path / "written")
    texts = {
        path.suffix: path.read_text("utf-8")
        for path in (tmp_path / "written").iterdir()
        if path.suffix in (".html", ".svg", ".tex", ".csv")
    }
    assert r"two\nlines" in texts[".html"]
    assert r"two\textbackslash{}nlines" in texts[".tex"]
    for suffix, text in texts.items():
        assert not any(mark in text for mark in ("\x1b", "\u202e", "two\nlines")), suffix


def test_only_an_earlier_comparison_is_replaced(
    comparison: Comparison, page: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "summary.csv").write_text("mine")
    with pytest.raises(UserError, match="already exists") as caught:
        comparison.write(folder)
    assert caught.value.where == str(folder / "summary.csv")
    (folder / "summary.csv").rename(folder / "compare.html")
    with pytest.raises(UserError, match="not written by fedsim"):
        comparison.write(folder)
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]
    (folder / "compare.html").rename(folder / "notes.html")
    shutil.copytree(page.parent, folder, dirs_exist_ok=True)
    labels = {"fedbuff": r"FedAvg $\alpha_1$", "fedavg": "50% & more"}
    assert comparison.write(folder, labels=labels) == folder / "compare.html"
    assert (folder / "notes.html").read_text() == "mine"
    table = (folder / "table.tex").read_text(encoding="utf-8")
    assert r"FedAvg $\alpha_1$ &" in table
    assert r"50\% \& more &" in table
    assert "relative to 50% & more over" in table
    assert r"FedAvg $\alpha_1$" in (folder / "summary.csv").read_text(encoding="utf-8")
