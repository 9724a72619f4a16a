"""Threads, several devices and processes of Ray: the same bits from all of them."""

from __future__ import annotations

import importlib.util
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.errors import UserError
from fedsim.learning.device import Execution
from fedsim.learning.grouping import Grouping
from fedsim.learning.kernels import LinearStackKernel
from fedsim.learning.learner import Learner
from fedsim.learning.workers import Group, Received, Station, Workers
from fedsim.learning.workers.remote import RemoteWorkers, _pack, _require_same, _unpack
from fedsim.methods import registry
from fedsim.methods.base import Cohort, LocalUpdate, Method, Trainer
from fedsim.methods.fedavg import FedAvg
from fedsim.scenario.training import Augmentation, RayWorkers, Training
from fedsim.tasks.base import Task
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.models.characters import CharLstm
from fedsim.tasks.partition import Partition
from tests.learning.imitation_ray import imitated
from tests.learning.problems import (
    Remembering,
    Timeline,
    make_learner,
    make_station,
    make_training,
    quadratic_task,
    supervised_task,
)
from tests.learning.test_learner import assert_same, buffered, checkpoints_of, execute, rounds

CPU = torch.device("cpu")
HAVE_RAY = importlib.util.find_spec("ray") is not None


def character_task() -> SupervisedTask:
    """Sequences of five characters of seven kinds, on eight clients."""
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 7, (200, 6)).astype(np.uint8)
    dataset = Dataset(
        name="characters",
        train_x=codes[:160, :5],
        train_y=codes[:160, 5].astype(np.int64),
        test_x=codes[160:, :5],
        test_y=codes[160:, 5].astype(np.int64),
        classes=7,
        kind="next_character",
    )
    partition = Partition(np.arange(0, 161, 20), rng.permutation(160))
    params = CharLstm.Params(embedding=4, hidden=6, layers=1)
    return SupervisedTask(dataset, partition, CharLstm(params))


def noisy_quadratics() -> Task:
    return quadratic_task(
        centers=[[float(i), float(-i)] for i in range(8)],
        curvatures=0.7,
        samples=None,
        noise_std=0.3,
    )


def synchronous() -> Timeline:
    """Everybody once, as in a prologue, then rounds of some."""
    timeline = Timeline()
    for clients in ([0, 1, 2, 3, 4, 5, 6, 7], [0, 3, 5], [1, 3, 6], [7, 0, 2]):
        timeline.aggregate(*[timeline.dispatch(client, 1 + client % 3) for client in clients])
        timeline.evaluate()
    return timeline


# Task, method, parameters, training, timeline.
Case = tuple[Callable[[], Task], str, dict[str, Any], dict[str, Any], Callable[[], Timeline]]
asynchronous = partial(buffered, 16)
CASES: dict[str, Case] = {
    "stacked layers": (partial(supervised_task, "mlp"), "fedavg", {}, {}, asynchronous),
    "loop": (
        partial(supervised_task, "conv"),
        "fedavg",
        {},
        {"augmentation": Augmentation(crop_padding=1, flip=True)},
        asynchronous,
    ),
    "dropout": (partial(supervised_task, "dropout"), "fedavg", {}, {}, asynchronous),
    "vmap": (
        partial(supervised_task, "conv"),
        "fedprox",
        {"mu": 0.1},
        {"executor": "stacked"},
        asynchronous,
    ),
    "recurrent": (character_task, "fedavg", {}, {}, asynchronous),
    "quadratic": (noisy_quadratics, "fedavg", {}, {}, asynchronous),
    "memories": (partial(supervised_task, "mlp"), "scaffold", {}, {}, synchronous),
    "personal parts": (
        partial(supervised_task, "mlp", own_test=True),
        "fedalt",
        {},
        {},
        synchronous,
    ),
    "prologue": (partial(supervised_task, "mlp", own_test=True), "scaffold_p", {}, {}, synchronous),
}


def method_of(name: str) -> type[Method]:
    own: dict[str, type[Method]] = {"remembering": Remembering, "failing": Failing, "dying": Dying}
    return own.get(name) or registry()[name]


def training_of(changes: dict[str, Any]) -> Training:
    return make_training(**({"threads": 1} | changes))


def station_of(
    make_task: Callable[[], Task], method: str, params: dict[str, Any], changes: dict[str, Any]
) -> Station:
    """What :func:`tests.learning.problems.make_learner` works with, for another process."""
    kind = method_of(method)
    return make_station(make_task(), training_of(changes), kind, kind.Params.model_validate(params))


def ray_workers(case: Case, count: int = 2, threads: int = 1) -> RemoteWorkers:
    settings = RayWorkers(name="ray", count=count)
    return RemoteWorkers(partial(station_of, *case[:4]), settings, threads, CPU)


