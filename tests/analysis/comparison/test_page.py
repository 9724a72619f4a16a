"""The comparison page: its tables show the frames, its sentences say what they hold."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from click.testing import CliRunner

import fedsim
from fedsim.analysis.comparison import Comparison, compare
from fedsim.analysis.comparison.headline import headline
from fedsim.analysis.comparison.page import page_figures, render
from fedsim.cli.compare import command
from fedsim.formatting import format_duration, format_value
from fedsim.runs import RunFolder
from fedsim.sweeps import Sweep
from tests.analysis.comparison import compared
from tests.analysis.comparison.compared import GROUPS, cells, folders, parquet

FRAMES = {"time": "spent", "work": "summary", "participation": "summary", "fairness": "fairness"}


def test_tables_of_the_page_show_the_frames(comparison: Comparison) -> None:
    page = render(comparison)
    for name in ("work", "participation", "fairness"):
        figure, frame = page_figures(comparison)[name], getattr(comparison, FRAMES[name])
        expected = [
            [format_value(line[column.key], column.kind) for column in figure.columns]
            for line in frame.to_dict("records")
        ]
        assert cells(page, name) == expected
    spent = comparison.spent.pivot(index=["setting", "label"], columns="part", values="seconds")
    for line in cells(page, "time"):
        seconds = spent.loc[(line[0], line[1])]
        parts = ["download", "compute", "upload", "waiting", "idle", "offline"]
        assert line[2:] == [format_duration(seconds[part]) for part in parts]
    frame = comparison.targets[comparison.targets["target"] == 0.5].to_dict("records")
    for line, known in zip(cells(page, "target-0"), frame, strict=True):
        assert line[:3] == [
            known["setting"],
            known["label"],
            f"{known['reached']} of {known['runs']}",
        ]
        assert line[3] == format_duration(known["time_s"])
        assert (
            line[4]
            == f"{format_duration(known['time_low_s'])} to {format_duration(known['time_high_s'])}"
        )
        assert line[5] == format_duration(known["time_median_s"])
        assert line[6] == f"{known['relative']:.2f}×"
    for line, known in zip(
        cells(page, "quality"), comparison.summary.to_dict("records"), strict=True
    ):
        mean, sd = known["final_accuracy"], known["final_accuracy_sd"]
        assert line[3] == f"{100 * mean:.1f}% ± {100 * sd:.1f}%"
    for line, known in zip(cells(page, "runs"), comparison.runs.to_dict("records"), strict=True):
        assert line[2:4] == [str(known["seed"]), known["run"]]


def test_the_never_reached_target_shows_dashes_only(comparison: Comparison) -> None:
    for line in cells(render(comparison), "target-2"):
        assert line[2] == "0 of 3"
        assert set(line[3:]) == {"–"}


# -- no difference ------------------------------------------------------------------------------------


def test_two_identical_runs_show_no_difference(sweep: Sweep, tmp_path: Path) -> None:
    run = folders(sweep, *GROUPS[0])[0]
    shutil.copytree(run, tmp_path / "copy")
    same = compare([run, tmp_path / "copy"])
    assert same.no_difference
    assert headline(same) == "No difference"
    assert '<h1 id="headline">No difference</h1>' in render(same)
    assert [group.label for group in same.groups] == [run.name, "copy"]
    assert (same.pairs["difference"] == 0).all()
    assert (same.pairs["same"] == same.pairs["seeds"]).all()


def test_a_key_without_effect_makes_no_difference(tmp_path: Path) -> None:
    plain = {key: value for key, value in compared.SCENARIO.items() if key != "sweep"}
    first = fedsim.run(plain, tmp_path / "first")
    other = {**compared.SCENARIO["training"], "threads": 1}
    second = fedsim.run({**plain, "training": other}, tmp_path / "second")
    same = compare([first, second])
    assert same.no_difference
    assert [group.label for group in same.groups] == ["threads=none", "threads=1"]


def test_variants_that_no_evaluation_tells_apart_tie(tmp_path: Path) -> None:
    """x is worked out by hand: after 10 s and 10 steps 0.9^10 and 0.89^10; 0.98^40 after 40 s; loss x^2 / 2."""

    def run(lr: float) -> fedsim.Run:
        scenario = {
            "task": {"name": "quadratic", "centers": [0.0], "initial": 1.0},
            "training": {"optimizer": {"lr": lr}, "local_steps": 2, "dtype": "float64"},
            "devices": {
                "compute": {"name": "values", "step": 1},
                "network": {"name": "static", "latency": 0, "down": 1e18, "up": 1e18},
            },
            "stop": {"simulated_time": 60},
            "evaluation": {"every": 10},
        }
        return fedsim.run(scenario, tmp_path / f"{lr:g}")

    quick, quicker, slow = run(0.1), run(0.11), run(0.02)
    both = compare([quick, quicker], targets=["loss=0.1"])
    assert (
        headline(both)
        == "All reached 0.1 loss after 10 s: a tie at the resolution of the evaluations"
    )
    finding = "All reached it after 10 s: a tie at the resolution of the evaluations."
    assert page_figures(both)["target-0"].finding == finding
    every = compare([slow, quick, quicker], targets=["loss=0.1"])
    a, b, c = (group.label for group in every.groups if group.values)
    assert headline(every) == (
        f"{b} and {c} reached 0.1 loss first, after 10 s, tied at the resolution of the evaluations: "
        f"4 times as fast as {a}"
    )
    finding = f"{b} and {c} were first, after 10 s: a tie at the resolution of the evaluations."
    assert page_figures(every)["target-0"].finding == finding
    one = compare([slow, quick], targets=["loss=0.1"])
    assert headline(one) == f"{b} reached 0.1 loss first, after 10 s: 4 times as fast as {a}"
    targets = ["--target", "loss=0.1"]
    printed = CliRunner().invoke(command, [str(quick.path), str(quicker.path), *targets])
    assert "a tie at the resolution" in printed.output


def test_the_last_bit_is_a_difference(sweep: Sweep, tmp_path: Path) -> None:
    run = folders(sweep, *GROUPS[0])[0]
    shutil.copytree(run, tmp_path / "copy")
    metrics = parquet(tmp_path / "copy", "metrics")
    metrics.loc[4, "loss"] = np.nextafter(metrics.loc[4, "loss"], 9)
    metrics.to_parquet(tmp_path / "copy" / "metrics.parquet")
    RunFolder(tmp_path / "copy").update_info(files={})
    other = compare([run, tmp_path / "copy"])
    assert not other.no_difference
    assert headline(other) != "No difference"


def test_groups_with_other_seeds_are_not_the_same(sweep: Sweep) -> None:
    assert not compare(folders(sweep, *GROUPS[0])).no_difference
    assert not compare(sweep.path).no_difference
