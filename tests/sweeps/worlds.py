"""Small sweeps, and what the tests compare of them."""

import hashlib
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from fedsim.cli import cli
from fedsim.runs.records import SWEEP
from fedsim.sweeps import Sweep
from tests.composition.worlds import quadratic

TABLES = ("dispatches", "aggregations", "metrics", "clients")


def scenario(**sweep: Any) -> dict[str, Any]:
    world = quadratic([[0, 1], [1, 2], [0, 1, 2], [2]])
    world["task"] |= {"noise_std": 0.5}
    world["devices"]["compute"] |= {"jitter": {"cv": 0.2}}
    return {**world, "sweep": sweep}


SMALL = scenario(grid={"training.optimizer.lr": [0.1, 0.2]}, seeds=[0, 1])


def digests(folder: Path) -> dict[str, str]:
    files = [*(f"{name}.parquet" for name in TABLES), "model.safetensors"]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}


def all_digests(sweep: Sweep) -> dict[str, dict[str, str]]:
    return {entry["run"]: digests(sweep.path / entry["run"]) for entry in sweep.record["runs"]}


def write(path: Path, data: dict[str, Any]) -> Path:
    with open(path, "w") as file:
        YAML().dump(data, file)
    return path


def record(folder: Path, *runs: str) -> None:
    """Write the record of a sweep whose runs have the seeds 0, 1, ..."""
    entries = [
        {"run": name, "seed": seed, "values": {}, "digest": ""} for seed, name in enumerate(runs)
    ]
    SWEEP.write(folder, {"name": "made", "scenario": None, "runs": entries, "files": {}})


def command(*args: Any) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


def schedules(*deadlines: str) -> dict[str, Any]:
    """Sections of which each is called by what the others do not have."""
    methods = [{"name": "fedavg"}, {"name": "fedavgm", "momentum": 0.5}]
    parts = [
        {"method": method, "schedule": {"name": "sync", "deadline": deadline}}
        for deadline in deadlines
        for method in methods[: 1 if len(deadlines) == 1 else 2]
    ]
    data = scenario(grid={"server": parts}, seeds=[0])
    del data["server"]
    return data


BROKEN = """
from fedsim.methods.fedavg import FedAvg

class {name}(FedAvg):
    name = ""
    def aggregate(self, server, updates):
        {body}
"""


def broken(tmp_path: Path, body: str) -> str:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN.format(name="Broken", body=body))
    return f"{path}:Broken"
