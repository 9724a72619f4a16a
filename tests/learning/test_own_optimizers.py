"""An optimizer of the user's whose rows depend on one another is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedsim
from fedsim.errors import UserError
from fedsim.learning.optimizers import Optimizer, OptimizerParams
from fedsim.learning.optimizers.adam import Adam, AdamW
from fedsim.learning.optimizers.sgd import Sgd
from fedsim.learning.own_optimizers import refuse_mixed_rows

LIKE = torch.zeros(5, 300)


class Own(Optimizer):
    """Steps of a length that subclasses choose."""

    def step(
        self, weights: Tensor, direction: Tensor, rates: Tensor, moved: Tensor | None = None
    ) -> None:
        target = weights if moved is None else moved
        target.sub_(rates * direction / self.length(weights, direction))

    def length(self, weights: Tensor, direction: Tensor) -> Tensor:
        return direction.norm(dim=1, keepdim=True)


class Signs(Own):
    def length(self, weights: Tensor, direction: Tensor) -> Tensor:
        return direction.abs()


class TrustRatio(Own):
    def length(self, weights: Tensor, direction: Tensor) -> Tensor:
        return direction.norm(dim=1, keepdim=True) / weights.norm(dim=1, keepdim=True)


class OfAll(Own):
    def length(self, weights: Tensor, direction: Tensor) -> Tensor:
        return direction.norm()


class OfTheFirst(Own):
    def length(self, weights: Tensor, direction: Tensor) -> Tensor:
        return direction[0].norm()


class OfTheWeights(Own):
    def length(self, weights: Tensor, direction: Tensor) -> Tensor:
        return weights.abs().max()


class OneRate(Own):
    def length(self, weights: Tensor, direction: Tensor) -> Tensor:
        return torch.tensor(1.0)

    def step(
        self, weights: Tensor, direction: Tensor, rates: Tensor, moved: Tensor | None = None
    ) -> None:
        super().step(weights, direction, rates[:1], moved)


@pytest.mark.parametrize("kind", [Own, Signs, TrustRatio])
@pytest.mark.parametrize("like", [LIKE, LIKE.double(), LIKE[:, :1]], ids=["f32", "f64", "one"])
def test_independent_rows(kind: type[Optimizer], like: Tensor) -> None:
    refuse_mixed_rows(lambda: kind(OptimizerParams()), like)


@pytest.mark.parametrize("kind", [OfAll, OfTheFirst, OfTheWeights, OneRate])
def test_rows_that_depend_on_one_another(kind: type[Optimizer]) -> None:
    with pytest.raises(
        UserError, match=rf"{kind.__name__}\.step: computes rows that depend on one"
    ):
        refuse_mixed_rows(lambda: kind(OptimizerParams()), LIKE)


@pytest.mark.parametrize(
    ("kind", "values"),
    [(Sgd, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), (Adam, {}), (AdamW, {})],
)
def test_no_optimizer_of_fedsim_would_be_refused(
    kind: type[Optimizer], values: dict[str, Any]
) -> None:
    refuse_mixed_rows(lambda: kind(kind.Params(**values)), LIKE)


def run_with(tmp_path: Path, body: str, centers: str = "[[1, 2], [3, 4]]") -> None:
    """Run a scenario whose optimizer ``Own`` has this body."""
    (tmp_path / "opt.py").write_text(
        "import torch\nfrom fedsim.learning.optimizers import Optimizer\n\n\n"
        f"class Own(Optimizer):\n    {body}\n"
    )
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        f"task: {{name: quadratic, centers: {centers}}}\n"
        "training: {optimizer: 'opt.py:Own', local_steps: 2}\n"
        "devices: {compute: {name: values, step: 1s}, network: {down: 1Mbps, up: 1Mbps, latency: 0}}\n"
        "stop: {rounds: 2}\n"
    )
    fedsim.run(scenario, tmp_path / "run")


STEP = "def step(self, weights, direction, rates, moved=None):"


@pytest.mark.parametrize(
    "subtracted",
    ["direction / direction.norm()", "(direction - direction.mean(dim=0))"],
)
@pytest.mark.parametrize("centers", ["[[1, 2], [3, 4]]", "[[1, 2]]"], ids=["two", "one"])
def test_a_run_with_such_an_optimizer(tmp_path: Path, subtracted: str, centers: str) -> None:
    """With one client, a mean over rows leaves the weights unchanged, which is not the cause."""
    with pytest.raises(
        UserError, match=r"opt\.py:\d+: Own\.step: computes rows that depend on one"
    ):
        run_with(tmp_path, f"{STEP} weights.sub_(rates * {subtracted})", centers)


def test_an_optimizer_that_does_not_change_the_weights(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Own\.step: returns without having changed the weights"):
        run_with(tmp_path, f"{STEP} weights = weights - rates * direction")


def test_an_optimizer_that_draws_from_a_global_generator_is_named(tmp_path: Path) -> None:
    """The method that calls it has nothing to do with it."""
    noise = "torch.randn_like(direction)"
    with pytest.raises(
        UserError, match=r"opt\.py:\d+: Own\.step: draws from or seeds the .* of torch, so"
    ) as caught:
        run_with(tmp_path, f"{STEP} weights.sub_(rates * (direction + {noise}))")
    assert "in a method of your own" in str(caught.value.hint)


def test_an_optimizer_with_state_in_its_class_is_refused(tmp_path: Path) -> None:
    step = f"sq = 0.0\n    {STEP}\n        Own.sq = 0.9 * Own.sq + 0.1 * direction**2\n"
    with pytest.raises(
        UserError, match=r"opt\.py:\d+: Own\.step: changes the attribute sq of the class Own"
    ) as caught:
        run_with(tmp_path, step + "        weights.sub_(rates * direction / (Own.sq + 1).sqrt())")
    assert "self.squares" in str(caught.value.hint)
