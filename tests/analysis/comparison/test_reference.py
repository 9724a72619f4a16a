"""A paper's figures beside ours."""

import shutil
from pathlib import Path

import pytest

from fedsim.analysis.comparison import compare
from fedsim.analysis.comparison.page import render
from fedsim.analysis.comparison.reference import read_reference
from fedsim.errors import UserError
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import cells, row


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
    comparison = compare(tmp_path / "sweep")
    assert (comparison.baseline, [str(goal) for goal in comparison.goals]) == (
        "Buffered",
        ["accuracy=0.5"],
    )
    page = render(comparison)
    ours = {
        setting: row(comparison.targets, setting, "FedAvg")["relative"]
        for setting in ("mild", "harsh")
    }
    assert cells(page, "reference-0") == [
        ["FedAvg", "1.40×", f"{ours['mild']:.2f}×", "–", f"{ours['harsh']:.2f}×"],
        ["Buffered", "1.00×", "1.00×", "1.00×", "1.00×"],
        ["FedNova", "2.00×", "not run", "–", "not run"],
    ]
    final = row(comparison.summary, "mild", "FedAvg")["final_accuracy"]
    assert cells(page, "reference-1") == [["FedAvg", "97.0%", f"{100 * final:.1f}%"]]
    assert compare(tmp_path / "sweep", baseline="FedAvg").baseline == "FedAvg"


@pytest.mark.parametrize(
    ("quantity", "problem"),
    [("seconds", r"reference\.yaml:3:26"), ("time_s", "a table of time_s needs a target")],
)
def test_a_wrong_reference_is_refused_with_its_place(
    quantity: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "reference.yaml"
    table = f"{{title: T, quantity: {quantity}, values: {{a: 1}}}}"
    path.write_text(f"source: x\ntables:\n  - {table}\n")
    with pytest.raises(UserError, match=problem):
        read_reference(path)
