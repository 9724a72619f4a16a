"""The tables of the comparison page show the frames."""

import itertools
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import fedsim
from fedsim.analysis.comparison import Comparison, Target, compare, figures
from fedsim.analysis.comparison.findings import most_often
from fedsim.analysis.comparison.page import page_figures
from fedsim.analysis.comparison.tables import SAME
from fedsim.sweeps import Sweep
from fedsim.vocabulary.formatting import format_duration, format_mean, format_value
from tests.analysis.comparison.compared import GROUPS, SETTINGS, cells, folders
from tests.analysis.comparison.made import GOAL, of, racers, run
from tests.analysis.comparison.test_groups import facts
from tests.analysis.documents import drawn
from tests.composition.test_closing import simulate

FRAMES = {"time": "spent", "work": "summary", "participation": "summary", "fairness": "fairness"}


def test_tables_of_the_page_show_the_frames(comparison: Comparison, comparison_page: str) -> None:
    page = comparison_page
    first = page_figures(comparison)["first"]
    means = [row["time_s"] for row in first.extra["rows"] if row["setting"] == SETTINGS[0]]
    assert means == sorted(means, key=lambda mean: (math.isnan(mean), mean)), "the fastest first"
    assert page.index('id="figure-first"') < page.index('id="figure-curves"')
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
    frame = comparison.standings(Target("accuracy", 0.5)).to_dict("records")
    for line, known in zip(cells(page, "target-0"), frame, strict=True):
        assert line[:3] == [
            known["setting"],
            known["label"],
            f"{known['reached']} of {known['runs']}",
        ]
        of_runs = comparison.at(known["setting"], Target("accuracy", 0.5))[known["label"]]
        assert (known["low_s"], known["high_s"]) == (of_runs.min(), of_runs.max())
        names = ("time_s", "low_s", "high_s", "time_median_s")
        mean, low, high, median = (format_duration(known[name]) for name in names)
        assert line[3:6] == [mean, f"{low} to {high}", median]
        ratio = known["relative"]
        speed = f"{ratio:.2g} times as slow" if ratio > 1 else f"{1 / ratio:.2g} times as fast"
        assert line[6] == "baseline" or line[6].startswith(speed)
    for line, known in zip(
        cells(page, "quality"), comparison.summary.to_dict("records"), strict=True
    ):
        mean, sd = known["final_accuracy"], known["final_accuracy_sd"]
        assert line[3] == format_mean(mean, sd, "share")
    for line, known in zip(cells(page, "runs"), comparison.runs.to_dict("records"), strict=True):
        assert [line[2], line[-1]] == [str(known["seed"]), known["run"]]


def test_the_never_reached_target_shows_dashes_only(comparison_page: str) -> None:
    for line in cells(comparison_page, "target-2"):
        assert line[2] == "0 of 3"
        assert set(line[3:]) == {"–"}


def test_pauses_are_a_part_of_their_own(tmp_path: Path) -> None:
    """Ten steps of 1 s and 3 s of transfers; with one policy, 26 s offline in between; 100 s in all."""
    runs = [
        simulate(tmp_path / policy, policy, [(0, 4), (30, 60)]).path for policy in ("drop", "pause")
    ]
    comparison = fedsim.compare(runs)
    assert comparison is not None
    assert comparison.summary["paused_s"].tolist() == [0, 26]
    assert comparison.summary["compute_s"].tolist() == [3, 10]
    figure = page_figures(comparison)["time"]
    (paused,) = (column.values for column in figure.columns if column.key == "paused")
    assert list(paused) == [0, 26]
    assert [share for part, _, share in figure.extra["bars"][1]["parts"] if part == "paused"] == [
        pytest.approx(0.26)
    ]


def test_a_baseline_that_never_got_there_is_named() -> None:
    comparison = of(run("fedavg", accuracy=(0.1, 0.2)), run("mifa"), goals=(GOAL,))
    assert comparison.targets["relative"].isna().all()
    without = "no speeds relative to fedavg"
    assert without in figures.target_figure(comparison, GOAL, 0).finding
    reached = of(run("fedavg"), run("mifa"), goals=(GOAL,))
    assert without not in figures.target_figure(reached, GOAL, 0).finding


def test_what_only_one_of_several_settings_needed_names_it() -> None:
    fast, slow = (10, 11, 12), (30, 31, 32)
    runs = [
        *racers(a=fast, b=slow, updates=(5, 9)),
        *racers(a=(None,) * 3, b=(10, None, None), alpha=1),
    ]
    harder = Target("accuracy", 0.95)
    comparison = of(*runs, goals=(GOAL, harder))
    finding = figures.target_figure(comparison, GOAL, 0).finding
    assert finding.startswith("Fewest client updates: 5 with a (alpha=0)")
    finding = figures.target_figure(comparison, harder, 1).finding
    assert finding == "No variant reached it in at least half of the runs."


