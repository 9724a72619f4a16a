"""The comparison: every number against an independent query of the Parquet files, grouping, statistics, files."""

from __future__ import annotations

import html
import itertools
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from click.testing import CliRunner
from synthetic_runs import build_run

import fedsim
from fedsim.analysis.comparison import Comparison, Target, compare
from fedsim.analysis.comparison.facts import COSTS
from fedsim.analysis.comparison.headline import headline
from fedsim.analysis.comparison.page import page_figures, render
from fedsim.cli.compare import command
from fedsim.errors import UserError
from fedsim.formatting import format_duration, format_value
from fedsim.randomness import Purpose, Stream
from fedsim.sweeps import Sweep
from tests.analysis.comparison import compared
from tests.analysis.comparison.compared import (
    SEEDS,
    SETTINGS,
    VARIANTS,
    cost,
    first_reaching,
    folders,
    parquet,
    value_at,
)

GROUPS = list(itertools.product(SETTINGS, VARIANTS))
TARGETS = (0.5, 0.7, 0.99)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return compared.build(tmp_path_factory.mktemp("compared") / "sweep")


@pytest.fixture(scope="module")
def comparison(sweep: Sweep) -> Comparison:
    return compare(sweep.path, targets=[f"accuracy={value}" for value in TARGETS])


@pytest.fixture(scope="module")
def document(comparison: Comparison) -> dict[str, Any]:
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', render(comparison), re.S
    )
    assert found
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def row(frame: pd.DataFrame, setting: str, variant: str, **more: Any) -> Any:
    wanted = {"setting": setting, "label": variant, **more}
    found = frame[np.logical_and.reduce([frame[key] == value for key, value in wanted.items()])]
    assert len(found) == 1
    return found.iloc[0]


def drawn_seeds() -> npt.NDArray[np.int64]:
    """The seeds of each bootstrap resample, (2000, 3)."""
    return Stream(0, Purpose.ANALYSIS).generator().integers(0, 3, (2000, 3))


# -- the numbers ------------------------------------------------------------------------------------


def test_groups_are_named_after_what_differs(comparison: Comparison) -> None:
    assert [(group.setting, group.label) for group in comparison.groups] == GROUPS
    for group in comparison.groups:
        assert [run.seed for run in group.runs] == list(SEEDS)
    assert "task.partition.alpha" in comparison.grouping.differing
    assert "server.method.name" in comparison.grouping.differing


