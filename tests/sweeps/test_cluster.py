"""Sweeps on a Ray cluster."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import fedsim
from fedsim.errors import UserError
from tests.sweeps.worlds import (
    SMALL,
    broken,
    digests,
    scenario,
)


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_user_is_told_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"pip install \"fedsim-des\[ray\]\""):
        fedsim.sweep(SMALL, tmp_path / "sweep", engine="ray")
    with pytest.raises(UserError, match="only for a Ray cluster"):
        fedsim.sweep(SMALL, tmp_path / "sweep", address="auto")


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_ray_gives_the_results_of_the_local_engine(tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    body = (
        f"p = __import__('pathlib').Path({str(lost)!r})\n"
        "        if p.exists(): return super().aggregate(server, updates)\n"
        "        p.touch(); __import__('os')._exit(9)"
    )
    (tmp_path / "dies").mkdir()
    dies = {"name": broken(tmp_path / "dies", body)}
    methods = [{"name": broken(tmp_path, "return 1 / 0")}, {"name": "fedavg"}, dies]
    data = scenario(grid={"server.method": methods}, seeds=[0, 1])
    ray = fedsim.sweep(data, tmp_path / "ray", jobs=2, engine="ray")
    assert ray.index["status"].tolist() == ["failed"] * 2 + ["complete"] * 4
    assert lost.exists()  # a process was lost, and its run resumed by another
    local = fedsim.sweep(data, tmp_path / "local", jobs=1)
    assert ray.failures == local.failures
    assert all("ZeroDivisionError: division by zero" in text for text in ray.failures.values())
    for run in ray.runs:
        assert digests(run.path) == digests(local.path / run.path.name)
