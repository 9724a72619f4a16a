"""Mistakes in what a method of one's own declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.methods.own_method import run_with


@pytest.mark.parametrize(
    ("function", "value", "message"),
    [
        ("upload", "'delta'", "Mine.upload: returns 'delta'\n  return vectors, such as (Vector("),
        ("download", "None", "Mine.download: returns None\n  return vectors, such as (Vector("),
        ("first_download", "['model']", "Mine.first_download: returns ['model']"),
        ("prologue", "True", "Mine.prologue: returns True\n  return None or a Prologue"),
        (
            "upload",
            '(__import__("fedsim.methods.base").methods.base.Vector("delta", 3, bits=0),)',
            "share=1.0)\n  its bits are those of one entry, more than 0",
        ),
        ("compute_factor", "-1", "Mine.compute_factor: returns -1\n  return a number"),
        ("extra_passes", "float('nan')", "Mine.extra_passes: returns nan"),
        ("vector_operations", "'2'", "Mine.vector_operations: returns '2'"),
    ],
)
def test_what_a_method_declares_is_checked(
    tmp_path: Path, function: str, value: str, message: str
) -> None:
    code = f"    def {function}(self):\n        return {value}\n\n    def aggregate"
    result = run_with(tmp_path, "    def aggregate", code)
    assert result.exit_code == 2, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_weights_of_an_average_are_named_correctly(tmp_path: Path) -> None:
    right = '{"model": server["model"] + updates.weighted_sum("delta", [1.0] * len(updates))}'
    wrong = '__import__("fedsim.methods.base").methods.base.averaging_weights(updates, "sample")'
    result = run_with(tmp_path, right, wrong)
    assert result.exit_code == 2, result.stderr
    assert "weights must be 'samples' or 'uniform', not 'sample'" in result.stderr