@pytest.mark.parametrize("against", list(COSTS))
@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_curves_carry_the_last_value_forward(
    sweep: Sweep, comparison: Comparison, document: dict[str, Any], metric: str, against: str
) -> None:
    frame = comparison.curves(metric, against)
    checked = 0
    for (setting, variant), number in zip(GROUPS, (0, 1, 0, 1), strict=True):
        group = frame[(frame["setting"] == setting) & (frame["label"] == variant)]
        runs = folders(sweep, setting, variant)
        end = max(cost(run, against).max() for run in runs)
        shown = document["charts"]["settings"][setting][metric][against]
        for place in range(0, len(group), max(1, len(group) // 7)):
            x = float(group["x"].iloc[place])
            values = np.array([value_at(run, metric, against, x) for run in runs])
            if x > end * (1 + 1e-9):
                values[:] = np.nan
            expected = values.mean()
            assert group["mean"].iloc[place] == pytest.approx(expected, nan_ok=True)
            spread = values.std(ddof=1)
            assert group["low"].iloc[place] == pytest.approx(expected - spread, nan_ok=True)
            assert group["high"].iloc[place] == pytest.approx(expected + spread, nan_ok=True)
            assert shown["x"][place] == x
            drawn = shown["groups"][number]["mean"][place]
            assert drawn == (None if math.isnan(expected) else pytest.approx(expected))
            checked += not math.isnan(expected)
    assert checked > 16


@pytest.mark.parametrize("value", TARGETS)
def test_times_to_target(sweep: Sweep, comparison: Comparison, value: float) -> None:
    resamples = drawn_seeds()
    for setting, variant in GROUPS:
        shown = row(comparison.targets, setting, variant, target=value)
        runs = folders(sweep, setting, variant)
        times = np.array([first_reaching(run, "accuracy", value) for run in runs])
        reached = int(np.isfinite(times).sum())
        assert (shown["runs"], shown["reached"]) == (3, reached)
        if reached < 1.5:
            numbers = shown[["time_s", "time_low_s", "time_median_s", "relative", "bytes"]]
            assert numbers.isna().all()
            continue
        assert shown["time_s"] == pytest.approx(np.nanmean(times))
        ordered = np.sort(np.where(np.isnan(times), np.inf, times))
        assert shown["time_median_s"] == ordered[1]
        if reached == 3:
            means = [times[draw].mean() for draw in resamples]
            assert shown["time_low_s"] == pytest.approx(np.quantile(means, 0.025))
            assert shown["time_high_s"] == pytest.approx(np.quantile(means, 0.975))
        else:
            assert math.isnan(shown["time_low_s"])
        base = np.array(
            [first_reaching(run, "accuracy", value) for run in folders(sweep, setting, "fedavg")]
        )
        if np.isfinite(base).sum() < 1.5:
            assert math.isnan(shown["relative"])
        else:
            assert shown["relative"] == pytest.approx(np.nanmean(times) / np.nanmean(base))
        if variant != "fedavg" and np.isfinite([*times, *base]).all():
            ratios = [times[draw].mean() / base[draw].mean() for draw in resamples]
            assert shown["relative_low"] == pytest.approx(np.quantile(ratios, 0.025))
            assert shown["relative_high"] == pytest.approx(np.quantile(ratios, 0.975))
        for against in ("round", "version", "bytes", "compute_s"):
            at = [
                cost(run, against)[
                    (parquet(run, "metrics")["accuracy"] >= value).to_numpy().argmax()
                ]
                for run, time_s in zip(runs, times, strict=True)
                if math.isfinite(time_s)
            ]
            assert shown[against] == pytest.approx(np.mean(at))


def test_the_sample_reaches_every_case(comparison: Comparison) -> None:
    """Otherwise the test above would test less than it says."""
    frame = comparison.targets
    assert set(frame["reached"]) >= {0, 3}
    assert frame["relative_low"].notna().any()
    assert frame[frame["reached"] == 0]["time_s"].isna().all()


def test_final_and_best_values(sweep: Sweep, comparison: Comparison) -> None:
    for setting, variant in GROUPS:
        shown = row(comparison.summary, setting, variant)
        tables = [parquet(run, "metrics") for run in folders(sweep, setting, variant)]
        for metric, best in (("accuracy", "max"), ("loss", "min")):
            ends = np.array([table[metric].iloc[-1] for table in tables])
            assert shown[f"final_{metric}"] == pytest.approx(ends.mean())
            assert shown[f"final_{metric}_sd"] == pytest.approx(ends.std(ddof=1))
            bests = [getattr(table[metric], best)() for table in tables]
            assert shown[f"best_{metric}"] == pytest.approx(np.mean(bests))


def test_differences_are_taken_seed_by_seed(sweep: Sweep, comparison: Comparison) -> None:
    resamples = drawn_seeds()
    for setting in SETTINGS:
        first, second = (
            np.array(
                [parquet(run, "metrics")["accuracy"].iloc[-1] for run in folders(sweep, setting, v)]
            )
            for v in reversed(VARIANTS)  # the baseline is the second
        )
        frame = comparison.pairs
        shown = frame[(frame["setting"] == setting) & (frame["quantity"] == "final accuracy")].iloc[
            0
        ]
        gaps = first - second
        assert (shown["first"], shown["second"], shown["seeds"]) == (*reversed(VARIANTS), 3)
        assert shown["difference"] == pytest.approx(gaps.mean())
        means = gaps[resamples].mean(axis=1)
        assert shown["low"] == pytest.approx(np.quantile(means, 0.025))
        assert shown["high"] == pytest.approx(np.quantile(means, 0.975))
        assert shown["better"] == (gaps > 0).sum()
        for value in TARGETS:
            quantity = f"time to accuracy={value:g}"
            shown = frame[(frame["setting"] == setting) & (frame["quantity"] == quantity)].iloc[0]
            pairs = [
                [first_reaching(run, "accuracy", value) for run in both]
                for both in zip(
                    *(folders(sweep, setting, v) for v in reversed(VARIANTS)), strict=True
                )
            ]
            gaps = np.array([a - b for a, b in pairs if math.isfinite(a) and math.isfinite(b)])
            assert shown["seeds"] == len(gaps)
            assert shown["difference"] == pytest.approx(
                gaps.mean() if len(gaps) else np.nan, nan_ok=True
            )
            assert shown["better"] == (gaps < 0).sum()


def test_time_spent(sweep: Sweep, comparison: Comparison) -> None:
    for setting, variant in GROUPS:
        tables = [parquet(run, "clients") for run in folders(sweep, setting, variant)]
        whole = 0.0
        for part in ("download", "compute", "upload", "waiting", "idle", "offline"):
            shown = row(comparison.spent, setting, variant, part=part)
            seconds = np.mean([table[f"{part}_s"].sum() for table in tables])
            assert shown["seconds"] == pytest.approx(seconds)
            whole += shown["share"]
        assert whole == pytest.approx(1.0)


def test_work_and_what_was_lost(sweep: Sweep, comparison: Comparison) -> None:
    lost_anything = 0.0
    for setting, variant in GROUPS:
        shown = row(comparison.summary, setting, variant)
        shares = []
        for run in folders(sweep, setting, variant):
            table = parquet(run, "dispatches")
            lost = table["outcome"].isin(["late", "dropped", "cut", "discarded"])
            busy = table["ended_s"] - table["dispatched_s"]
            moved = table["bytes_down"] + table["bytes_up"]
            shares.append(
                [
                    lost.mean(),
                    table["steps_done"][lost].sum() / table["steps_done"].sum(),
                    moved[lost].sum() / moved.sum(),
                    busy[lost].sum() / busy.sum(),
                ]
            )
        names = ["lost_dispatches", "lost_steps", "lost_bytes", "lost_seconds"]
        assert shown[names].tolist() == pytest.approx(np.mean(shares, axis=0))
        lost_anything += shown["lost_steps"]
        tables = [parquet(run, "dispatches") for run in folders(sweep, setting, variant)]
        assert shown["dispatches"] == pytest.approx(np.mean([len(table) for table in tables]))
        assert shown["energy_j"] == pytest.approx(np.mean([t["energy_j"].sum() for t in tables]))
        assert shown["bytes"] == pytest.approx(
            np.mean([(t["bytes_down"] + t["bytes_up"]).sum() for t in tables])
        )
    assert lost_anything > 0


def test_participation_and_delay(sweep: Sweep, comparison: Comparison) -> None:
    for setting, variant in GROUPS:
        shown = row(comparison.summary, setting, variant)
        expected: dict[str, list[float]] = {}
        for run in folders(sweep, setting, variant):
            table, updates = parquet(run, "dispatches"), parquet(run, "aggregations")
            taken = table[table["outcome"] == "aggregated"]
            given = taken.groupby("client_id").size().reindex(range(12), fill_value=0)
            pairs = np.abs(given.to_numpy()[:, None] - given.to_numpy()).mean()
            made = taken["aggregated_version"].map(updates.set_index("version")["time_s"])
            for name, value in {
                "updates": len(updates),
                "per_update": updates["contributors"].mean(),
                "contributed": (given > 0).mean(),
                "gini": pairs / 2 / given.mean(),
                "staleness_mean": taken["staleness"].mean(),
                "staleness_max": taken["staleness"].max(),
                "age_s": (made - taken["dispatched_s"]).mean(),
                "tau_avg": updates["delay_max"].mean(),
                "tau_max": updates["delay_max"].max(),
            }.items():
                expected.setdefault(name, []).append(float(value))
        for name, values in expected.items():
            assert shown[name] == pytest.approx(np.mean(values)), name


def test_lorenz_curves(sweep: Sweep, document: dict[str, Any]) -> None:
    for number, (setting, variant) in enumerate(GROUPS):
        curves = []
        for run in folders(sweep, setting, variant):
            taken = parquet(run, "dispatches").query("outcome == 'aggregated'")
            given = np.sort(taken.groupby("client_id").size().reindex(range(12), fill_value=0))
            curves.append(np.r_[0, given.cumsum()] / given.sum())
        mean = np.mean(curves, axis=0)
        shown = document["lorenz"]["groups"][number]
        places = document["lorenz"]["columns"][0]["values"]
        assert shown == pytest.approx(np.interp(places, np.arange(13) / 12, mean).tolist())


def test_fairness_over_clients(
    sweep: Sweep, comparison: Comparison, document: dict[str, Any]
) -> None:
    for number, (setting, variant) in enumerate(GROUPS):
        shown = row(comparison.fairness, setting, variant)
        each, below = [], []
        for run in folders(sweep, setting, variant):
            own = parquet(run, "clients")["last_accuracy"].dropna().to_numpy()
            worst = np.sort(own)[: math.ceil(len(own) / 10)].mean()
            jain = own.sum() ** 2 / len(own) / (own**2).sum()
            each.append(
                [len(own), own.mean(), own.std(), worst, *np.quantile(own, [0.1, 0.5, 0.9]), jain]
            )
            below.append([(own <= place / 40).mean() for place in range(41)])
        names = ["clients", "mean", "sd", "worst_tenth", "p10", "median", "p90", "jain"]
        assert shown[names].tolist() == pytest.approx(np.mean(each, axis=0).tolist())
        assert document["client_accuracy"]["groups"][number] == pytest.approx(
            np.mean(below, axis=0).tolist()
        )


FRAMES = {"time": "spent", "work": "summary", "participation": "summary", "fairness": "fairness"}


def cells(page: str, figure: str) -> list[list[str]]:
    body = page.split(f'id="figure-{figure}"')[1].split("<tbody>")[1].split("</tbody>")[0]
    rows = [
        re.findall(r"<t[hd](?! class=\"range\")[^>]*>(.*?)</t[hd]>", part, re.S)
        for part in body.split("<tr>")[1:]
    ]
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in row] for row in rows]


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
        headline(both) == "All reached 0.1 loss after 10 s: a tie at the resolution of the evaluations"
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
    other = compare([run, tmp_path / "copy"])
    assert not other.no_difference
    assert headline(other) != "No difference"


