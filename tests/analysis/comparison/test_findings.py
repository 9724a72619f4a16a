"""Variants that no evaluation tells apart tie."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import fedsim
from fedsim.analysis.comparison import compare
from fedsim.analysis.comparison.findings import first_to
from fedsim.analysis.comparison.headline import headline
from fedsim.analysis.comparison.page import page_figures
from fedsim.cli.compare import command


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
        == "All reached loss of 0.1 after 10 s: a tie at the resolution of the evaluations"
    )
    finding = "All reached it after 10 s: a tie at the resolution of the evaluations."
    assert page_figures(both)["target-0"].finding == finding
    every = compare([slow, quick, quicker], targets=["loss=0.1"])
    a, b, c = (group.label for group in every.groups if group.values)
    assert headline(every) == (
        f"{b} and {c} reached loss of 0.1 first, after 10 s, tied at the resolution of the evaluations: "
        f"4 times as fast as {a}; with one seed, the lead over {a} may be due to chance"
    )
    finding = f"{b} and {c} were first, after 10 s: a tie at the resolution of the evaluations."
    assert page_figures(every)["target-0"].finding == finding
    one = compare([slow, quick], targets=["loss=0.1"])
    assert headline(one) == (
        f"{b} reached loss of 0.1 first, after 10 s: 4 times as fast as {a}; with one seed, the lead over {a} may be"
        " due to chance"
    )
    targets = ["--target", "loss=0.1"]
    printed = CliRunner().invoke(command, [str(quick.path), str(quicker.path), *targets])
    assert "a tie at the resolution" in printed.output


@pytest.mark.parametrize(("low", "high", "by_chance"), [(0.7, 1.2, True), (0.7, 0.9, False)])
def test_a_lead_may_be_chance_if_the_interval_includes_1(
    low: float, high: float, by_chance: bool
) -> None:
    row = {"setting": "", "reached": 3, "runs": 3}
    frame = pd.DataFrame(
        [
            {
                **row,
                "label": "a",
                "time_s": 10.0,
                "relative": 1.0,
                "relative_low": 1.0,
                "relative_high": 1.0,
            },
            {
                **row,
                "label": "b",
                "time_s": 8.0,
                "relative": 0.8,
                "relative_low": low,
                "relative_high": high,
            },
        ]
    )
    first = first_to(frame, "a")
    assert first is not None
    assert (first.labels, first.speedup, first.may_be_chance) == (["b"], 1.25, by_chance)
