"""Sweeps on a Ray cluster."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario_dict
from fedsim.sweeps import Ray, cluster
from fedsim.sweeps.task import Task
from tests.sweeps.worlds import SMALL, broken, command, digests, scenario, write


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_user_is_told_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"pip install \"fedsim-des\[ray\]\""):
        fedsim.sweep(SMALL, tmp_path / "sweep", engine="ray")


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


@pytest.mark.parametrize(("device", "gpus"), [("auto", 0.25), ("cpu", 0)])
def test_runs_share_a_gpu(
    device: str, gpus: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[dict[str, Any]] = []

    def options(**values: Any) -> Any:
        requested.append(values)
        return SimpleNamespace(remote=lambda task: task.number)

    ray = SimpleNamespace(
        cluster_resources=lambda: {"GPU": 1.0},
        remote=lambda function: SimpleNamespace(options=options),
        wait=lambda pending, num_returns, timeout: (pending[:1], pending[1:]),
        get=lambda reference: reference,
        shutdown=lambda: None,
    )
    monkeypatch.setattr(cluster, "connect_to_ray", lambda *_, **__: ray)
    loaded = load_scenario_dict(SMALL, tmp_path).changed([f"training.device={device}"])
    tasks = [Task(n, tmp_path / str(n), loaded.source) for n in range(3)]
    assert list(cluster.run_on_ray(tasks, 2, Ray("auto", 0.25))) == [0, 1, 2]
    assert requested == [{"num_cpus": 1, "num_gpus": gpus, "max_retries": 2}] * 3


def test_an_address_without_the_engine_is_refused(tmp_path: Path) -> None:
    result = command("sweep", write(tmp_path / "s.yaml", scenario()), "--address", "auto")
    assert result.exit_code == 2
    assert "add --engine ray" in result.stderr