def test_groups_with_other_seeds_are_not_the_same(sweep: Sweep) -> None:
    assert not compare(folders(sweep, *GROUPS[0])).no_difference
    assert not compare(sweep.path).no_difference


# -- choices, files, commands ------------------------------------------------------------------------------------


def test_baseline_can_be_chosen(sweep: Sweep) -> None:
    chosen = compare(sweep.path, targets=["accuracy=0.5"], baseline="fedbuff")
    assert row(chosen.targets, SETTINGS[0], "fedbuff")["relative"] == 1
    times = chosen.targets.set_index(["setting", "label"])["time_s"]
    expected = times[SETTINGS[0], "fedavg"] / times[SETTINGS[0], "fedbuff"]
    assert row(chosen.targets, SETTINGS[0], "fedavg")["relative"] == pytest.approx(expected)
    with pytest.raises(UserError, match="there is no variant 'fedprox'"):
        compare(sweep.path, baseline="fedprox")


def test_targets_are_checked_and_have_a_default(sweep: Sweep) -> None:
    with pytest.raises(UserError, match="no run measured 'f2'"):
        compare(sweep.path, targets=["f2=0.5"])
    with pytest.raises(UserError, match="write a metric, '=' and a number"):
        compare(sweep.path, targets=["accuracy:0.5"])
    levels = [goal.value for goal in compare(sweep.path).goals]
    best = max(parquet(path, "metrics")["accuracy"].max() for path in sweep.path.glob("*seed*"))
    assert levels == sorted(levels)
    assert levels[-1] <= best < levels[-1] + 0.05
    assert str(Target("accuracy", 0.9)) == "accuracy=0.9"


