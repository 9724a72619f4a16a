"""Variants that no evaluation tells apart tie."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

import fedsim
from fedsim.analysis.comparison import compare
from fedsim.analysis.comparison.headline import headline
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
        == "Both reached a loss of 0.1 after 10 s: a tie at the resolution of the evaluations"
    )
    every = compare([slow, quick, quicker], targets=["loss=0.1"])
    a, b, c = (group.label for group in every.groups if group.values)
    assert headline(every) == (
        f"{b} and {c} reached a loss of 0.1 first, after 10 s, a tie at the resolution of the evaluations: "
        f"4 times as fast as {a}; their lead over {a} is uncertain: it rests on one seed"
    )
    one = compare([slow, quick], targets=["loss=0.1"])
    assert headline(one) == (
        f"{b} reached a loss of 0.1 first, after 10 s: 4 times as fast as {a}; its lead over {a} is uncertain: it "
        "rests on one seed"
    )
    targets = ["--target", "loss=0.1"]
    printed = CliRunner().invoke(command, [str(quick.path), str(quicker.path), *targets])
    assert "a tie at the resolution" in printed.output