@pytest.mark.parametrize("seeds", [2, 3, 6])
def test_few_seeds_are_a_note(seeds: int) -> None:
    """mifa is later by 10 s and better by 0.05, with every seed."""
    runs = [run("fedavg", seed) for seed in range(seeds)]
    runs += [run("mifa", seed, (0.1, 0.1, 0.95)) for seed in range(seeds)]
    for each in runs:  # mifa moves more data.
        each.progress["bytes"] += 1000.0 * ("mifa" in str(each.path))
    comparison = of(*runs, goals=(GOAL,))
    target, pairs = figures.target_figure(comparison, GOAL, 0), drawn(figures.pairs(comparison))
    spread = "range of the seeds" if seeds < 6 else "95% interval"
    assert spread in [column.label for column in pairs.columns]
    of_times = next(column.values for column in pairs.columns if column.key == "spread")
    assert set(of_times) == {"+5.0 pp to +5.0 pp", "+10 s to +10 s"}
    assert [column.label for column in target.columns][3] == spread
    assert "not counted" in pairs.finding
    few = "No variant needed clearly less than the others: fewer than 3 common seeds."
    assert (target.finding == few) == (seeds < 3)
    first = drawn(figures.first_to(comparison))
    assert [column.label for column in first.columns][3] == spread
    slow, fast = first.extra["rows"][1], first.extra["rows"][0]
    assert (fast["label"], slow["label"]) == ("fedavg", "mifa") or fast["time_s"] < slow["time_s"]
    assert len(slow["seeds"]) == seeds
    ends = [min(slow["seeds"]), max(slow["seeds"])]
    if seeds < 6:
        assert slow["ends"] == ends, "a range is that of the runs"


@pytest.mark.parametrize(
    ("ends_s", "shown"),
    [
        ((300, 9000), "5 min, 10 min, 30 min, 1 h, 2 h"),
        ((20, 400_000), "1 min, 1 h, 1 d"),
        ((100, 130), "1 min 40 s, 2 min 10 s"),
        ((27, 54), "30 s, 40 s, 50 s"),
        ((0.2, 0.3), "0.2 s, 0.3 s"),
        ((0.013, 0.4), "30 ms, 0.1 s, 0.3 s"),
        ((27_960, 28_980), "8 h"),
    ],
)
def test_ticks_of_time_have_every_unit(ends_s: tuple[float, float], shown: str) -> None:
    runs = racers(every_s=0.01, a=ends_s[:1] * 3, b=ends_s[1:] * 3)
    figure = drawn(figures.first_to(of(*runs, goals=(GOAL,))))
    assert ", ".join(words for _, words in figure.extra["ticks"]) == shown


def test_identical_variants_are_one_row(sweep: Sweep, tmp_path: Path) -> None:
    folder = folders(sweep, *GROUPS[0])[0]
    copy = shutil.copytree(folder, tmp_path / "copy")
    comparison = compare([folder, copy], targets=["accuracy=0.5"])
    assert figures.first_to(comparison) is None, "there is nothing to compare"
    other = folders(sweep, *GROUPS[1])[0]
    comparison = compare([folder, copy, other], targets=["accuracy=0.5"])
    rows = drawn(figures.first_to(comparison)).extra["rows"]
    assert len(rows) == 2
    assert any(SAME in row["label"] for row in rows)


def test_pairs_have_the_baseline_first_in_order_and_second_in_place() -> None:
    runs = [run(name, accuracy=(0.1, end)) for name, end in (("a", 0.5), ("b", 0.7), ("c", 0.4))]
    comparison = of(*runs, baseline="b", goals=(Target("accuracy", 0.99),))
    pairs = comparison.pairs[comparison.pairs["quantity"] == "final accuracy"]
    names = list(zip(pairs["first"], pairs["second"], strict=True))
    assert names == [("a", "b"), ("c", "b"), ("a", "c")]
    figure = drawn(figures.pairs(comparison))
    # Nobody reached the target: nothing to subtract, no row.
    shown = next(column for column in figure.columns if column.key == "difference")
    assert shown.values == ["−20.0 pp", "−30.0 pp", "+10.0 pp"]
    two = figures.pairs(of(*runs[:2], goals=(Target("accuracy", 0.99),)))
    assert drawn(two).finding == "The differences are those of one seed."


def test_many_variants_that_differ_in_few_keys_have_a_row_each() -> None:
    """With a column each, nine would not fit on paper; durations have their units."""
    schedules = [{"name": "sync", "deadline": 60.0 * n, "over_selection": n} for n in range(2, 11)]
    runs = [facts({"server": {"method": "fedavg", "schedule": each}}, 0) for each in schedules]
    figure = drawn(figures.differences(of(*runs)))
    assert [column.label for column in figure.columns[1:]] == [
        "server.schedule.deadline",
        "server.schedule.over_selection",
    ]
    assert [row[1:] for row in figure.rows[:2]] == [("2min", "2"), ("3min", "3")]
    assert drawn(figures.differences(of(*runs[:2]))).rows[0] == (
        "server.schedule.deadline", "2min", "3min"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("figure", "column", "best"),
    [("work", "lost_steps", "idxmax"), ("participation", "gini", "idxmin")],
)
def test_findings_name_the_variants_that_are_ahead(
    comparison: Comparison, figure: str, column: str, best: str
) -> None:
    table = comparison.summary
    first = table.loc[table.groupby("setting")[column].agg(best), "label"]
    assert page_figures(comparison)[figure].finding.endswith(f": {most_often(first, 2)}.")


def test_findings_name_no_winner_where_ranges_overlap(comparison: Comparison) -> None:
    for _, groups in itertools.groupby(comparison.groups, lambda group: group.setting):
        tenths = [
            [
                np.sort(run.client_accuracy)[: math.ceil(len(run.client_accuracy) / 10)].mean()
                for run in group.runs
            ]
            for group in groups
        ]
        assert max(map(min, tenths)) <= min(map(max, tenths))
    finding = page_figures(comparison)["fairness"].finding
    assert finding.endswith("tenth of the clients: no clear winner in any of 2 settings.")