def test_runs_that_are_not_complete_are_left_out_and_named(sweep: Sweep, tmp_path: Path) -> None:
    shutil.copytree(sweep.path, tmp_path / "sweep")
    for name, status in (("failed", "failed"), ("killed", "running")):
        path = next((tmp_path / "sweep").glob(f"alpha5.0_fedavg_*seed{int(name == 'killed')}"))
        info = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps({**info, "status": status, "error": "no luck"}))
    shutil.rmtree(next((tmp_path / "sweep").glob("alpha5.0_fedavg_*seed2")))
    found = compare(tmp_path / "sweep")
    assert [(g.setting, g.label) for g in found.groups] == GROUPS[1:2] + GROUPS[2:]
    assert [item.reason for item in found.left_out] == [
        "failed (no luck)",
        "is in progress or was killed",
        "was not started",
    ]
    assert "3 runs left out" in render(found)
    output = CliRunner().invoke(command, [str(tmp_path / "sweep")]).output
    assert "3 runs left out" in output


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        compare(tmp_path / "nothing")
    with pytest.raises(UserError, match="the folder holds no run"):
        compare(tmp_path)
    build_run(tmp_path / "killed", hours=3, finish=False)
    with pytest.raises(UserError, match="no complete run"):
        compare(tmp_path)


