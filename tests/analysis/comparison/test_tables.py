"""The tables of a comparison: every number against an independent query of the Parquet files."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedsim.analysis.comparison import Comparison
from fedsim.analysis.comparison.facts import COSTS, RunFacts
from fedsim.analysis.comparison.targets import Target
from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import (
    GROUPS,
    SEEDS,
    SETTINGS,
    TARGETS,
    VARIANTS,
    cost,
    first_reaching,
    folders,
    parquet,
    row,
    value_at,
)
from tests.analysis.comparison.made import of
from tests.analysis.comparison.test_groups import facts
from tests.analysis.comparison.test_targets import middle

MIDDLE = middle(3)


def drawn_seeds() -> npt.NDArray[np.int64]:
    """The seeds of each bootstrap resample, (2000, 3)."""
    return Stream(0, Purpose.ANALYSIS).generator().integers(0, 3, (2000, 3))


def test_groups_are_named_after_what_differs(comparison: Comparison) -> None:
    assert [(group.setting, group.label) for group in comparison.groups] == GROUPS
    for group in comparison.groups:
        assert [run.seed for run in group.runs] == list(SEEDS)
    assert "task.partition.alpha" in comparison.grouping.differing
    assert "server.method.name" in comparison.grouping.differing


@pytest.mark.parametrize("against", [name for name in COSTS if name != "gco2e"])
@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_curves_carry_the_last_value_forward(
    sweep: Sweep, comparison: Comparison, document: dict[str, Any], metric: str, against: str
) -> None:
    frame = comparison.curves(metric, against)
    checked = 0
    for (setting, variant), number in zip(GROUPS, (0, 1, 0, 1), strict=True):
        group = frame[(frame["setting"] == setting) & (frame["label"] == variant)]
        runs = folders(sweep, setting, variant)
        curves = [(parquet(run, "metrics")[metric], cost(run, against)) for run in runs]
        # Two of three runs go on.
        end = sorted(costs.max() for _, costs in curves)[1]
        shown = document["charts"]["series"][metric][against][setting]
        for index in range(0, len(group), max(1, len(group) // 7)):
            x = float(group["x"].iloc[index])
            values = np.array([value_at(measured, costs, x) for measured, costs in curves])
            if x > end * (1 + 1e-9):
                values[:] = np.nan
            for name, expected in zip(
                ("median", "low", "high"),
                (np.median(values), values.min(), values.max()),
                strict=True,
            ):
                assert group[name].iloc[index] == pytest.approx(expected, nan_ok=True)
            expected = np.median(values)
            # The page holds seven and five significant digits.
            assert shown["x"][index] == pytest.approx(x, rel=1e-6)
            drawn = shown["groups"][number]["median"][index]
            assert drawn == (None if math.isnan(expected) else pytest.approx(expected, rel=1e-4))
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
            assert shown["time_low_s"] == pytest.approx(np.quantile(means, MIDDLE[0]))
            assert shown["time_high_s"] == pytest.approx(np.quantile(means, MIDDLE[1]))
        else:
            assert math.isnan(shown["time_low_s"])
        base = np.array(
            [first_reaching(run, "accuracy", value) for run in folders(sweep, setting, "fedavg")]
        )
        if np.isfinite(base).sum() < 1.5:
            assert math.isnan(shown["relative"])
        else:
            both = np.isfinite(times) & np.isfinite(base)
            assert shown["relative"] == pytest.approx(times[both].mean() / base[both].mean())
        if variant != "fedavg" and np.isfinite([*times, *base]).all():
            ratios = [times[draw].mean() / base[draw].mean() for draw in resamples]
            assert shown["relative_low"] == pytest.approx(np.quantile(ratios, MIDDLE[0]))
            assert shown["relative_high"] == pytest.approx(np.quantile(ratios, MIDDLE[1]))
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
        assert shown["low"] == pytest.approx(np.quantile(means, MIDDLE[0]))
        assert shown["high"] == pytest.approx(np.quantile(means, MIDDLE[1]))
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
        for part in ("download", "compute", "upload", "paused", "waiting", "idle", "offline"):
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
        shown = document["lorenz"]["columns"][1 + number]["values"]
        places = document["lorenz"]["columns"][0]["values"]
        assert shown == pytest.approx(np.interp(places, np.arange(13) / 12, mean).tolist())


def test_fairness_over_clients(
    sweep: Sweep, comparison: Comparison, document: dict[str, Any]
) -> None:
    for number, (setting, variant) in enumerate(GROUPS):
        shown = row(comparison.fairness, setting, variant)
        each, below = [], []
        for run in folders(sweep, setting, variant):
            accuracies = parquet(run, "clients")["last_accuracy"].dropna().to_numpy()
            worst = np.sort(accuracies)[: math.ceil(len(accuracies) / 10)].mean()
            jain = accuracies.sum() ** 2 / len(accuracies) / (accuracies**2).sum()
            each.append(
                [
                    len(accuracies),
                    accuracies.mean(),
                    accuracies.std(),
                    worst,
                    *np.quantile(accuracies, [0.1, 0.5, 0.9]),
                    jain,
                ]
            )
            below.append([(accuracies <= index / 40).mean() for index in range(41)])
        names = ["clients", "mean", "sd", "worst_tenth", "p10", "median", "p90", "jain"]
        assert shown[names].tolist() == pytest.approx(np.mean(each, axis=0).tolist())
        assert document["client_accuracy"]["columns"][1 + number]["values"] == pytest.approx(
            np.mean(below, axis=0).tolist()
        )


def _two_by_two(*missing: tuple[str, int]) -> list[RunFacts]:
    return [
        facts(
            {"server": {"method": {"name": method}, "selection": {"cohort": cohort}}},
            0,
            f"{method}{cohort}",
            (0.0, time_s),
            (0.1, 0.9),
        )
        for method, cohort, time_s in (
            ("fedavg", 4, 20.0),
            ("fedavg", 8, 5.0),
            ("fedbuff", 4, 10.0),
            ("fedbuff", 8, 30.0),
        )
        if (method, cohort) not in missing
    ]


def test_a_requested_key_of_the_server_names_settings() -> None:
    goals = (Target("accuracy", 0.5),)
    plain = of(*_two_by_two(), goals=goals)
    assert {group.setting for group in plain.groups} == {""}
    comparison = of(*_two_by_two(), goals=goals, settings=["server.selection"])
    assert [(group.setting, group.label) for group in comparison.groups] == [
        ("cohort=4", "fedavg"),
        ("cohort=4", "fedbuff"),
        ("cohort=8", "fedavg"),
        ("cohort=8", "fedbuff"),
    ]
    # Relative times are within the settings.
    assert comparison.targets["relative"].tolist() == [1, 0.5, 1, 6]
    # Other labels do not change the settings.
    relabeled = comparison._relabeled({"cohort=4": "four"})
    assert relabeled.grouping.settings == ("four", "cohort=8")


def test_a_requested_key_that_cannot_name_settings_is_refused() -> None:
    with pytest.raises(UserError, match="every variant have every value of it"):
        of(*_two_by_two(("fedbuff", 8)), settings=["server.selection.cohort"])
    with pytest.raises(UserError, match=r"did you mean 'server\.selection\.cohort'") as refused:
        of(*_two_by_two(), settings=["server.selection.cohorts"])
    assert refused.value.where == "settings"
    assert "the runs do not differ in 'server.selection.cohorts'" in str(refused.value)
    with pytest.raises(UserError, match=r"keys that differ: server\.method\.name and server\.sel"):
        of(*_two_by_two(), settings=["stop"])
    same_cohort = _two_by_two(("fedavg", 8), ("fedbuff", 8))
    with pytest.raises(UserError, match="another key must differ"):
        of(*same_cohort, settings=["server.method"])


def test_equal_values_have_no_deviation() -> None:
    runs = [facts({}, seed, f"run{seed}", (0.0, 1.0), (0.1, 0.925)) for seed in range(3)]
    for each in runs:
        each.figures["contributed"] = 0.925
    (values,) = of(*runs).summary.to_dict("records")
    assert np.std([0.925] * 3, ddof=1) > 0, "the mean of equal values has a rounding error"
    assert values["contributed_sd"] == values["final_accuracy_sd"] == 0
    (values,) = of(runs[0]).summary.to_dict("records")
    assert math.isnan(values["contributed_sd"])


def test_runs_without_the_metric_of_a_target_do_not_count() -> None:
    """Seed 1 was timing-only: it has not missed the target."""
    runs = [facts({}, seed, times=(0, 9), accuracy=(0.1, 0.9)[: 2 - 2 * seed]) for seed in (0, 1)]
    made = of(*runs, goals=(Target("accuracy", 0.8),)).targets.iloc[0]
    assert (made["runs"], made["reached"], made["time_s"]) == (1, 1, 9)
