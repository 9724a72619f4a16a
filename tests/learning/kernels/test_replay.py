"""Recordings of steps on an imitated CUDA device: when they are made, kept and given up, and their bits."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.errors import UserError
from fedsim.learning.kernels import VmapKernel
from fedsim.scenario.training import Augmentation
from tests.learning.imitation_cuda import (
    Graph,
    There,
    assert_same,
    imitated_cuda,
    launches,
    on_cpu,
    on_device,
)
from tests.learning.problems import (
    Remembering,
    Timeline,
    make_learner,
    make_training,
    supervised_task,
)
from tests.learning.timelines import buffered
from tests.learning.workers.cases import method_of, synchronous

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
TRAININGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "double": {"dtype": "float64"},
    "momentum and clipping": {
        "optimizer": {
            "name": "sgd",
            "lr": 0.1,
            "momentum": 0.9,
            "nesterov": True,
            "weight_decay": 0.01,
        },
        "clip_norm": 0.5,
    },
    "adam": {"optimizer": {"name": "adam", "lr": 0.01}},
    "augmented": {"augmentation": Augmentation(crop_padding=1, flip=True)},
    "memories in the host": {"memory": "host"},
}


@pytest.mark.parametrize(
    ("model", "way"), [*(("mlp", way) for way in TRAININGS), ("linear", "plain"), ("conv", "plain")]
)
def test_recorded_steps_have_the_bits_of_the_cpu(
    model: str, way: str, request: pytest.FixtureRequest
) -> None:
    task, timeline = supervised_task(model), buffered(10)
    stacked = {"executor": "stacked"} if model == "conv" else {}
    options: dict[str, Any] = {"method": Remembering if "memories" in way else method_of("fedavg")}
    expected = on_cpu(task, timeline, training=TRAININGS[way] | stacked, **options)
    request.getfixturevalue("cuda")
    before = Graph.made
    assert_same(on_device(task, timeline, training=TRAININGS[way], **options), expected)
    assert Graph.made > before
    if way != "plain":
        return
    unrecorded = {"cuda_graphs": False}
    recorded = Graph.made
    assert_same(on_device(task, timeline, training=unrecorded, **options), expected)
    assert Graph.made == recorded


def test_steps_that_come_once_or_twice_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    task = supervised_task("mlp")
    timeline = Timeline()
    for _ in range(2):
        timeline.aggregate(*[timeline.dispatch(client, 2) for client in range(3)])
    with imitated_cuda(monkeypatch):
        before = Graph.made
        on_device(task, timeline)
        assert Graph.made == before
        timeline.aggregate(*[timeline.dispatch(client, 2) for client in range(3)])
        on_device(task, timeline)
        # The steps, and the draw of their batches.
        assert Graph.made == before + 2


@pytest.mark.parametrize(("model", "operations"), [("linear", 200), ("mlp", 400)])
def test_a_round_is_two_graphs(
    model: str, operations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draw and all ten steps, of at most so many operations: samples, targets and losses are computed at once.

    Around them, a round launches a few more, whatever the numbers of clients and samples.
    """
    timeline, launched, counts = Timeline(), [], []
    replay = Graph.replay
    monkeypatch.setattr(Graph, "replay", lambda graph: (launched.append(graph), replay(graph)))
    with imitated_cuda(monkeypatch):
        monkeypatch.setattr("fedsim.learning.updates._ROWS_OF_A_PRODUCT", 64)
        learner = make_learner(supervised_task(model), make_training(device="cuda"))
        widths = learner.station.kernel.shape_class(np.arange(8))
        wide = np.flatnonzero(widths == widths.max()).tolist()
        for _ in range(6):
            timeline.aggregate(*[timeline.dispatch(client, 10) for client in wide])
        timeline.play(learner)
        train = learner._train

        def counted(wave: Any) -> None:
            before = launches[0]
            train(wave)
            counts.append(launches[0] - before)

        monkeypatch.setattr(learner, "_train", counted)
        learner.close()
    assert len(launched) == 2 * 4
    assert len(launched[1]._steps) <= operations
    assert counts[-1] <= 26


def test_waves_do_not_wait_for_the_device(cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of several rounds are read at once, after the last."""
    timeline, reads = Timeline(), []
    for _ in range(6):
        timeline.aggregate(*[timeline.dispatch(client, 2) for client in range(3)])
    learner = make_learner(supervised_task("mlp"), make_training(device="cuda"))
    timeline.play(learner)
    tolist = There.tolist

    def read(tensor: There) -> Any:
        reads.append(tensor)
        return tolist(tensor)

    monkeypatch.setattr(There, "tolist", read)
    learner.close()
    assert len(reads) == 1, reads


def test_a_step_that_cannot_be_recorded_ends_the_recording_or_the_run(
    cuda: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    differentiate = VmapKernel.differentiate

    def look_at_values(kernel: VmapKernel, weights: Tensor, *others: Tensor) -> Tensor:
        assert float(weights[0, 0]) < 1e9
        return differentiate(kernel, weights, *others)

    monkeypatch.setattr(VmapKernel, "differentiate", look_at_values)
    task, timeline = supervised_task("conv"), synchronous()
    with pytest.raises(UserError, match="cannot be recorded as a CUDA graph") as error:
        on_device(task, timeline, training={"cuda_graphs": True})
    assert error.value.where == "training.cuda_graphs"
    expected = on_device(task, timeline, training={"cuda_graphs": False})
    assert not caplog.messages
    # By default the run goes on, has the same result, and says so once.
    before = Graph.made
    assert_same(on_device(task, timeline), expected)
    # One was the first draw's, which can be recorded.
    assert Graph.made <= before + 2
    (message,) = caplog.messages
    assert message.startswith("CUDA graphs are off for the rest of the run: a local step cannot")