def test_timing_only_runs_are_compared_without_learning(tmp_path: Path) -> None:
    runs = [build_run(tmp_path / f"{seed}", hours=6, learning=False, seed=seed) for seed in (0, 1)]
    found = compare(runs)
    page = found.write(tmp_path / "out").read_text()
    assert "timing-only runs" in page
    assert not (tmp_path / "out" / "curves.pdf").exists()
    assert found.summary["runs"].tolist() == [2]
    with pytest.raises(UserError, match="timing-only"):
        found.plot()


def test_files(sweep: Sweep, comparison: Comparison, tmp_path: Path) -> None:
    page = comparison.write(tmp_path / "out")
    assert sorted(path.name for path in page.parent.iterdir()) == [
        "compare.html",
        "curves.pdf",
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


def test_latex_table(comparison: Comparison, tmp_path: Path) -> None:
    comparison.write(tmp_path)
    lines = (tmp_path / "table.tex").read_text().splitlines()
    assert lines[1] == r"\begin{tabular}{lrrrrrr}"
    assert r"\multicolumn{3}{c}{alpha=5}" in lines[3]
    body = [line for line in lines if line.startswith(VARIANTS)]
    assert len(body) == 2
    shown = row(comparison.targets, SETTINGS[0], "fedbuff", target=0.5)
    assert (
        f"{shown['time_s']:.2f} [{shown['time_low_s']:.2f}, {shown['time_high_s']:.2f}]" in body[1]
    )
    assert rf"({shown['relative']:.2f}$\times$)" in body[1]
    assert body[1].endswith(r"& -- \\")


def test_figure_is_told_apart_without_colour(comparison: Comparison) -> None:
    figure = comparison.plot("accuracy", "bytes")
    assert [axes.get_title() for axes in figure.axes] == list(SETTINGS)
    lines = figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == list(VARIANTS)
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == 2
    frame = comparison.curves("accuracy", "bytes")
    known = frame[(frame["setting"] == SETTINGS[0]) & (frame["label"] == "fedavg")].dropna(
        subset="mean"
    )
    assert lines[0].get_ydata().tolist() == pytest.approx((100 * known["mean"]).tolist())


def test_a_paper_stands_beside_our_figures(sweep: Sweep, tmp_path: Path) -> None:
    shutil.copytree(sweep.path, tmp_path / "sweep")
    (tmp_path / "sweep" / "reference.yaml").write_text(
        """
source: A. Author 2024, Table 1
baseline: Buffered
targets: [accuracy=0.5]
labels: {fedavg: FedAvg, fedbuff: Buffered, alpha=5: mild, alpha=0.2: harsh}
tables:
  - title: Table 1
    quantity: relative_time
    target: accuracy=0.5
    values:
      mild: {FedAvg: 1.4, Buffered: 1, FedNova: 2}
      harsh: {FedAvg: "-", Buffered: 1.0}
  - {title: Table 2, quantity: final, values: {mild: {FedAvg: 0.97}}}
"""
    )
    found = compare(tmp_path / "sweep")
    assert (found.baseline, [str(goal) for goal in found.goals]) == ("Buffered", ["accuracy=0.5"])
    page = render(found)
    ours = {
        setting: row(found.targets, setting, "FedAvg")["relative"] for setting in ("mild", "harsh")
    }
    assert cells(page, "reference-0") == [
        ["FedAvg", "1.40×", f"{ours['mild']:.2f}×", "–", f"{ours['harsh']:.2f}×"],
        ["Buffered", "1.00×", "1.00×", "1.00×", "1.00×"],
        ["FedNova", "2.00×", "not run", "–", "not run"],
    ]
    final = row(found.summary, "mild", "FedAvg")["final_accuracy"]
    assert cells(page, "reference-1") == [["FedAvg", "97.0%", f"{100 * final:.1f}%"]]
    assert compare(tmp_path / "sweep", baseline="FedAvg").baseline == "FedAvg"


def test_a_wrong_reference_is_refused_with_its_place(sweep: Sweep, tmp_path: Path) -> None:
    shutil.copytree(sweep.path, tmp_path / "sweep")
    path = tmp_path / "sweep" / "reference.yaml"
    path.write_text("source: x\ntables:\n  - {title: T, quantity: seconds, values: {a: 1}}\n")
    with pytest.raises(UserError, match=r"reference\.yaml:3:26"):
        compare(tmp_path / "sweep")
    path.write_text("source: x\ntables:\n  - {title: T, quantity: time_s, values: {a: 1}}\n")
    with pytest.raises(UserError, match="a table of time_s needs a target"):
        compare(tmp_path / "sweep")


def test_command(sweep: Sweep, tmp_path: Path) -> None:
    args = [str(sweep.path), "-o", str(tmp_path / "out"), "--target", "accuracy=0.5"]
    result = CliRunner().invoke(command, [*args, "--baseline", "fedbuff", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["baseline"] == "fedbuff"
    assert Path(document["page"]) == tmp_path / "out" / "compare.html"
    expected = compare(sweep.path, targets=["accuracy=0.5"], baseline="fedbuff")
    for shown, known in zip(document["targets"], expected.targets.to_dict("records"), strict=True):
        assert shown["time_s"] == pytest.approx(known["time_s"])
        assert shown["relative"] == pytest.approx(known["relative"])
    assert document["headline"] == headline(expected)
    shown = CliRunner().invoke(command, args).output
    for line in expected.summary.itertuples():
        assert f"{100 * line.final_accuracy:.1f}% ± {100 * line.final_accuracy_sd:.1f}%" in shown
    never = CliRunner().invoke(command, [*args[:-1], "accuracy=0.99"]).output
    assert "– [0 of 3]" in never
    assert str(tmp_path / "out" / "compare.html") in shown.replace("\n", "")


def test_run_and_comparison_in_python(sweep: Sweep) -> None:
    run = fedsim.load(folders(sweep, *GROUPS[0])[0])
    assert run.plot().axes[0].get_lines()[0].get_ydata()[-1] == pytest.approx(
        100 * run.metrics["accuracy"].iloc[-1]
    )
    found = sweep.compare(targets=["accuracy=0.5"])
    assert isinstance(found, fedsim.Comparison)
    assert "time_s" in found._repr_html_()
    assert repr(found) == "<Comparison: 12 runs, 4 groups>"
    with pytest.raises(UserError, match="nothing to draw against 'joules'"):
        found.curves("accuracy", "joules")
