"""The same learning on a CUDA device."""

import gc
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedsim
from fedsim.errors import UserError
from fedsim.learning.device import Execution
from fedsim.learning.kernels import VmapKernel
from fedsim.learning.learner import Learner
from fedsim.methods.base import Method
from fedsim.methods.fedavg import FedAvg
from fedsim.scenario.training import DeviceWorkers
from tests.composition.worlds import digits
from tests.learning.compression.test_compression import EVERY
from tests.learning.problems import (
    Remembering,
    Timeline,
    make_learner,
    make_training,
    supervised_task,
)
from tests.learning.timelines import assert_same, buffered, execute, rounds

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
MODELS = ["linear", "mlp", "conv", "batch_norm", "dropout"]


@pytest.mark.parametrize("model", MODELS)
def test_two_runs_are_bitwise_the_same(model: str) -> None:
    task, timeline = supervised_task(model), buffered(30)
    training = make_training(device="cuda")
    assert_same(
        execute(task, timeline, training=training), execute(task, timeline, training=training)
    )


@pytest.mark.parametrize("model", ["linear", "mlp", "conv", "batch_norm"])
def test_result_is_that_of_the_cpu(model: str) -> None:
    task, timeline = supervised_task(model), buffered(10)
    options: dict[str, Any] = {"dtype": "float64"}
    there = execute(task, timeline, training=make_training(device="cuda", **options))
    here = execute(task, timeline, training=make_training(device="cpu", **options))
    torch.testing.assert_close(there[0]["model"].cpu(), here[0]["model"], atol=1e-9, rtol=1e-9)


SENT: list[dict[str, Any]] = [
    *({"compression": {"up": {"name": name, **params}}} for name, params in EVERY),
    *(
        {"submodels": {"name": name, "rates": [1, 0.5], "by": "speed"}}
        for name in ("heterofl", "fedrolex", "fjord")
    ),
]


