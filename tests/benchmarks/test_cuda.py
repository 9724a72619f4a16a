"""The report of the benchmarks on a GPU: rows of several attempts become one table, and a step that fails is named."""

import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import cuda


def test_rows_of_several_attempts_become_one_table(tmp_path: Path) -> None:
    row = {"model": "cnn", "clients": 50, "precision": "tf32", "busy": 0.8}
    rows = [
        {**row, "ms": {"fedsim": 20.0, "loop": 900.0}, "peak_gib": {"fedsim": 1.5}},
        {"model": "cnn", "clients": 50, "failed": {"jax": "no memory"}},
        {**row, "ms": {"fedsim": 10.0, "vmap": 25.0}, "peak_gib": {"fedsim": 1.5}},
        {"model": "mlp", "steps_per_s": {"synchronous": 1000, "fedbuff": 900, "fedasync": 500}},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "device.txt").write_text("torch 2\nH200\n", encoding="utf-8")
    text = cuda.tables(tmp_path)
    assert "| cnn | 50 | tf32 | 10.0 | 90.00 | - | 2.50 | - | 80% | 1.5 |" in text
    assert "| mlp | 1,000 | 90% | 50% |" in text
    assert text.startswith("torch 2, H200, ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_nothing_else_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cuda", "--folder", str(tmp_path / "report")])
    with pytest.raises(SystemExit, match="True"):
        cuda.main()
    assert "device         FAILED" in capsys.readouterr().out
    summary = json.loads((tmp_path / "report" / "summary.json").read_text(encoding="utf-8"))
    assert list(summary) == ["device"]


@pytest.mark.parametrize("name", ["paper", "fedlga", "fedsum", "jax", "tests"])
def test_a_step_that_lacks_something_is_skipped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the reason, and that is not a failure; with everything there, it runs."""
    lacks, reason = ["-c", "import not_there"], "skipped: ModuleNotFoundError"
    if name in ("paper", "fedlga", "fedsum"):
        scenario = next(part for part in cuda.STEPS[name][1] if part.endswith(".yaml"))
        assert f"dataset: {{name: {cuda.NEEDS[name][-1]}" in Path(scenario).read_text()
        lacks, reason = [*cuda.NEEDS[name], "-s", "root=not_there"], "skipped: correct root"
    folder = tmp_path / "report"
    monkeypatch.setattr(sys, "argv", ["cuda", "--folder", str(folder), "--only", name])
    monkeypatch.setitem(cuda.STEPS, name, (60, ["-c", "print('ran')"]))
    for needs, result in ((lacks, reason), (["-c", ""], "passed")):
        monkeypatch.setitem(cuda.NEEDS, name, needs)
        with pytest.raises(SystemExit, match="False"):
            cuda.main()
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        assert summary[name].startswith(result)
        assert ("ran\n" in capsys.readouterr().out) == result.startswith("passed")
