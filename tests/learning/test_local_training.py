"""Local training against torch.optim and hand-worked numbers, and what rules see."""

from typing import Any

import numpy as np
import pytest
import torch

from fedsim.learning.device import Execution
from fedsim.methods.base import Cohort, Corrected, Step
from fedsim.randomness import Purpose, Stream
from tests.learning.problems import (
    F64,
    SEED,
    descended,
    make_cohort,
    make_trainer,
    make_training,
    quadratic_task,
    supervised_task,
    train,
)


@pytest.mark.parametrize("optimizer", [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.9}, "adam"])
@pytest.mark.parametrize("model", ["mlp", "conv"])
def test_every_client_does_its_own_number_of_steps(model: str, optimizer: Any) -> None:
    """Clients of a group end at different steps; each is bitwise where it would be alone."""
    task = supervised_task(model, sizes=(50,) * 5)
    training = make_training(optimizer=optimizer)
    steps = [9, 5, 5, 1, 0]
    rates = [0.1, 0.05, 0.2, 0.1, 0.3]
    collect = ("mean_gradient",)
    start, together = train(task, training, [0, 1, 2, 3, 4], steps, rates, collect=collect)
    assert together.mean_gradient is not None
    for client in range(4):
        _, alone = train(
            task, training, [client], [steps[client]], [rates[client]], collect=collect
        )
        assert torch.equal(together.model[client], alone.model[0])
        assert torch.equal(together.mean_gradient[client], alone.mean_gradient[0])  # type: ignore[index]
        assert torch.equal(together.loss[client], alone.loss[0])
    assert torch.equal(together.model[4], start)
    assert (together.mean_gradient[4] == 0).all()


def test_unsorted_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="sorted"):
        train(quadratic_task(), make_training(dtype="float64"), [0, 1], [1, 2])


QUADRATIC = make_training(dtype="float64", optimizer={"name": "sgd", "lr": 0.5})


def test_steps_on_a_quadratic_by_hand() -> None:
    """Client 0: gradient diag(1, 2) (x - (1, 0)) from (4, -4) at rate 0.5."""
    start, trained = train(quadratic_task(), QUADRATIC, [0], [2], 0.5, collect=("mean_gradient",))
    # (4, -4): gradient (3, -8), then (2.5, 0): gradient (1.5, 0), then (1.75, 0).
    assert trained.model.tolist() == [[1.75, 0.0]]
    assert trained.mean_gradient is not None
    assert trained.mean_gradient.tolist() == [[2.25, -4.0]]
    assert trained.loss.tolist() == [(0.5 * (9 + 2 * 16) + 0.5 * 2.25) / 2]
    assert start.tolist() == [4.0, -4.0]


@pytest.mark.parametrize(
    ("steps", "options", "models"),
    [
        # All gradients are at the start.
        (3, {"move": False}, [[4.0, -4.0], [4.0, -4.0]]),
        # A rate per parameter.
        (1, {"learning_rate_scale": torch.tensor([1.0, 0.0], dtype=F64)}, [[2.5, -4.0], [3, -4]]),
        # A number of steps of the phase.
        (2, {"steps": np.array([2, 0])}, [[1.75, 0.0], [4.0, -4.0]]),
    ],
)
def test_options_of_a_phase(steps: int, options: dict[str, Any], models: list[Any]) -> None:
    collect = ("mean_gradient",)
    _, trained = train(
        quadratic_task(), QUADRATIC, [0, 1], [steps] * 2, 0.5, collect=collect, **options
    )
    assert trained.model.tolist() == models
    assert trained.mean_gradient is not None
    expected = [2.25, -4.0] if "steps" in options else [3.0, -8.0]
    assert trained.mean_gradient[0].tolist() == expected


def test_a_rule_sees_the_step_and_changes_the_direction() -> None:
    seen: list[tuple[int, slice, list[float], list[float]]] = []

    def rule(step: Step) -> None:
        gradient, weights = step.gradient[0].tolist(), step.weights[0].tolist()
        seen.append((step.index, step.rows, gradient, weights))
        step.gradient.zero_()
        step.gradient[:, 0] = 1.0

    _, trained = train(
        quadratic_task(), QUADRATIC, [0, 1], [2, 1], 0.5, rule=rule, collect=("mean_gradient",)
    )
    assert trained.model.tolist() == [[3.0, -4.0], [3.5, -4.0]]
    assert seen == [
        (0, slice(0, 2), [3.0, -8.0], [4.0, -4.0]),
        (1, slice(0, 1), [2.5, -8.0], [3.5, -4.0]),
    ]
    assert trained.mean_gradient is not None
    # Collected before the rule.
    assert trained.mean_gradient[0].tolist() == [2.75, -8.0]


