"""Processes of Ray: the same bits as threads, and one clear error for whatever goes wrong there."""

import importlib.util
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsim.errors import ProcessLost, UserError
from fedsim.learning.learner import Learner
from fedsim.learning.workers import Workers
from fedsim.learning.workers.base import require_same
from fedsim.learning.workers.remote import RemoteWorkers, _pack, _unpack
from fedsim.scenario.training import RayWorkers
from fedsim.tasks.base import Task
from tests.learning.imitation_ray import imitated
from tests.learning.problems import make_learner
from tests.learning.timelines import assert_same, buffered, checkpoints_of, execute, rounds
from tests.learning.workers.cases import (
    CASES,
    Case,
    asynchronous,
    mlp,
    on_devices,
    options_of,
    station_of,
    with_threads,
)

CPU = torch.device("cpu")
HAVE_RAY = importlib.util.find_spec("ray") is not None


def ray_workers(case: Case, count: int = 2, threads: int = 1) -> RemoteWorkers:
    settings = RayWorkers(name="ray", count=count)
    return RemoteWorkers(partial(station_of, *case[:4]), settings, threads, CPU)


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


# Processes of Ray need seconds to start, and what differs between the cases is the same in an imitation.
_IMITATED = pytest.mark.parametrize("ray", ["imitation"], indirect=True)


@pytest.mark.parametrize(
    ("ray", "name"),
    [*(("imitation", name) for name in CASES), ("real", "personal parts")],
    indirect=["ray"],
)
def test_processes_give_the_same_bits(name: str, ray: Any) -> None:
    case = CASES[name]
    task, timeline = case[0](), case[4]()
    expected = execute(task, timeline, **with_threads(case, 1))
    remote = execute(task, timeline, **options_of(case), workers=ray_workers(case))
    assert_same(remote, expected)


@_IMITATED
def test_a_checkpoint_of_one_sort_is_continued_by_another(ray: Any) -> None:
    case: Case = (mlp, "remembering", {}, {}, partial(buffered, 20))
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
        assert_same(execute(task, timeline, checkpoint=taken[1], **after(), **few), expected)


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
    there = _unpack(pickle.loads(pickle.dumps(_pack({"": tensor}))))[""]
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


def test_what_goes_wrong_there_goes_wrong_here(ray: Any) -> None:
    case: Case = (mlp, "failing", {}, {}, asynchronous)
    learner = played(case, ray_workers(case))
    with pytest.raises(ZeroDivisionError, match="nothing can be divided"):
        learner.close()
    learner.stop()


def without_data() -> Task:
    raise UserError("no such folder", where="dataset there", hint="put it there")


@_IMITATED
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
    case: Case = (mlp, "dying", {}, {}, asynchronous)
    learner = played(case, ray_workers(case))
    with pytest.raises(ProcessLost, match="was lost") as caught:
        learner.close()
    assert "\n" not in caught.value.message
    learner.stop()


def test_too_many_processes(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.learning.workers.remote._LOOKS", 2)
    case = CASES["stacked layers"]
    if not ray.is_initialized():
        ray.init("local", num_cpus=3)
    learner = played(case, ray_workers(case, count=4))
    with pytest.raises(
        UserError, match=r"4 processes need 4 CPUs, but the cluster has only \d free"
    ):
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


def test_a_node_of_another_kind_is_refused() -> None:
    here: dict[str, str | int] = {"kernel": "loop/1", "cpu_capability": "AVX512", "threads": 4}
    require_same({**here, "threads": 1}, here)
    with pytest.raises(UserError, match="cpu_capability is AVX2 there and AVX512 here"):
        require_same({**here, "cpu_capability": "AVX2"}, here)
