"""Sweeps as wholes: same results as single runs, after kills, too."""

import itertools
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.methods.fedavg import FedAvg
from fedsim.sweeps import Sweep
from tests.sweeps.worlds import SMALL, all_digests, broken, command, digests, scenario, write


def test_runs_are_those_that_would_be_run_one_by_one(tmp_path: Path) -> None:
    sweep = fedsim.sweep(SMALL, tmp_path / "sweep", jobs=1)
    plain = {key: value for key, value in SMALL.items() if key != "sweep"}
    for entry in sweep.record["runs"]:
        lr = entry["values"]["training.optimizer.lr"]
        overrides = [f"training.optimizer.lr={lr}", f"seed={entry['seed']}"]
        alone = fedsim.run(plain, tmp_path / entry["run"], overrides=overrides)
        assert digests(sweep.path / entry["run"]) == digests(alone.path)
        there = (sweep.path / entry["run"] / "scenario.yaml").read_text()
        assert entry["run"] in sweep._repr_html_()
        assert there == (alone.path / "scenario.yaml").read_text()
    assert len({str(run) for run in all_digests(sweep).values()}) == 4


def test_classes_from_python_can_be_varied(tmp_path: Path) -> None:
    """As names of parts, with parameters or without; the folder knows them by name."""

    class Halved(FedAvg):
        """FedAvg under another name."""

    for number, methods in enumerate((["fedavg", Halved], [{"name": "fedavg"}, {"name": Halved}])):
        given = scenario(grid={"server.method": methods}, seeds=[0])
        sweep = fedsim.sweep(given, tmp_path / f"sweep{number}", jobs=1)
        assert [entry["run"] for entry in sweep.record["runs"]] == ["fedavg_seed0", "Halved_seed0"]
        reference = "python_parts/Halved.py:Halved"
        written = (sweep.path / "scenario.yaml").read_text()
        assert reference in written
        assert reference in (sweep.path / "Halved_seed0" / "scenario.yaml").read_text()
        assert digests(sweep.path / "fedavg_seed0") == digests(sweep.path / "Halved_seed0")
        assert fedsim.sweep(given, sweep.path, jobs=1).index["status"].tolist() == ["complete"] * 2


def test_an_interrupted_sweep_is_gone_on_with(tmp_path: Path) -> None:
    methods = [{"name": broken(tmp_path, "raise KeyboardInterrupt")}]
    path = write(tmp_path / "s.yaml", scenario(grid={"server.method": methods}, seeds=[0, 1]))
    result = command("sweep", path, "-j", 1, "-o", tmp_path / "sweep")
    assert result.exit_code == 130
    assert Sweep(tmp_path / "sweep").index["status"].tolist() == ["interrupted", "waiting"]
    broken(tmp_path, "return super().aggregate(server, updates)")
    for module in [module for module in sys.modules if module.startswith("fedsim_user_broken")]:
        del sys.modules[module]
    sweep = fedsim.sweep(path, tmp_path / "sweep", jobs=1)
    assert sweep.index["status"].tolist() == ["complete", "complete"]
    assert all_digests(sweep) == all_digests(fedsim.sweep(path, tmp_path / "whole", jobs=1))


class Killed(BaseException):
    """Stands for the end of the process: nothing in fedsim may catch it."""


def test_a_sweep_killed_at_any_write_gives_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = scenario(seeds=[0, 1])
    expected = all_digests(fedsim.sweep(data, tmp_path / "whole", jobs=1))
    replace = os.replace
    for survived in itertools.count(0, 4):
        left = survived

        def counted(source: Any, target: Any) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            replace(source, target)

        monkeypatch.setattr(os, "replace", counted)
        path = tmp_path / f"killed{survived}"
        try:
            sweep = fedsim.sweep(data, path, jobs=1)
        except Killed:
            monkeypatch.setattr(os, "replace", replace)
            sweep = fedsim.sweep(data, path, jobs=1)
        else:
            monkeypatch.setattr(os, "replace", replace)
            break
        assert sweep.failures == {}
        assert all_digests(sweep) == expected
    assert survived > 20
