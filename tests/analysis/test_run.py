"""The run of the Python interface."""

import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import GROUPS, folders


def test_run_and_comparison_in_python(sweep: Sweep) -> None:
    run = fedsim.load(folders(sweep, *GROUPS[0])[0])
    assert run.plot().axes[0].get_lines()[0].get_ydata()[-1] == pytest.approx(
        100 * run.metrics["accuracy"].iloc[-1]
    )
    comparison = sweep.compare(targets=["accuracy=0.5"])
    assert isinstance(comparison, fedsim.Comparison)
    assert "time_s" in comparison._repr_html_()
    assert repr(comparison) == "<Comparison: 12 runs, 4 groups>"
    with pytest.raises(UserError, match="curves cannot be drawn against 'joules'"):
        comparison.curves("accuracy", "joules")
