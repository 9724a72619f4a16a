"""Many runs in one process: nothing of a run that is over stays in memory."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fedsim
from fedsim.composition.assembly import Assembly
from fedsim.learning.learner import Learner
from fedsim.scenario.source import Source
from fedsim.simulation.server import Server
from fedsim.sweeps.task import Performer, Result, Task
from tests.composition.worlds import digits

pytestmark = pytest.mark.usefixtures("without_reports")

PARTS = (Assembly, Learner, Server, torch.Tensor)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only what fedsim itself collects is collected: whether an automatic collection falls into a run is chance."""
    gc.collect()
    # What is there already does not change, and is not looked at again and again.
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def held() -> Counter[str]:
    """Objects of :data:`PARTS` in memory, also those that only wait for the collector."""
    counts: Counter[str] = Counter()
    for kind, count in Counter(map(type, gc.get_objects())).items():
        counts.update({base.__name__: count for base in PARTS if issubclass(kind, base)})
    return counts


def perform(folder: Path, performer: Performer, seed: int, changes: dict[str, Any]) -> Result:
    # Telling who is eligible counts the activations of the model, with hooks in a graph of torch.
    world = digits(seed=seed, **changes)
    world["devices"]["memory"] = "1GB"
    loaded = fedsim.read_scenario(world)
    return performer.perform(
        Task(seed, str(seed), str(folder / str(seed)), Source("scenario", loaded.resolved()))
    )


@pytest.mark.parametrize("method", ["fedavg", "scaffold_p"])
@pytest.mark.usefixtures("no_collector")
def test_nothing_of_a_finished_run_stays(tmp_path: Path, method: str) -> None:
    performer = Performer(threads=2)
    server = {"method": {"name": method}, "selection": {"name": "uniform", "cohort": 4}}
    changes = {"server": server, "stop": {"rounds": 2}}
    counts = []
    for seed in range(4):
        assert perform(tmp_path, performer, seed, changes).error is None
        counts.append(held())
    # The first leaves the data set, which the others share.
    assert counts[0] == counts[1] == counts[3]


@pytest.mark.usefixtures("no_collector")
def test_nothing_of_a_failed_run_stays(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from fedsim.methods.fedavg import FedAvg\n"
        "class Broken(FedAvg):\n"
        "    name = ''\n"
        "    def aggregate(self, server, updates):\n"
        "        return 1 / 0\n"
    )
    performer = Performer(threads=2)
    changes = {"server": {"method": {"name": f"{tmp_path / 'broken.py'}:Broken"}}}
    counts = []
    for seed in range(3):
        assert perform(tmp_path, performer, seed, changes).error
        counts.append(held())
    assert counts[0] == counts[1] == counts[2]