@pytest.mark.parametrize("server", SENT)
def test_what_is_sent_is_that_of_the_cpu(server: dict[str, Any], tmp_path: Path) -> None:
    """Compressions and submodels draw by key, so that both devices keep the same entries."""
    models = {}
    for device in ("cpu", "cuda"):
        training = {**digits()["training"], "dtype": "float64", "device": device}
        content = digits(training=training, stop={"rounds": 3})
        content["server"] = {**content["server"], **server}
        models[device] = fedsim.run(content, tmp_path / device).model()
    torch.testing.assert_close(models["cuda"], models["cpu"], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("method", [FedAvg, Remembering])
@pytest.mark.parametrize("model", ["linear", "mlp", "conv"])
def test_recorded_steps_have_the_bits_of_unrecorded_ones(
    model: str, method: type[Method], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.learning.kernels.replay._SIGHTINGS", 0)
    task, timeline = supervised_task(model), buffered(30)
    recorded = execute(task, timeline, training=make_training(device="cuda"), method=method)
    training = make_training(device="cuda", cuda_graphs=False)
    assert_same(recorded, execute(task, timeline, training=training, method=method))


def test_a_step_that_looks_at_values_ends_the_recording_or_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedsim.learning.kernels.replay._SIGHTINGS", 0)
    differentiate = VmapKernel.differentiate

    def look_at_values(kernel: VmapKernel, weights: Tensor, *others: Tensor) -> Tensor:
        assert float(weights[0, 0]) < 1e9
        return differentiate(kernel, weights, *others)

    monkeypatch.setattr(VmapKernel, "differentiate", look_at_values)
    task, timeline = supervised_task("conv"), buffered(4)
    with pytest.raises(UserError, match="cannot be recorded as a CUDA graph"):
        execute(task, timeline, training=make_training(device="cuda", cuda_graphs=True))
    # Nothing is left of the attempt, and by default the run goes on after it.
    expected = execute(task, timeline, training=make_training(device="cuda", cuda_graphs=False))
    assert_same(execute(task, timeline, training=make_training(device="cuda")), expected)


@pytest.mark.parametrize(("precision", "bound"), [("tf32", 1e-2), ("bfloat16", 3e-2)])
@pytest.mark.parametrize("model", ["mlp", "conv"])
def test_reduced_precision_stays_close(model: str, precision: str, bound: float) -> None:
    """Rounding of 11 or 8 significant bits moves the loss of the last model by less than ``bound`` of it."""
    task, timeline = supervised_task(model), buffered(60)
    exact = execute(task, timeline, training=make_training(device="cuda"))[1]
    reduced = execute(task, timeline, training=make_training(device="cuda", autocast=precision))[1]
    assert reduced[-1][1]["loss"] < reduced[0][1]["loss"]
    assert reduced[-1][1]["loss"] == pytest.approx(exact[-1][1]["loss"], rel=bound)
    assert reduced[-1][1]["loss"] != exact[-1][1]["loss"]


@pytest.mark.parametrize("graphs", ["auto", False])
def test_separate_clients_have_the_results_of_stacked_ones(
    graphs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.learning.kernels.replay._SIGHTINGS", 0)
    task, timeline = supervised_task("conv"), buffered(20)
    training = make_training(device="cuda", dtype="float64", cuda_graphs=graphs)
    stacked = execute(task, timeline, training=training)
    monkeypatch.setattr("fedsim.learning.kernels.vmap._SEPARATE_FLOPS", 0)
    separate = execute(task, timeline, training=training)
    torch.testing.assert_close(separate[0]["model"], stacked[0]["model"], atol=1e-9, rtol=1e-9)
    assert_same(separate, execute(task, timeline, training=training))


@pytest.mark.parametrize("model", ["mlp", "conv"])
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.learning.learner._CUDA_PENDING", 5)
    task, timeline = supervised_task(model), buffered(30)
    training = make_training(device="cuda")
    options: dict[str, Any] = {"training": training, "method": Remembering}
    checkpoints: list[Any] = []

    def save(learner: Learner) -> None:
        tensors, meta = learner.state()
        saved = {name: tensor.cpu() for name, tensor in tensors.items()}
        checkpoints.append((saved, json.loads(json.dumps(meta))))

    first = make_learner(task, **options, on_rest=save)
    timeline.play(first).close()
    assert len(checkpoints) > 4
    resumed = make_learner(task, **options, checkpoint=checkpoints[2])
    timeline.play(resumed).close()
    assert torch.equal(resumed.server["model"], first.server["model"])


@pytest.mark.parametrize("model", ["mlp", "conv"])
def test_two_waves_wait_for_the_device_once(model: str) -> None:
    """And the training data stay there."""
    task, timeline = supervised_task(model), Timeline()
    for _ in range(10):
        timeline.aggregate(*[timeline.dispatch(client, 4) for client in range(4)])
    learner = make_learner(task, make_training(device="cuda"))
    assert learner.station.samples is not None
    assert learner.station.samples.x.is_cuda
    calls = iter(timeline.calls)
    waits: list[list[str]] = []
    for name, argument in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            getattr(learner, name)(argument)
            if type(argument).__name__ == "Aggregate" and argument.version % 2 == 0:
                learner.flush()
                waits.append([str(w.filename) + f":{w.lineno}" for w in caught])
            torch.cuda.set_sync_debug_mode("default")
    # The first waves record their steps.
    assert [len(each) for each in waits[-2:]] == [1, 1], waits


def test_groups_that_do_not_fit_into_memory_are_halved() -> None:
    task, timeline = supervised_task("conv"), rounds(2, list(range(8)))
    expected = execute(task, timeline, training=make_training(device="cuda", dtype="float64"))
    training = make_training(device="cuda", dtype="float64", cuda_graphs=False)
    learner = make_learner(task, training)
    kernel = learner.station.kernel
    assert isinstance(kernel, VmapKernel)
    differentiate = kernel.differentiate

    def greedy(weights: Tensor, *others: Tensor) -> Tensor:
        torch.empty(len(weights), 1 << 30, dtype=torch.uint8, device="cuda")
        return differentiate(weights, *others)

    kernel.differentiate = greedy  # type: ignore[method-assign]
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    room = torch.cuda.memory_reserved() + (4 << 30)
    torch.cuda.set_per_process_memory_fraction(room / total)
    try:
        timeline.play(learner).close()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert learner.describe()["largest_group"].startswith("3 clients")  # type: ignore[union-attr]
    torch.testing.assert_close(learner.server["model"], expected[0]["model"], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_two_workers_of_one_device_give_the_bits_of_one(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.learning.workers.station._CUDA_SHARE_FLOPS", 1)
    task, timeline = supervised_task(model), buffered(30)
    training = make_training(device="cuda")
    execution = Execution.of(training)
    twice = replace(execution, others=(execution.device,))
    options: dict[str, Any] = {"training": training, "method": Remembering}
    assert_same(
        execute(task, timeline, **options, execution=twice), execute(task, timeline, **options)
    )


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")
@pytest.mark.parametrize("model", MODELS)
def test_all_devices_give_the_bits_of_one(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.learning.workers.station._CUDA_SHARE_FLOPS", 1)
    task, timeline = supervised_task(model), buffered(30)
    one = make_training(device="cuda")
    several = make_training(device="cuda", workers=DeviceWorkers(name="devices"))
    assert len(Execution.of(several).others) == torch.cuda.device_count() - 1
    assert_same(
        execute(task, timeline, training=several, method=Remembering),
        execute(task, timeline, training=one, method=Remembering),
    )