def test_buffers_move_by_the_forward_pass_alone() -> None:
    """Neither a rule nor weight decay reaches the running statistics."""
    task = supervised_task("batch_norm")
    buffers = slice(task.layout.trainable, task.layout.size)

    def rule(step: Step) -> None:
        step.gradient.add_(1.0)

    training = make_training(optimizer={"name": "adamw", "weight_decay": 0.5})
    start, plain = train(task, make_training(), [3], [1])
    _, ruled = train(task, training, [3], [1], rule=rule, collect=("mean_gradient",))
    assert not torch.equal(plain.model[0, buffers], start[buffers])
    assert torch.equal(plain.model[0, buffers], ruled.model[0, buffers])
    _, longer = train(task, training, [3], [3], rule=rule, collect=("mean_gradient",))
    assert longer.mean_gradient is not None
    assert (longer.mean_gradient[0, buffers] == 0).all()


def test_results_are_new_tensors() -> None:
    """A method may change what it got, and train again."""
    task = quadratic_task()
    trainer = make_trainer(task, QUADRATIC)
    start = torch.tensor([4.0, -4.0], dtype=F64)
    cohort: Cohort = make_cohort(Execution.of(QUADRATIC), start, [0], [1], 0.5)
    first = trainer.run(cohort, cohort.down["model"], collect=("mean_gradient",))
    copies = first.model.clone(), first.mean_gradient.clone()  # type: ignore[union-attr]
    trainer.run(cohort, first.model, collect=("mean_gradient",))
    assert torch.equal(first.model, copies[0])
    assert torch.equal(first.mean_gradient, copies[1])  # type: ignore[arg-type]


def test_root_mean_squared_losses_by_hand() -> None:
    """f(x) = x^2 / 2 from 4 with rate 0.5: losses 8, 2 and 0.5."""
    task = quadratic_task(centers=[[0.0]], curvatures=1.0, initial=[4.0], samples=[1])
    training = make_training(dtype="float64", threads=1)
    start = task.initial(Stream(SEED, Purpose.INITIAL_MODEL), F64)
    cohort = make_cohort(Execution.of(training), start, [0], [3], 0.5)
    trainer = make_trainer(task, training, dispatch_loss="root_mean_square")
    trained = trainer.run(cohort, cohort.down["model"])
    assert trained.loss.tolist() == pytest.approx([np.sqrt((64 + 4 + 0.25) / 3)], rel=1e-15)


@pytest.mark.parametrize("clip_norm", [None, 1e9], ids=["fused", "step by step"])
@pytest.mark.parametrize("executor", ["auto", "plain", "stacked"])
@pytest.mark.parametrize("model", ["linear", "conv"])
def test_root_mean_squared_losses_weigh_samples_equally(
    model: str, executor: str, clip_norm: float | None
) -> None:
    """Batches of 16 and 4 per epoch: 20 + 16 losses, each at the model before its step."""
    task = supervised_task(model)
    training = make_training(executor=executor, clip_norm=clip_norm, dtype="float64", threads=1)
    start = task.initial(Stream(SEED, Purpose.INITIAL_MODEL), F64)
    cohort = make_cohort(Execution.of(training), start, [0], [3])
    _, steps = descended(task, 0, 3, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    losses = torch.cat(steps).tolist()
    assert len(losses) == 36
    trained = make_trainer(task, training, dispatch_loss="root_mean_square").run(
        cohort, cohort.down["model"]
    )
    expected = np.sqrt(np.mean(np.square(losses)))
    assert trained.loss.tolist() == pytest.approx([expected], rel=1e-12)


@pytest.mark.parametrize(
    ("model", "single_bytes"),
    [("linear", 0), ("linear", 1 << 20), ("mlp", 0), ("mlp", 1 << 20), ("layers", 0)],
)
@pytest.mark.parametrize(
    ("pull", "constant", "divisor"), [(0.3, False, 1.0), (0.3, True, 2.0), (0.0, True, 3.0)]
)
def test_a_known_correction_is_the_function_that_does_the_same(
    pull: float,
    constant: bool,
    divisor: float,
    model: str,
    single_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kernels apply corrections that they know; a trainer cannot know what a function does.

    One of the rates is 0, as at the end of a decay: its client stays, and has gradients.
    """
    monkeypatch.setattr("fedsim.learning.kernels.linear_stack._SINGLE_BYTES", single_bytes)
    task, training = supervised_task(model), make_training(dtype="float64")
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(2, 3, task.layout.size, generator=generator, dtype=F64)
    rule = Corrected(vectors[0] if constant else None, pull, vectors[1], divisor)
    collect = () if pull else ("mean_gradient",)
    known, plain = (
        train(task, training, [0, 1, 2], [7, 5, 2], [0.1, 0.0, 0.3], rule=given, collect=collect)[1]
        for given in (rule, lambda step: rule(step))
    )
    torch.testing.assert_close(known.model, plain.model)
    torch.testing.assert_close(known.loss, plain.loss)
    if not pull:
        torch.testing.assert_close(known.mean_gradient, plain.mean_gradient)
