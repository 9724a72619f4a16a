"""Many runs in one process: nothing of a run that is over stays in memory."""

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fedsim
from fedsim.composition.world import World
from fedsim.learning.learner import Learner
from fedsim.scenario.source import Source
from fedsim.simulation.simulation import Simulation
from fedsim.sweeps.task import Performer, Task
from tests.composition.worlds import digits
from tests.sweeps.worlds import broken

PARTS = (World, Learner, Simulation, torch.Tensor)


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


@pytest.mark.parametrize("method", ["fedavg", "scaffold_p", "broken"])
@pytest.mark.usefixtures("no_collector")
def test_nothing_of_a_run_that_is_over_stays(tmp_path: Path, method: str) -> None:
    name = broken(tmp_path, "return 1 / 0") if method == "broken" else method
    server = {"method": {"name": name}, "selection": {"name": "uniform", "cohort": 4}}
    performer, counts = Performer(threads=2), []
    for seed in range(4):
        world = digits(seed=seed, server=server, stop={"rounds": 2})
        # Telling who is eligible counts the activations of the model, with hooks in a graph of torch.
        world["devices"]["memory"] = "1GB"
        source = Source("scenario", fedsim.read_scenario(world).resolved())
        result = performer.perform(Task(seed, tmp_path / str(seed), source))
        assert bool(result.error) == (method == "broken")
        counts.append(held())
    # The first leaves the data set, which the others share.
    assert counts[0] == counts[1] == counts[3]
