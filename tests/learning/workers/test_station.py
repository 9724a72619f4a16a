"""A device has its own data, kernel and method; what many clients received is held once; updates come home."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.device import Execution
from fedsim.learning.workers import Group, cohort_of
from fedsim.methods.base import Cohort, LocalUpdate, Trainer
from fedsim.methods.fedavg import FedAvg
from fedsim.vocabulary.timeline import Train
from tests.learning.problems import (
    Timeline,
    make_station,
    supervised_task,
)
from tests.learning.workers.cases import station_of

CPU = torch.device("cpu")


def test_a_device_has_data_kernel_and_method_of_its_own() -> None:
    station = station_of(partial(supervised_task, "conv"), "scaffold", {}, {})
    other = station.on(CPU)
    assert other.method is not station.method
    assert other.kernel is not station.kernel
    assert other.samples is not station.samples
    assert other.describe() == station.describe()
    for name, value in station.server.items():
        assert torch.equal(other.server[name], value)


def test_updates_come_home() -> None:
    """Tensors on the device ``meta`` stand for those of another one."""
    from fedsim.learning.workers.station import Worker

    class Sending(FedAvg):
        def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
            assert cohort.down["model"].device.type == "meta"
            assert cohort.memory["own"].device.type == "meta"
            assert cohort.learning_rates.device.type == "meta"
            ones = torch.ones(len(cohort.clients), 3)
            return LocalUpdate({"delta": ones}, ones[:, 0], {"own": ones})

    station = station_of(partial(supervised_task, "mlp"), "fedavg", {}, {})
    there = Sending(station.method.params, station.method.context)
    meta = torch.device("meta")
    execution = replace(station.execution, device=meta)
    worker = Worker(there, [None], execution, CPU)  # type: ignore[list-item]
    update = worker.train(group(*[torch.zeros(3)] * 2))
    for tensor in (update.vectors["delta"], update.loss, update.memory["own"]):
        assert tensor.device == CPU
        assert tensor.sum() > 0


def test_groups_on_cuda_do_not_follow_the_number_of_devices() -> None:
    """A wave of 40 clients whose step is worth three shares is cut into three groups, for any number of devices."""
    timeline = Timeline()
    timeline.aggregate(*[timeline.dispatch(client) for client in range(40)])
    task = supervised_task("mlp", sizes=(50,) * 40)
    trains: Any = [call for name, call in timeline.calls if name == "submit"][:-1]
    for count in (1, 2, 5):
        station = make_station(task)
        station.execution = replace(station.execution, device=torch.device("cuda"))
        station.kernels = [_Large()]  # type: ignore[list-item]
        station.step_flops = 3 * 50_000_000_000 // 40 + 1
        assert [len(group) for group in station.groups(trains, count)] == [14, 13, 13]
        station.step_flops = 50_000_000_000
        assert len(station.groups(trains, count)) == 8


class _Large:
    """A kernel that takes everybody at once."""

    group_invariant = True

    def shape_class(self, clients: Any) -> Any:
        return np.zeros(len(clients), dtype=np.int64)

    def largest_group(self) -> int:
        return 1000


def group(*received: Tensor) -> Group:
    """Dispatches that received these vectors."""
    trains = [Train(number, number, 0, 0, 0, 1, 1, 0.0) for number in range(len(received))]

    def cohort(trains: Any, execution: Execution) -> Cohort:
        return cohort_of(
            trains,
            execution,
            samples=np.arange(len(trains)),
            rates=[0.1] * len(trains),
            down={"model": [received[train.client] for train in trains]},
            memory={"own": torch.zeros(len(trains), 3)},
        )

    return Group(trains, cohort)


def test_a_vector_that_many_received_is_there_once() -> None:
    execution = Execution(CPU, torch.float32, None, 1)
    first, second = torch.arange(3.0), torch.arange(3.0) + 5
    trains, cohort = group(first, second, first, first)
    several = cohort(trains, execution).down["model"]
    assert torch.equal(several, torch.stack([first, second, first, first]))
    same = cohort(trains[2:], execution).down["model"]
    assert same.stride() == (0, 1)
    assert same.data_ptr() == first.data_ptr()