def options_of(case: Case) -> dict[str, Any]:
    _, method, params, changes, _ = case
    kind = method_of(method)
    return {
        "method": kind,
        "params": kind.Params.model_validate(params),
        "training": training_of(changes),
    }


def on_devices(case: Case, count: int) -> dict[str, Any]:
    options = options_of(case)
    execution = replace(Execution.of(options["training"]), others=(CPU,) * (count - 1))
    return options | {"execution": execution}


def with_threads(case: Case, count: int) -> dict[str, Any]:
    options = options_of(case)
    return options | {"training": options["training"].model_copy(update={"threads": count})}


@pytest.fixture(params=["imitation", "real"])
def ray(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "imitation":
        with imitated() as imitation:
            yield imitation
    elif not HAVE_RAY:
        pytest.skip("Ray is not installed")
    else:
        yield request.getfixturevalue("cluster")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of three processors, so that not every test starts one."""
    import ray

    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


# -- the same bits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_threads_and_devices_give_the_same_bits(name: str) -> None:
    case = CASES[name]
    task, timeline = case[0](), case[4]()
    expected = execute(task, timeline, **with_threads(case, 1))
    for options in (
        with_threads(case, 2),
        with_threads(case, 3),
        on_devices(case, 2),
        on_devices(case, 3),
        on_devices(case, 2) | {"eager": True} if name != "vmap" else on_devices(case, 2),
    ):
        assert_same(execute(task, timeline, **options), expected)


@pytest.mark.parametrize("name", CASES)
def test_processes_of_ray_give_the_same_bits(name: str, ray: Any) -> None:
    case = CASES[name]
    task, timeline = case[0](), case[4]()
    expected = execute(task, timeline, **with_threads(case, 1))
    found = execute(task, timeline, **options_of(case), workers=ray_workers(case))
    assert_same(found, expected)


@pytest.mark.parametrize("name", registry())
def test_every_method_works_in_copies(name: str) -> None:
    """What a local rule needs follows from parameters, context, initial state and what was sent."""
    make_task = partial(supervised_task, "mlp", own_test=True)
    case: Case = (make_task, name, {}, {}, synchronous)
    task, timeline = make_task(), synchronous()
    expected = execute(task, timeline, **with_threads(case, 1))
    assert_same(execute(task, timeline, **on_devices(case, 2)), expected)
    with imitated():
        found = execute(task, timeline, **options_of(case), workers=ray_workers(case))
    assert_same(found, expected)


@pytest.mark.parametrize("name", registry())
def test_every_method_trains_large_models_client_by_client(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_task = partial(supervised_task, "mlp", own_test=True)
    case: Case = (make_task, name, {}, {}, synchronous)
    task, timeline = make_task(), synchronous()
    expected = execute(task, timeline, **with_threads(case, 1))[0]["model"]
    monkeypatch.setattr(LinearStackKernel, "client_by_client", True)
    found = execute(task, timeline, **with_threads(case, 1))
    torch.testing.assert_close(found[0]["model"], expected, atol=1e-5, rtol=1e-4)
    assert_same(execute(task, timeline, **with_threads(case, 2)), found)


def test_processes_of_ray_with_threads_and_at_once(ray: Any) -> None:
    case = CASES["memories"]
    task, timeline = case[0](), case[4]()
    expected = execute(task, timeline, **with_threads(case, 1))
    workers = ray_workers(case, count=1, threads=2)
    assert_same(execute(task, timeline, **options_of(case), workers=workers, eager=True), expected)


def resumed(task: Task, timeline: Timeline, taken: Any, **options: Any) -> Any:
    found: list[tuple[int, dict[str, float]]] = []
    learner = make_learner(
        task,
        on_metrics=lambda what, metrics: found.append((what.version, dict(metrics))),
        checkpoint=taken,
        **options,
    )
    timeline.play(learner)
    learner.close()
    state: dict[str, Tensor] = {name: value.clone() for name, value in learner.server.items()}
    return state | {f"memory/{k}": v for k, v in learner.store.tensors().items()}, found


def test_a_checkpoint_of_one_sort_is_continued_by_another(ray: Any) -> None:
    case: Case = (partial(supervised_task, "mlp"), "remembering", {}, {}, partial(buffered, 20))
    task, timeline = case[0](), case[4]()
    expected = execute(task, timeline, **options_of(case))
    few: dict[str, Any] = {"max_pending": 6}
    sorts: list[Callable[[], dict[str, Any]]] = [
        lambda: with_threads(case, 2),
        lambda: on_devices(case, 2),
        lambda: options_of(case) | {"workers": ray_workers(case)},
    ]
    for number, before in enumerate(sorts):
        after = sorts[(number + 1) % len(sorts)]
        taken = checkpoints_of(task, timeline, **before(), **few)
        assert len(taken) > 1
        assert_same(resumed(task, timeline, taken[1], **after(), **few), expected)


# -- devices ------------------------------------------------------------------------------------------------------


def test_a_device_has_data_kernel_and_method_of_its_own() -> None:
    station = station_of(partial(supervised_task, "conv"), "scaffold", {}, {})
    other = station.on(CPU)
    assert other.method is not station.method
    assert other.kernel is not station.kernel
    assert other.samples is not station.samples
    assert other.describe() == station.describe()
    for name, value in station.server.items():
        assert torch.equal(other.server[name], value)


def test_the_module_of_a_task_stays_where_it_is() -> None:
    """A kernel on another device must not take the module of the first along."""
    from tests.learning.test_kernels import binary_task, built_for

    task = binary_task()
    kernel = built_for(task, "auto", "float32")
    assert kernel.module is not task.module  # type: ignore[attr-defined]


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
    worker = Worker(there, None, execution, CPU)  # type: ignore[arg-type]
    update = worker.train(a_group([torch.zeros(3)] * 2))
    for tensor in (update.vectors["delta"], update.loss, update.memory["own"]):
        assert tensor.device == CPU
        assert tensor.sum() > 0


def a_group(received: list[Tensor]) -> Group:
    count = len(received)
    column = np.arange(count)
    names = ("clients", "sequences", "versions", "rounds", "steps", "steps_assigned", "samples")
    return Group(
        columns=dict.fromkeys(names, column),
        learning_rates=(0.1,) * count,
        down={"model": Received.of(received)},
        memory=lambda: {"own": torch.zeros(count, 3)},
    )


def test_a_vector_that_many_received_is_there_once() -> None:
    first, second = torch.arange(3.0), torch.arange(3.0) + 5
    received = Received.of([first, second, first, first])
    assert received.index == (0, 1, 0, 0)
    assert [vector is first or vector is second for vector in received.vectors] == [True, True]
    assert torch.equal(received.matrix(CPU), torch.stack([first, second, first, first]))
    same = Received.of([first, first]).matrix(CPU)
    assert same.stride() == (0, 1)
    assert same.data_ptr() == first.data_ptr()


def test_groups_on_cuda_do_not_follow_the_number_of_devices() -> None:
    """A wave of 40 clients whose step is worth three shares is cut into three groups, for any number of devices."""
    timeline = Timeline()
    timeline.aggregate(*[timeline.dispatch(client) for client in range(40)])
    task = supervised_task("mlp", sizes=(50,) * 40)
    trains: Any = [call for name, call in timeline.calls if name == "submit"][:-1]
    for count in (1, 2, 5):
        station = make_station(task)
        station.execution = replace(station.execution, device=torch.device("cuda"))
        station.kernel = _Large()  # type: ignore[assignment]
        grouping = Grouping(station)
        grouping._step_flops = 3 * 50_000_000_000 // 40 + 1
        assert [len(group) for group in grouping.groups(trains, count)] == [14, 13, 13]
        grouping._step_flops = 50_000_000_000
        assert len(grouping.groups(trains, count)) == 8


class _Large:
    """A kernel that takes everybody at once."""

    group_invariant = True

    def shape_class(self, clients: Any) -> Any:
        return np.zeros(len(clients), dtype=np.int64)

    def largest_group(self) -> int:
        return 1000


def test_description() -> None:
    case = CASES["stacked layers"]
    task = case[0]()
    described = make_learner(task, **with_threads(case, 3)).describe()
    assert (described["workers"], described["workers_are"]) == (3, "threads")
    described = make_learner(task, **on_devices(case, 2)).describe()
    assert (described["workers"], described["workers_are"]) == (2, "devices")
    assert described["devices"] == "cpu, cpu"


# -- Ray ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 5),
        torch.randn(5, 3).T[:, 1:4],
        torch.randn(4).expand(3, -1),
        torch.arange(6, dtype=torch.float64).view(2, 3),
        torch.tensor([[1 << 60]]),
        torch.tensor([True, False]),
        torch.randn(2, 2).to(torch.bfloat16),
        torch.empty(0, 4),
        torch.tensor(2.5),
    ],
    ids=["matrix", "strided", "expanded", "double", "long", "bool", "bfloat16", "empty", "scalar"],
)
def test_tensors_cross_unchanged(tensor: Tensor) -> None:
    there = _unpack(pickle.loads(pickle.dumps(_pack(tensor))))
    assert there.dtype == tensor.dtype
    assert there.shape == tensor.shape
    assert torch.equal(there, tensor)
    there.zero_()  # its memory is its own


def played(case: Case, workers: Workers) -> Learner:
    learner = make_learner(case[0](), **options_of(case), workers=workers)
    return case[4]().play(learner)


def test_a_version_is_sent_once_a_wave() -> None:
    case: Case = (*CASES["loop"][:4], partial(rounds, 1, list(range(8))))
    with imitated() as ray:
        learner = played(case, ray_workers(case))
        learner.close()
        model_bytes = 4 * learner.station.task.layout.size
        assert len([name for _, name in ray.calls if name == "train"]) == 8
        assert model_bytes < ray.sent_bytes < 1.5 * model_bytes
        assert {number for number, name in ray.calls if name == "train"} == {0, 1}


def test_nothing_is_left_behind() -> None:
    case = CASES["stacked layers"]
    with imitated() as ray:
        learner = played(case, ray_workers(case))
        learner.start()
        assert ray.is_initialized()
        learner.stop()
        assert not ray.is_initialized()
        learner.stop()
        # A connection that was there is not ours to end.
        ray.init("local", num_cpus=2)
        played(case, ray_workers(case)).close()
        assert ray.is_initialized()


class Failing(FedAvg):
    """A rule with a mistake in it."""

    name = "failing"

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        raise ZeroDivisionError("nothing can be divided by it")


class Dying(FedAvg):
    """A rule that ends its process."""

    name = "dying"

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        os._exit(1)


def test_what_goes_wrong_there_goes_wrong_here(ray: Any) -> None:
    case: Case = (partial(supervised_task, "mlp"), "failing", {}, {}, asynchronous)
    learner = played(case, ray_workers(case))
    with pytest.raises(ZeroDivisionError, match="nothing can be divided"):
        learner.close()
    learner.stop()


def without_data() -> Task:
    raise UserError("no such folder", where="dataset there", hint="put it there")


def test_what_is_missing_there_is_said(ray: Any) -> None:
    case = CASES["stacked layers"]
    broken: Case = (without_data, *case[1:])
    learner = played(case, ray_workers(broken))
    with pytest.raises(UserError, match="no such folder") as caught:
        learner.start()
    assert caught.value.where == "dataset there"
    learner.stop()


@pytest.mark.skipif(not HAVE_RAY, reason="Ray is not installed")
def test_a_process_that_dies_is_one_clear_error(cluster: Any) -> None:
    case: Case = (partial(supervised_task, "mlp"), "dying", {}, {}, asynchronous)
    learner = played(case, ray_workers(case))
    with pytest.raises(UserError, match="was lost") as caught:
        learner.close()
    assert "\n" not in caught.value.message
    learner.stop()


def test_a_lost_process_is_one_clear_error() -> None:
    case = CASES["stacked layers"]
    with imitated() as ray:
        learner = played(case, ray_workers(case))
        learner.start()
        ray.dies_at = len(ray.calls) + 3
        with pytest.raises(UserError, match=r"was lost: The actor died unexpectedly\n") as caught:
            learner.close()
        assert "resume" in str(caught.value.hint)
        learner.stop()
        assert not ray.is_initialized()


def test_too_many_processes(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.learning.workers.remote._LOOKS", 2)
    case = CASES["stacked layers"]
    if not ray.is_initialized():
        ray.init("local", num_cpus=3)
    learner = played(case, ray_workers(case, count=4))
    with pytest.raises(UserError, match=r"4 processes need 4 CPUs, and the cluster has \d free"):
        learner.start()


def test_as_many_processes_as_are_free() -> None:
    case = CASES["stacked layers"]
    with imitated() as ray:
        ray.init("local", num_cpus=5)
        settings = RayWorkers(name="ray")
        workers = RemoteWorkers(partial(station_of, *case[:4]), settings, 2, CPU)
        learner = played(case, workers)
        learner.close()
        assert len(ray.processes) == 2
        assert learner.describe()["workers"] == 4
        assert learner.describe()["workers_are"] == "ray"


def test_no_cluster_at_the_address() -> None:
    case = CASES["stacked layers"]
    with imitated():
        settings = RayWorkers(name="ray", count=1, address="ray://127.0.0.1:1")
        learner = played(case, RemoteWorkers(partial(station_of, *case[:4]), settings, 1, CPU))
        with pytest.raises(UserError, match=r"no Ray cluster answers at ray://127\.0\.0\.1:1"):
            learner.start()


def test_a_node_of_another_kind_is_refused() -> None:
    here: dict[str, str | int] = {"kernel": "loop/1", "cpu_capability": "AVX512", "threads": 4}
    _require_same({**here, "threads": 1}, here)
    with pytest.raises(UserError, match="cpu_capability is AVX2 there and AVX512 here"):
        _require_same({**here, "cpu_capability": "AVX2"}, here)


@pytest.mark.skipif(HAVE_RAY, reason="Ray is installed")
def test_without_ray_the_user_is_told_how_to_install_it() -> None:
    with pytest.raises(UserError, match=r"pip install \"fedsim-des\[ray\]\"") as caught:
        Execution.of(make_training(workers=RayWorkers(name="ray")))
    assert caught.value.where == "training.workers"
