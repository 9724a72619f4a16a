"""The title of a comparison."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import fedsim
from fedsim.analysis.comparison import Target, compare
from fedsim.analysis.comparison.headline import headline, other_targets
from fedsim.analysis.comparison.page import render
from fedsim.sweeps import Sweep
from tests.analysis.comparison import compared
from tests.analysis.comparison.compared import GROUPS, folders
from tests.analysis.comparison.made import of, run


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
    found = compare([first, other, *copies])
    assert [[group.label for group in groups] for groups in found.alike] == [
        [first.name, "one", "two"]
    ]
    assert not found.no_difference
    assert f"Bit-identical results: {first.name}; one; two." in render(found)


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
    shown = ["70% accuracy", "30% accuracy", "90% accuracy", "loss of 0.5", "loss of 0.2"]
    sentences = [headline(comparison), *other_targets(comparison)]
    assert [title in text for title, text in zip(shown, sentences, strict=True)] == [True] * 5
    missed = of(*runs, goals=(Target("accuracy", 0.9), Target("loss", 0.5)))
    assert "oss of 0.5" in headline(missed)
    assert "No variant reached 90% accuracy" in other_targets(missed)[0]
