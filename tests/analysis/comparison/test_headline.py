"""The title of a comparison."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import fedsim
from fedsim.analysis.comparison import Target, compare
from fedsim.analysis.comparison.facts import RunFacts
from fedsim.analysis.comparison.headline import headline, other_targets, statement, tiles
from fedsim.analysis.comparison.page import render
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.sweeps import Sweep
from tests.analysis.comparison import compared
from tests.analysis.comparison.compared import GROUPS, folders
from tests.analysis.comparison.made import of, run
from tests.analysis.comparison.test_groups import facts


def test_two_identical_runs_show_no_difference(sweep: Sweep, tmp_path: Path) -> None:
    run = folders(sweep, *GROUPS[0])[0]
    shutil.copytree(run, tmp_path / "copy")
    same = compare([run, tmp_path / "copy"])
    assert same.no_difference
    assert [[group.label for group in groups] for groups in same.alike] == [[run.name, "copy"]]
    assert headline(same) == "No difference"
    assert '<h1 id="headline">No difference</h1>' in render(same)
    assert [group.label for group in same.groups] == [run.name, "copy"]
    assert (same.pairs["difference"] == 0).all()
    assert (same.pairs["same"] == same.pairs["seeds"]).all()


def test_all_that_is_alike_is_named_once(sweep: Sweep, tmp_path: Path) -> None:
    """Three copies of one run and one other run: one group of three, not three pairs."""
    first, other = folders(sweep, *GROUPS[0])[0], folders(sweep, *GROUPS[1])[0]
    copies = [shutil.copytree(first, tmp_path / name) for name in ("one", "two")]
    comparison = compare([first, other, *copies])
    assert [[group.label for group in groups] for groups in comparison.alike] == [
        [first.name, "one", "two"]
    ]
    assert not comparison.no_difference
    assert f"Bit-identical results: {first.name}; one; two." in render(comparison)


def test_a_key_without_effect_makes_no_difference(tmp_path: Path) -> None:
    plain = {key: value for key, value in compared.SCENARIO.items() if key != "sweep"}
    first = fedsim.run(plain, tmp_path / "first")
    other = {**compared.SCENARIO["training"], "threads": 1}
    second = fedsim.run({**plain, "training": other}, tmp_path / "second")
    same = compare([first, second])
    assert same.no_difference
    assert [group.label for group in same.groups] == ["threads=none", "threads=1"]


def test_groups_with_other_seeds_are_not_the_same(sweep: Sweep) -> None:
    assert not compare(folders(sweep, *GROUPS[0])).no_difference
    assert not compare(sweep.path).no_difference


def test_the_headline_names_the_hardest_target_that_was_reached_and_tables_go_from_easy_to_hard() -> (
    None
):
    levels = [("accuracy", 0.9), ("loss", 0.2), ("accuracy", 0.3), ("loss", 0.5), ("accuracy", 0.7)]
    runs = []
    for name in ("a", "b"):
        made = run(name, accuracy=(0.1, 0.5, 0.8))
        made.progress["loss"] = [0.9, 0.5, 0.3]
        runs.append(replace(made, metrics=(*made.metrics, "loss")))
    comparison = of(*runs, goals=tuple(Target(*level) for level in levels))
    assert list(map(str, comparison.goals)) == [
        *("accuracy=0.3", "accuracy=0.7", "accuracy=0.9"),
        *("loss=0.5", "loss=0.2"),
    ]
    # Accuracy never reached 90%.
    shown = ["70% accuracy", "30% accuracy", "90% accuracy", "a loss of 0.5", "a loss of 0.2"]
    sentences = [headline(comparison), *other_targets(comparison)]
    assert [title in text for title, text in zip(shown, sentences, strict=True)] == [True] * 5
    missed = of(*runs, goals=(Target("accuracy", 0.9), Target("loss", 0.5)))
    assert "oss of 0.5" in headline(missed)
    assert "No variant reached 90% accuracy" in other_targets(missed)[0]


def test_the_headline_compares_times_over_shared_seeds_and_names_incomplete_sides() -> None:
    runs = []
    for seed, (base, other) in enumerate([(10, 5), (40, 8), (None, 100), (None, 200)]):
        for method, reached_s in (("fedavg", base), ("fedbuff", other)):
            end_s = float(reached_s or 500)
            scenario = {"server": {"method": {"name": method}}}
            last = 0.9 if reached_s else 0.5
            times, values = (0.0, end_s - 1, end_s), (0.1, 0.2, last)
            runs.append(facts(scenario, seed, f"{method}{seed}", times, values))
    comparison = of(*runs, goals=(Target("accuracy", 0.9),))
    # fedavg took 25 s with the two seeds, with which fedbuff took 6.5 s.
    assert comparison.targets["relative"].tolist() == [1.0, 6.5 / 25]
    assert headline(comparison) == (
        "fedbuff reached 90% accuracy first, after 1 min 18 s: 3.85 times as fast as fedavg (2 of 4 runs)"
        "; fedavg has the shortest mean time, but another variant was faster on the seeds with which both reached it"
        "; its lead over fedavg is uncertain: it rests on 2 seeds"
    )
    equal = [
        facts(
            {"server": {"method": {"name": method}}},
            seed,
            f"{method}{seed}",
            (0.0, end - 1, end),
            (0.1, 0.2, last),
        )
        for method, seed, end, last in (
            ("fedavg", 0, 10.0, 0.9),
            ("fedbuff", 0, 10.0, 0.9),
            ("fedavg", 1, 500.0, 0.5),
            ("fedbuff", 1, 30.0, 0.9),
        )
    ]
    assert headline(of(*equal, goals=(Target("accuracy", 0.9),))) == (
        "fedavg and fedbuff tie in the time to 90% accuracy on the seeds with which both reached it"
    )
    assert headline(of(*runs[:5], goals=(Target("accuracy", 0.9),))) == (
        "fedbuff reached 90% accuracy first, after 6.5 s: 3.85 times as fast as fedavg (2 of 3 runs)"
        "; its lead over fedavg is uncertain: it rests on 2 seeds"
    )


def _reaching(**times: tuple[float | None, ...]) -> ComparisonTables:
    """Runs by variant and seed that reach 90% accuracy at these times; None if never."""
    runs = []
    for name, ends in times.items():
        for seed, end in enumerate(ends):
            end_s, last = end or 600.0, 0.9 if end else 0.5
            scenario = {"server": {"method": {"name": name}}}
            grid, values = (0.0, end_s - 1, end_s), (0.1, 0.2, last)
            runs.append(facts(scenario, seed, f"{name}{seed}", grid, values))
    return of(*runs, goals=(Target("accuracy", 0.9),))


def test_a_variant_is_not_first_because_its_slow_runs_missed_the_target() -> None:
    """On the seeds with which both reached it, the two are equally fast."""
    tied = _reaching(a=(490, 520, None), b=(490, 520, 550))
    assert tied.targets["time_s"].tolist() == [505, 520]
    tie = "tie in the time to 90% accuracy on the seeds with which"
    assert headline(tied) == f"a and b {tie} both reached it"
    three = headline(_reaching(a=(490, 520, None), b=(490, 520, 550), c=(520, 490, 550)))
    assert three == f"a, b and c {tie} all reached it"
    # A slower variant stays behind.
    behind = headline(_reaching(a=(490, 520, None), b=(490, 520, 550), c=(500, 530, 540)))
    assert behind.startswith("a and b tie in")
    assert "; their lead over c is uncertain: it rests on 2 seeds" in behind


def test_the_shortest_mean_decides_if_every_variant_is_beaten() -> None:
    """a beats b with seed 0, b beats c with seed 1, c beats a with seed 2."""
    circle = _reaching(a=(100, None, 300), b=(101, 200, None), c=(None, 201, 210))
    assert headline(circle) == (
        "b reached 90% accuracy first, after 2 min 31 s (2 of 3 runs)"
        "; its lead over a is uncertain: a was faster on the seeds with which both reached it"
    )


def test_a_lead_over_a_variant_that_was_equally_fast_is_uncertain() -> None:
    """b is not among the first because c beats it with seed 2."""
    equal = _reaching(
        a=(10, 10, None, 10, 10, 10),
        b=(10, 10, 20, None, None, None),
        c=(None, None, 12, 14, 14, 15),
    )
    assert headline(equal) == (
        "a reached 90% accuracy first, after 10 s (5 of 6 runs)"
        "; its lead over b is uncertain: both were equally fast on the seeds with which both reached it"
    )


def test_a_lead_within_the_spread_over_seeds_is_named() -> None:
    def of_times(every_s: float = 1, **times: tuple[float, ...]) -> str:
        runs = [
            facts(
                {"server": {"method": {"name": name}}},
                seed,
                f"{name}{seed}",
                (0, end - every_s, end),
                (0, 0, 1),
            )
            for name, ends in times.items()
            for seed, end in enumerate(ends)
        ]
        return headline(of(*runs, goals=(Target("accuracy", 0.7),)))

    first = "a reached 70% accuracy first, after 58 s"
    unclear = "; its lead over b is uncertain: it is within the spread over seeds"
    factor = ": 1.05 times as fast as b"
    assert of_times(a=(50, 54, 70), b=(75, 55, 52), c=(90, 91, 92)) == first + factor + unclear
    second = ": 1.14 times as fast as b"
    assert of_times(a=(50, 54, 70), b=(60, 64, 75), c=(60, 64, 80)) == first + second
    # The factor is relative to the baseline, which may not be the next best.
    speed = ": 1.57 times as fast as c"
    assert of_times(c=(90, 91, 92), b=(75, 55, 52), a=(50, 54, 70)) == first + speed + unclear
    assert of_times(b=(75, 55, 52), a=(50, 54, 70)) == first + factor + unclear
    # A clear lead over the next best, but not over a baseline whose times vary.
    varied = of_times(c=(52, 53, 100), b=(60, 64, 75), a=(50, 54, 70))
    assert varied.endswith(
        "as fast as c; its lead over c is uncertain: it is within the spread over seeds"
    )
    # Two seeds have no interval.
    chance = "; its lead over b is uncertain: it rests on 2 seeds"
    assert of_times(a=(50, 66), b=(75, 52)) == first + ": 1.09 times as fast as b" + chance
    assert of_times(a=(58,), b=(63,)) == first + ": 1.09 times as fast as b" + chance.replace(
        "2 seeds", "one seed"
    )
    resolution = (
        "; its lead over b is uncertain: it is shorter than the time between evaluations (10 s)"
    )
    assert of_times(10, a=(50, 54, 70), b=(60, 64, 75)) == first + second + resolution


def test_a_page_writes_only_the_main_clause_large(sweep: Sweep) -> None:
    comparison = compare(
        [folders(sweep, *group)[0] for group in GROUPS[:2]], targets=["accuracy=0.7"]
    )
    main, (doubt,), _ = statement(comparison)
    assert doubt.endswith(" is uncertain: it rests on one seed")
    page = render(comparison).replace("\u00a0", " ")
    below = f'<p class="subtitle">I{doubt[1:]}.</p>'
    assert re.search(rf'<h1 id="headline">{re.escape(main)}</h1>\s*{re.escape(below)}', page)


def test_a_variant_that_stopped_at_its_target_is_not_beaten_at_a_harder_level() -> None:
    stop = {"stop": {"target": {"accuracy": 0.7}}}
    runs = [run("a", accuracy=(0.1, 0.5, 0.7), **stop), run("b", accuracy=(0.1, 0.6, 0.9), **stop)]
    goals = tuple(Target("accuracy", level) for level in (0.6, 0.8, 0.95))
    comparison = of(*runs, goals=goals)
    assert [headline(comparison), *other_targets(comparison)] == [
        "b reached 60% accuracy first, after 10 s: 2 times as fast as a; its lead over a is uncertain: it rests on "
        "one seed",
        "1 of 2 variants reached 80% accuracy; not comparable: runs of a had stopped at their own target",
        "0 of 2 variants reached 95% accuracy; not comparable: runs of a and b had stopped at their own target",
    ]
    # A run that ended otherwise had its chance.
    missed = run("a", accuracy=(0.1, 0.5, 0.6), **stop)
    assert headline(of(missed, runs[1], goals=goals[1:2])) == (
        "b reached 80% accuracy first, after 20 s; 1 of 2 variants reached it"
    )


def test_the_words_for_what_reached_a_target_fit_the_counts() -> None:
    goals = (Target("accuracy", 0.85),)
    good, bad = (0.1, 0.9), (0.1, 0.5)
    none = of(run("a", accuracy=good), run("b", accuracy=bad), goals=goals)
    assert headline(none).endswith("; 1 of 2 variants reached it")
    runs = [run("a", seed, good) for seed in range(3)]
    runs += [run("b", seed, bad if seed else good) for seed in range(3)]
    assert headline(of(*runs, goals=goals)).endswith(
        "; 1 of 2 variants reached it in at least half of its runs"
    )
    figures = {"simulated_s": 1.0, "wall_s": 1.0}
    settings = [
        run(method, 0, bad if (method, alpha) == ("b", 2) else good, task={"alpha": alpha})
        for method in "ab"
        for alpha in (1, 2)
    ]
    comparison = of(*(replace(each, figures=figures) for each in settings), goals=goals)
    assert headline(comparison).endswith("; 3 of 4 combinations of variant and setting reached it")
    assert tiles(comparison)[1].value == "2"


def test_uncertain_leads_are_counted_in_the_headline_of_several_settings() -> None:
    """a is far ahead in one setting, and within the spread over seeds in the other."""

    def runs(alpha: float, **times: tuple[float, ...]) -> list[RunFacts]:
        return [
            facts(
                {"server": {"method": {"name": name}}, "task": {"alpha": alpha}},
                seed,
                f"{name}{alpha}{seed}",
                (0, end - 1, end),
                (0, 0, 1),
            )
            for name, ends in times.items()
            for seed, end in enumerate(ends)
        ]

    goals = (Target("accuracy", 0.7),)
    clear = runs(1, a=(50, 54, 70), b=(80, 84, 105)) + runs(2, a=(50, 54, 70), b=(90, 94, 115))
    assert headline(of(*clear, goals=goals)) == "a was first to 70% accuracy in 2 of 2 settings"
    mixed = runs(1, a=(50, 54, 70), b=(80, 84, 105)) + runs(2, a=(50, 54, 70), b=(75, 55, 52))
    assert headline(of(*mixed, goals=goals)) == (
        "a was first to 70% accuracy in 2 of 2 settings; the lead is uncertain in 1 of them"
    )
    unclear = runs(1, a=(50, 54, 70), b=(75, 55, 52)) + runs(2, a=(50, 54, 70), b=(75, 55, 52))
    assert headline(of(*unclear, goals=goals)) == (
        "a was first to 70% accuracy in 2 of 2 settings; the lead is uncertain in both"
    )
