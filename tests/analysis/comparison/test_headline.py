"""The head of a comparison's page."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.analysis.comparison import Comparison, Target, compare
from fedsim.analysis.comparison.facts import FIGURES, LORENZ_AT, RunFacts
from fedsim.analysis.comparison.findings import leads
from fedsim.analysis.comparison.headline import headline, other_targets, tiles
from fedsim.analysis.comparison.latex import latex
from fedsim.analysis.comparison.page import page_figures, render
from fedsim.analysis.comparison.tables import SAME
from fedsim.sweeps import Sweep
from tests.analysis.comparison import compared
from tests.analysis.comparison.compared import GROUPS, folders
from tests.analysis.comparison.made import GOAL, of, racers, run


def test_copies_of_a_run_show_no_difference(sweep: Sweep, tmp_path: Path) -> None:
    first, other = folders(sweep, *GROUPS[0])[0], folders(sweep, *GROUPS[1])[0]
    copies = [shutil.copytree(first, tmp_path / name) for name in ("one", "two")]
    same = compare([first, *copies])
    assert headline(same) == ["No difference."]
    assert '<h1 id="headline">No difference</h1>' in render(same)
    assert (same.pairs["difference"] == 0).all()
    assert (same.pairs["same"] == same.pairs["seeds"]).all()
    # One group of three, not three pairs.
    more = compare([first, other, *copies])
    assert not more.no_difference
    names = [first.name, "one", "two"]
    assert [[group.label for group in groups] for groups in more.alike] == [names]
    assert len(more.shown) == 2
    merged = more.merged(more.summary)["label"].tolist()
    assert SAME.join(names) in merged
    assert "bit-identical results for every seed" in render(more)


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


def test_the_headline_is_the_hardest_target_that_was_reached_and_the_others_follow() -> None:
    levels = [("accuracy", 0.9), ("loss", 0.2), ("accuracy", 0.3), ("loss", 0.5), ("accuracy", 0.7)]
    runs = []
    for name in ("a", "b"):
        made = run(name, accuracy=(0.1, 0.5, 0.8))
        made.progress["loss"] = np.array([0.9, 0.5, 0.3])
        runs.append(replace(made, metrics=(*made.metrics, "loss")))
    comparison = of(*runs, goals=tuple(Target(*level) for level in levels))
    assert list(map(str, comparison.goals)) == [
        *("accuracy=0.3", "accuracy=0.7", "accuracy=0.9"),
        *("loss=0.5", "loss=0.2"),
    ]
    # No run reached 90% accuracy or a loss of 0.2.
    shown = ["70% accuracy", "30% accuracy", "a loss of 0.5", "90% accuracy", "a loss of 0.2"]
    sentences = [headline(comparison)[0], *other_targets(comparison)]
    assert [title in text for title, text in zip(shown, sentences, strict=True)] == [True] * 5


QUICK, SLOW = (10, 10, 10), (20, 20, 20)


@pytest.mark.parametrize(
    ("ends", "updates", "expected"),
    [
        (
            [{"slow": SLOW, "quick": QUICK}],
            (100, 80),
            [
                "quick reached 80% accuracy first, after 10 s: 2 times as fast as slow.",
                "quick aggregated more client updates per hour: 28,800 against 18,000.",
            ],
        ),
        # A mean over some of the runs is biased: the numbers of both variants are named.
        (
            [{"b": (10, 40, None, None), "a": (5, 8, 100, 200)}],
            (),
            [
                "No clear winner between a and b to 80% accuracy: fewer than 3 common seeds.",
                "a reached it first on average, after 1 min 18 s: 3.8 times as fast as b (2 of 4 runs), range of "
                "the seeds 2 to 5.",
                "b has the shortest mean time, but another variant was faster on the seeds with which both reached it.",
            ],
        ),
        (
            [{"a": QUICK, "b": QUICK}],
            (),
            [
                "a and b reached 80% accuracy first, after 10 s.",
                "A tie: a and b were equally fast on the seeds with which both reached it.",
            ],
        ),
        (
            [{"a": QUICK, "b": (10, None, None)}],
            (),
            [
                "Only a reached 80% accuracy in at least half of the runs, after 10 s.",
            ],
        ),
        (
            [{"a": (None,), "b": (None,)}],
            (),
            ["No variant reached 80% accuracy in at least half of the runs."],
        ),
        # Of settings without a winner, the reasons are counted.
        (
            [{"a": QUICK[:2], "b": SLOW[:2]}] * 2 + [{"a": (50, 54, 70), "b": (60, 64, 75)}],
            (),
            [
                "No clear winner to 80% accuracy in any of 3 settings: fewer than 3 common seeds in 2 of them, the "
                "ranges of their times overlap in 1 of them.",
                "First on average: a in 3 of 3 settings.",
            ],
        ),
        (
            [{"a": QUICK, "b": SLOW}, {"a": (10, 20, 30), "b": (30, 11, 20)}],
            (10, 10),
            [
                "First to 80% accuracy: a in 1 of 2 settings.",
                "The lead of a over b (alpha=1) is uncertain: the lead is shorter than the time between evaluations.",
            ],
        ),
        # The only setting that has times is as one alone, with its name.
        (
            [{"a": (None,) * 3, "b": (None,) * 3}, {"a": (50, 54, 70), "b": (60, 64, 75)}],
            (),
            [
                "No clear winner between a and b to 80% accuracy (alpha=1): the ranges of their times overlap.",
                "a reached it first on average, after 58 s: 1.1 times as fast as b, range of the seeds 1.1 to 1.2.",
                "2 of 4 combinations of variant and setting reached 80% accuracy in at least half of the runs.",
            ],
        ),
        # Those that are slower with the few seeds there are were not as fast.
        (
            [{"a": (50, 54), "b": (53, 60), "c": (54, 50.5), "d": (96, 97), "e": (99, None)}],
            (),
            [
                "No clear winner among a, c and b to 80% accuracy: the lead is shorter than the time between "
                "evaluations or the ranges of their times overlap.",
                "a reached it first on average, after 52 s: about as fast as c, range of the seeds 0.94 to 1.1.",
                "The lead of a over d and e is uncertain: fewer than 3 common seeds.",
            ],
        ),
    ],
)
def test_sentences(
    ends: list[dict[str, Any]], updates: tuple[int, ...], expected: list[str]
) -> None:
    runs = [racers(alpha=alpha, updates=updates, **each) for alpha, each in enumerate(ends)]
    comparison = of(*(run for each in runs for run in each), goals=(GOAL,))
    assert headline(comparison) == expected


WAITS = [{"compute": 3, "upload": 1}, {"too_few_online": 90, "compute": 10}]


@pytest.mark.parametrize(
    ("updates", "waits", "said"),
    [
        ((100, 40), WAITS, "quick needed fewer client updates: 40 against 100."),
        (
            (100, 80),
            WAITS,
            "quick aggregated more client updates per hour: 28,800 against 18,000; with slow, 90.0% of the server’s "
            "time went to too few online.",
        ),
        (
            (100, 80),
            WAITS[:1] * 2,
            "quick aggregated more client updates per hour: 28,800 against 18,000.",
        ),
    ],
)
def test_the_reason_is_the_larger_factor_of_a_clear_lead(
    updates: tuple[int, int], waits: list[dict[str, float]], said: str
) -> None:
    def reasons(slow: tuple[float, ...]) -> list[str]:
        runs = [
            replace(each, waits_s=waits[each.scenario["server"]["method"]["name"] == "slow"])
            for each in racers(slow=slow, quick=QUICK, updates=updates)
        ]
        return headline(of(*runs, goals=(GOAL,)))[1:]

    assert reasons(SLOW) == [said]
    # Without a winner there is none.
    assert reasons(QUICK[:1] + SLOW[1:]) == [
        "quick reached it first on average, after 10 s: 1.7 times as fast as slow, range of the seeds 1 to 2."
    ]


def test_the_reason_of_more_updates_is_what_the_other_server_waited_for() -> None:
    runs = [
        replace(run(name, seed, ()), figures={"client_updates_per_h": rate + seed}, waits_s=waits)
        for name, rate, waits in zip("ab", (10.0, 20.0), WAITS[::-1], strict=True)
        for seed in range(2)
    ]
    assert headline(of(*runs)) == [
        "Most client updates per simulated hour: 20.5 with b.",
        "With a, 90.0% of the server’s time went to too few online.",
    ]
    close = [replace(run, figures={"client_updates_per_h": run.seed}) for run in runs]
    assert len(headline(of(*close))) == 1


def _with_figures(runs: list[RunFacts], **more: Any) -> Comparison:
    numbers = dict.fromkeys(FIGURES, 1.0)
    known: dict[str, Any] = {
        "figures": numbers,
        "spent_s": {"compute": 1.0},
        "lorenz": LORENZ_AT,
    } | more
    return of(*(replace(each, **known) for each in runs), goals=(GOAL,))


@pytest.mark.parametrize("seeds", [3, 6])
def test_a_ratio_has_one_interval_and_one_direction(seeds: int) -> None:
    """The head, the first figure, the table and LaTeX; the baseline is the faster variant."""
    runs = racers(a=[10, 20, 30, 40, 50, 60][:seeds], b=[20, 30, 70, 70, 99, 150][:seeds])
    comparison = _with_figures(runs)
    (lead,) = leads(comparison, GOAL)
    ends = f"{lead.low:.2g} to {lead.high:.2g}"
    spread = "range of the seeds" if seeds == 3 else "95% interval"
    assert f"times as fast as b, {spread} {ends}" in " ".join(headline(comparison))
    slow = f"{lead.speedup:.2g} times as slow, {ends}"
    drawn = page_figures(comparison)
    assert [row["speed"] for row in drawn["first"].extra["rows"]] == ["baseline", slow]
    for name in ("first", "target-0"):
        (column,) = (column for column in drawn[name].columns if column.key == "speed")
        assert column.label == f"speed, {spread}"
        assert list(column.values) == ["baseline", slow]
    assert slow in latex(comparison)


def test_the_spread_of_few_values_of_many_seeds_is_their_range() -> None:
    """Three of six runs of b reached the target, so that its times and ratios are of three."""
    comparison = _with_figures(racers(a=[10] * 6, b=[20, 30, 70, None, None, None]))
    assert headline(comparison)[0].endswith(
        "4 times as fast as b (3 of 6 runs), range of the seeds 2 to 7."
    )
    assert comparison.spread == "95% interval or range"
    slow = comparison.standings(GOAL).iloc[-1]
    assert (slow["low_s"], slow["high_s"]) == (20, 70)
    drawn = page_figures(comparison)
    (spread,) = (c for c in drawn["pairs"].columns if c.key == "spread")
    assert "range +10 s to +1 min" in spread.values
    assert [row["range"] for row in drawn["first"].extra["rows"]][1] == "range 20 s to 1 min 10 s"
    assert "4 times as slow, range 2 to 7" in [row["speed"] for row in drawn["first"].extra["rows"]]
    assert "[range 20.0, 70.0] [3/6]" in latex(comparison)
    # The figure of times has no range.
    pair = _with_figures(racers(a=range(50, 56), b=range(70, 76), c=[10, 20, *[None] * 4]))
    drawn = page_figures(pair)
    spreads = [drawn[name].extra["spread"] for name in ("first", "pairs")]
    assert spreads == ["95% interval", "95% interval or range"]


def test_identical_variants_count_as_one_and_what_no_run_has_is_not_a_finding() -> None:
    runs = racers(a=QUICK, b=QUICK, c=(None,) * 3)
    same = [replace(each, digest=each.digest.replace("b0", "a0")) for each in runs]
    comparison = _with_figures(same)
    assert headline(comparison)[-1].startswith("Only a ≡ b reached")
    assert tiles(comparison)[1].value == "2"
    lost = {"figures": dict.fromkeys(FIGURES, 1.0) | {"lost_steps": 0.0}}
    assert page_figures(comparison)["work"].finding.endswith("with all variants.")
    none = _with_figures(same, **lost)
    assert page_figures(none)["work"].finding == ""
    assert '<p class="finding"></p>' not in render(none)


def test_variants_that_a_run_missed_come_after_the_others() -> None:
    runs = racers(a=(40, 50), b=(10, None), c=(None, None), d=(60, 90))
    comparison = _with_figures(runs)
    assert comparison.standings(GOAL)["label"].tolist() == ["a", "d", "b", "c"]
    rows = page_figures(comparison)["first"].extra["rows"]
    assert [row["missed"] for row in rows] == [False, False, True, True]
    page = render(comparison).replace("\u00a0", " ")
    assert "</strong> (1 of 2)" in page
    assert page.count('class="dotrow missed"') == 2


def test_runs_that_reached_the_target_have_dots_even_if_few_did() -> None:
    comparison = _with_figures(racers(a=(10, 20, 30), b=(None, None, 40)))
    row = page_figures(comparison)["first"].extra["rows"][1]
    assert (row["label"], len(row["seeds"]), row["ends"], row["mean"]) == ("b", 1, [], None)
    assert "1 of 3 runs reached it" in render(comparison)


def test_a_page_writes_only_the_first_sentence_large(sweep: Sweep) -> None:
    comparison = compare(
        [folders(sweep, *group)[0] for group in GROUPS[:2]], targets=["accuracy=0.7"]
    )
    main, *more = headline(comparison)
    page = render(comparison).replace("\u00a0", " ").replace("&#39;", "'")
    head = rf'<h1 id="headline">{re.escape(main[:-1])}</h1>\s*<p class="lead">{re.escape(" ".join(more))}</p>'
    assert re.search(head, page)


def test_a_variant_that_stopped_at_its_target_is_not_beaten_at_a_harder_level() -> None:
    stop: dict[str, Any] = {"stop": {"target": {"accuracy": 0.7}}}
    runs = [run("a", accuracy=(0.1, 0.5, 0.7), **stop), run("b", accuracy=(0.1, 0.6, 0.9), **stop)]
    goals = tuple(Target("accuracy", level) for level in (0.6, 0.8))
    comparison = of(*runs, goals=goals)
    assert headline(comparison)[1].startswith("b reached it first, after 10 s")
    assert other_targets(comparison) == [
        "1 of 2 variants reached 80% accuracy in at least half of the runs. Times are not comparable: runs of a had "
        "stopped at their own target."
    ]


def test_a_target_that_no_variant_reached_because_runs_had_stopped() -> None:
    stop: dict[str, Any] = {"stop": {"target": {"accuracy": 0.7}}}
    runs = [run(name, accuracy=(0.1, 0.5, 0.7), **stop) for name in "ab"]
    first, why = headline(of(*runs, goals=(GOAL,)))
    assert first == "No variant reached 80% accuracy in at least half of the runs."
    assert why.startswith("Times are not comparable")


def test_tiles_count_runs_variants_settings_and_seeds() -> None:
    runs = [
        run(m, seed, task={"alpha": alpha}) for m in "ab" for alpha in (1, 2) for seed in (0, 1)
    ]
    numbers = {"simulated_s": 60.0, "wall_s": 1.0}
    every = tiles(of(*(replace(each, figures=numbers) for each in runs[1:])))
    assert [tile.value for tile in every] == ["7", "2", "2", "1 to 2", "7 min", "7 s"]
