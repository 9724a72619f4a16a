"""The summary that a run ends with."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.invoking import DIGITS, PARABOLAS, RunText


@pytest.mark.parametrize(("up", "said"), [("0", True), ("1Mbps", False)])
def test_a_run_without_any_update_says_so(run: RunText, up: str, said: bool) -> None:
    result = run(PARABOLAS.replace("up: 1Mbps", f"up: {up}"))
    assert result.exit_code == 0, result.output
    assert ("no update was aggregated, so the model is the initial one" in result.stderr) == said
    assert "no update reached the model" not in result.stdout
    # Asked were all three each time.
    contributed = next(line for line in result.stdout.splitlines() if "contributed" in line)
    assert f"{0 if said else 3} of 3" in contributed


@pytest.mark.parametrize("rate", [1e38, 1e5, 0.1])
@pytest.mark.usefixtures("with_reports")
def test_a_model_that_diverged_says_so(run: RunText, rate: float) -> None:
    result = run(DIGITS, "-s", f"training.optimizer.lr={rate}", "-o", "out")
    assert result.exit_code == 0, result.output
    assert "has diverged" not in result.stdout
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert page.count("The model has diverged: ") == (rate > 1)
    said = {1e38: r"loss is not finite \[diverged-model\]", 1e5: r"its loss is .* \[high-loss\]"}
    assert bool(re.search(said.get(rate, "has diverged"), result.stderr)) == (rate > 1)
    # A script that reads the results of diverged runs, too, must be able to parse them.
    printed = run(DIGITS, "-s", f"training.optimizer.lr={rate}", "-o", "printed", "--json").stdout
    for text in (printed, Path("out/run.json").read_text(encoding="utf-8")):
        loss = json.loads(text, parse_constant=pytest.fail)["metrics"]["loss"]
        assert (loss is None) == (rate == 1e38)


def test_a_target_that_the_initial_model_reaches_is_named(run: RunText) -> None:
    result = run(PARABOLAS, "-s", "stop.target={loss: 1e9}")
    assert result.exit_code == 0, result.output
    assert "the initial model already reaches the target" in result.stderr
    assert "no update was aggregated" not in result.stderr


def test_a_timing_only_run_has_its_steady_throughput(run: RunText) -> None:
    """Every round takes two steps of 1 s, and 64 µs of transfers, for three updates."""
    result = run(PARABOLAS.replace("rounds: 2", "rounds: 200"), "--timing-only")
    assert re.search(r"client updates per hour +│ 5,399.83 ± 0.00 \(95% interval\)", result.stdout)
    assert "client updates per hour" not in run(PARABOLAS, "--timing-only", "--overwrite").stdout
