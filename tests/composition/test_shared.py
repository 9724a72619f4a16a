"""Runs of one process load each data set and each trace once."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fedsim.composition.build import build
from fedsim.composition.shared import KEPT_DATASETS, Shared
from fedsim.parts.component import Parameters
from fedsim.scenario.loading import load_scenario_dict
from fedsim.tasks.dataset import Dataset, DatasetComponent
from tests.composition.worlds import digits


class NumberedParams(Parameters):
    number: int = 0


class Numbered(DatasetComponent):
    name = "numbered"
    Params = NumberedParams
    loads: ClassVar[list[int]] = []

    def load(self, folder: Path | None = None) -> Dataset:
        self.loads.append(self.params.number)
        x = np.full((2, 1), self.params.number, dtype=np.float32)
        y = np.array([0, 1])
        return Dataset("numbered", x, y, x, y, 2)


@pytest.fixture(autouse=True)
def no_loads() -> None:
    Numbered.loads.clear()


def numbered(number: int) -> Numbered:
    return Numbered(NumberedParams(number=number))


def test_equal_parameters_are_loaded_once() -> None:
    datasets = Shared()
    first = datasets.dataset(numbered(1), Path("/"))
    assert datasets.dataset(numbered(1), Path("/")) is first
    assert datasets.dataset(numbered(2), Path("/")).train_x[0, 0] == 2
    assert Numbered.loads == [1, 2]


def test_processes_share_one_copy_through_files(tmp_path: Path) -> None:
    """Two objects in place of two processes: equal content in one file, and private changes."""
    first, second = (Shared(tmp_path) for _ in range(2))
    x = first.dataset(numbered(3), Path("/")).train_x
    dataset = second.dataset(numbered(3), Path("/"))
    assert Numbered.loads == [3]
    assert not x.flags.owndata
    assert (dataset.train_x == 3).all()
    x[:] = 4
    assert (dataset.train_x == 3).all()
    trace = Path(__file__).parents[2] / "traces" / "phones_mostly_on_week"
    expected = Shared().trace(trace)
    for shared in (Shared(tmp_path), Shared(tmp_path)):
        bundle = shared.trace(trace)
        assert bundle.manifest == expected.manifest
        assert bundle.tables == expected.tables


def test_what_cannot_be_written_or_is_mapped_already_is_loaded_by_each(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    for value in (np.load(tmp_path / "x.npy", mmap_mode="c"), lambda: None):
        for _ in range(2):
            assert Shared(tmp_path).mapped("key", lambda value=value: value) is value


def test_relative_paths_mean_another_data_set_in_another_folder(tmp_path: Path) -> None:
    datasets = Shared()
    datasets.dataset(numbered(1), Path("/"))
    datasets.dataset(numbered(1), tmp_path)
    assert Numbered.loads == [1, 1]


def test_only_the_last_few_are_kept() -> None:
    datasets = Shared()
    for number in range(KEPT_DATASETS):
        datasets.dataset(numbered(number), Path("/"))
    datasets.dataset(numbered(0), Path("/"))
    datasets.dataset(numbered(KEPT_DATASETS), Path("/"))
    assert Numbered.loads == [*range(KEPT_DATASETS), KEPT_DATASETS]
    datasets.dataset(numbered(0), Path("/"))
    assert len(Numbered.loads) == KEPT_DATASETS + 1
    datasets.dataset(numbered(1), Path("/"))
    assert Numbered.loads[-1] == 1


def test_runs_share_what_is_loaded() -> None:

    shared = Shared()
    tasks: list[Any] = []
    for seed in (0, 1):
        loaded = load_scenario_dict(digits(seed=seed), Path.cwd())
        tasks.append(build(loaded, shared).task)
    assert tasks[0].dataset is tasks[1].dataset
    assert tasks[0].samples.tolist() != tasks[1].samples.tolist()
    alone = build(load_scenario_dict(digits(), Path.cwd())).task
    assert isinstance(alone, type(tasks[0]))
    assert alone.dataset is not tasks[0].dataset
