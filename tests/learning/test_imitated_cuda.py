"""CUDA without a CUDA device: all that runs is on the device, recordings wait for nothing, the bits are the CPU's.

The device is an imitation, see :mod:`tests.learning.imitation_cuda`; :mod:`tests.learning.test_cuda` needs a real one.
"""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import fedsim
from fedsim.learning.device import Execution, uploaded
from fedsim.learning.kernels import LinearStackKernel
from fedsim.learning.learner import Learner
from fedsim.learning.server_side import ServerSide
from fedsim.parts.catalog import CATALOG
from tests.composition.worlds import digits
from tests.learning.imitation_cuda import CUDA, Graph, There, assert_same, home, on_cpu, on_device
from tests.learning.problems import Remembering, make_learner, make_training, supervised_task
from tests.learning.test_cuda import SENT
from tests.learning.timelines import buffered, execute, rounds
from tests.learning.workers.cases import method_of, synchronous

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@pytest.mark.parametrize("name", CATALOG.parts("method"))
def test_every_method_stays_on_the_device(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it goes on from a checkpoint on the way."""
    # On a CPU, the kernel would apply corrections itself, with another rounding.
    monkeypatch.setattr(LinearStackKernel, "corrects", False)
    task, timeline, method = supervised_task("mlp", own_test=True), synchronous(), method_of(name)
    params = method.Params.model_validate({})
    options: dict[str, Any] = {"method": method, "params": params, "per_client": True}
    expected = on_cpu(task, timeline, **options)
    request.getfixturevalue("cuda")
    options["training"] = make_training(device="cuda")
    half = timeline.play(make_learner(task, **options), until=len(timeline.calls) // 2)
    half.flush()
    tensors, meta = half.state()
    saved = {name: t.inner if isinstance(t, There) else t for name, t in tensors.items()}
    rows: list[Any] = []
    resumed = make_learner(
        task,
        **options,
        on_metrics=lambda what, metrics: rows.append((what.version, dict(metrics))),
        checkpoint=(saved, json.loads(json.dumps(meta))),
    )
    timeline.play(resumed).close()
    state = dict(resumed.server) | {f"memory/{k}": v for k, v in resumed.store.tensors().items()}
    assert_same(home((state, rows)), expected)


def test_a_module_with_batch_statistics(request: pytest.FixtureRequest) -> None:
    """One client after the other there too; images lie otherwise in memory, which changes the last bit."""
    task, timeline = supervised_task("batch_norm"), buffered(10)
    expected = on_cpu(task, timeline)[0]["model"]
    request.getfixturevalue("cuda")
    torch.testing.assert_close(on_device(task, timeline)[0]["model"], expected)


def test_clients_of_a_large_model_train_one_by_one(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded, too: the bits are those of the CPU, where the module is differentiated in the same way."""
    task, timeline = supervised_task("conv"), buffered(10)
    expected = on_cpu(task, timeline)[0]["model"]
    monkeypatch.setattr("fedsim.learning.kernels.vmap._SEPARATE_FLOPS", 0)
    request.getfixturevalue("cuda")
    made = Graph.made
    state = on_device(task, timeline)
    assert Graph.made > made
    torch.testing.assert_close(state[0]["model"], expected)


def test_groups_that_do_not_fit_into_memory_are_halved(
    cuda: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, timeline = supervised_task("mlp"), rounds(3, list(range(8)))
    training = make_training(device="cuda")
    options: dict[str, Any] = {"training": training, "method": Remembering}
    expected = home(execute(task, timeline, **options))
    descend = LinearStackKernel.differentiate
    attempts = []

    def limited(kernel: LinearStackKernel, weights: Tensor, *others: Tensor) -> Tensor:
        attempts.append(len(weights))
        if len(weights) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return descend(kernel, weights, *others)

    monkeypatch.setattr(LinearStackKernel, "differentiate", limited)
    learner = make_learner(task, **options)
    timeline.play(learner).close()
    state = dict(learner.server) | {f"memory/{k}": v for k, v in learner.store.tensors().items()}
    assert_same(home((state, [])), (expected[0], []))
    # Six clients have wide mini-batches, two narrow ones.
    # Its first attempt was to be recorded.
    assert [size for size in attempts if size > 3] == [6, 6]
    assert str(learner.describe()["largest_group"]).startswith("3 clients")


def test_samples_that_do_not_fit_stay_in_the_host(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.learning.samples._cuda_room", lambda device: 0)
    monkeypatch.setattr("fedsim.learning.samples._CONVERTED_BYTES", 0)
    task, timeline = supervised_task("mlp"), synchronous()
    expected = on_cpu(task, timeline)
    request.getfixturevalue("cuda")
    assert_same(on_device(task, timeline), expected)


@pytest.mark.parametrize("model", ["mlp", "conv"])
def test_two_devices_have_the_bits_of_one(
    model: str, cuda: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.learning.workers.station._CUDA_SHARE_FLOPS", 1)
    task, timeline = supervised_task(model), buffered(12)
    one = make_training(device="cuda")
    twice = replace(Execution.of(one), others=(CUDA,))
    # Modes are a thread's own, so that one thread must do for both devices.
    monkeypatch.setattr("fedsim.learning.workers.local.Pool.map", lambda pool, *work: map(*work))
    expected = home(execute(task, timeline, training=one, method=Remembering))
    spread = execute(task, timeline, training=one, method=Remembering, execution=twice)
    assert_same(home(spread), expected)


@pytest.mark.parametrize(("model", "numbers"), [("mlp", 4 * 1617), ("conv", 4 * 275)])
def test_groups_take_a_quarter_of_the_memory(
    model: str, numbers: int, cuda: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four rows a client, and with automatic differentiation twice the activations of 16 samples."""
    task = supervised_task(model)
    if model == "conv":
        numbers += 2 * 16 * task.activations_per_sample()
    kernel = make_learner(task, make_training(device="cuda")).station.kernel
    for clients in (0.5, 1, 7, 7.9):
        memory = SimpleNamespace(total_memory=int(clients * 4 * numbers * 4))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, m=memory: m)
        assert kernel.largest_group() == max(1, int(clients))


COMBINED = (
    *(
        "async_sgd",
        "ata",
        "ditto",
        "fedasync",
        "fedavg",
        "fedbuff",
        "fedcompass",
        "fedlga",
        "fednova",
    ),
    *("fedprox", "malenia", "mindflayer", "rennala", "rescale", "ringmaster", "wait"),
)
ONE_BY_ONE = ("fedadam", "fedau", "fedavg_p", "fedper", "ringleader", "scaffold")


@pytest.mark.parametrize("name", [*COMBINED, *ONE_BY_ONE])
def test_versions_in_a_row_are_made_by_one_product(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of up to three updates, and as on the CPU; methods that do more with vectors than add multiples go one by one."""
    task, timeline, method = supervised_task("mlp"), buffered(12, buffer=1), method_of(name)
    params = method.Params.model_validate({})
    options: dict[str, Any] = {"method": method, "params": params}
    options["training"] = {"dtype": "float64"}
    expected = on_cpu(task, timeline, **options)
    request.getfixturevalue("cuda")
    monkeypatch.setattr("fedsim.learning.updates._ROWS_OF_A_PRODUCT", 3)
    sizes, combined = [], ServerSide.combined

    def counted(side: ServerSide, instructions: Any, trains: Any) -> Any:
        states = combined(side, instructions, trains)
        sizes.append(len(instructions) if states[0] else 1)
        return states

    monkeypatch.setattr(ServerSide, "combined", counted)
    tensors, rows = on_device(task, timeline, **options)
    assert max(sizes) == (3 if name in COMBINED else 1)
    torch.testing.assert_close(tensors["model"], expected[0]["model"], atol=1e-9, rtol=1e-9)
    for (version, metrics), (same, values) in zip(rows, expected[1], strict=True):
        assert version == same
        assert metrics == pytest.approx(values, rel=1e-6)


def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(
    cuda: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although products round otherwise than single versions: which versions are one follows from the timeline."""
    monkeypatch.setattr("fedsim.learning.updates._ROWS_OF_A_PRODUCT", 3)
    monkeypatch.setattr("fedsim.learning.learner._CUDA_PENDING", 8)
    method, timeline = method_of("fedasync"), buffered(24, buffer=1)
    options: dict[str, Any] = {"method": method, "params": method.Params.model_validate({})}
    options["training"] = make_training(device="cuda")
    task = supervised_task("mlp")
    saved: list[Any] = []

    def save(learner: Learner) -> None:
        tensors, meta = learner.state()
        copies = {n: (t.inner if isinstance(t, There) else t).clone() for n, t in tensors.items()}
        saved.append((copies, json.loads(json.dumps(meta))))

    whole = timeline.play(make_learner(task, on_rest=save, **options))
    whole.close()
    assert len(saved) > 2
    for checkpoint in saved[:-1]:
        resumed = timeline.play(make_learner(task, checkpoint=checkpoint, **options))
        resumed.close()
        assert_same(home((dict(resumed.server), [])), home((dict(whole.server), [])))


def test_updates_are_summed_by_products(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three at a time, up to rounding those of the CPU, and in full precision if training has less."""
    task, timeline = supervised_task("mlp"), rounds(3, list(range(8)))
    expected = on_cpu(task, timeline)
    request.getfixturevalue("cuda")
    precisions: list[str] = []

    def noted(*given: Any) -> Tensor:
        precisions.append(torch.get_float32_matmul_precision())
        return uploaded(*given)

    monkeypatch.setattr("fedsim.learning.updates._ROWS_OF_A_PRODUCT", 3)
    monkeypatch.setattr("fedsim.learning.updates.uploaded", noted)
    state = on_device(task, timeline, training={"autocast": "tf32"})[0]
    torch.testing.assert_close(state["model"], expected[0]["model"])
    assert precisions == 9 * ["highest"]


@pytest.mark.parametrize("server", SENT)
def test_what_is_sent_is_that_of_the_cpu(
    server: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A whole run, with compressed uploads or parts of the model, recorded."""
    models = {}
    for device in ("cpu", "cuda"):
        if device == "cuda":
            request.getfixturevalue("cuda")
        training = {**digits()["training"], "dtype": "float64", "device": device}
        content = digits(training=training, stop={"rounds": 3})
        content["server"] = {**content["server"], **server}
        models[device] = fedsim.run(content, tmp_path / device).model()
    torch.testing.assert_close(models["cuda"], models["cpu"], atol=1e-9, rtol=1e-9)
