"""Clients that train parts of the model: each method's aggregation, replayed entry by entry.

An entry moves by the weighted mean, over the clients that trained it, of their changes times the method's factors for
them. The tables state weights and factors by hand, as in the papers.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedsim.errors import UserError
from fedsim.learning.submodels.parts import Parts
from fedsim.methods.base import with_mixin
from fedsim.methods.mixins import InParts, refuse_whole
from fedsim.parts.catalog import CATALOG
from tests.methods.fakes import Written, make

Array = npt.NDArray[np.float64]

# -- one aggregation of every method ----------------------------------------------------------------------------------

# Four updates of clients 0 to 3 of six, of different ages, with 6, 4, 2 and 4 of the six entries.
POPULATION = [3, 1, 2, 5, 4, 1]
P = np.array(POPULATION[:4], dtype=np.float64)
M, STEPS, ASSIGNED = np.array([1, 1, 2, 1]), np.array([4, 1, 2, 8]), np.array([8, 2, 2, 8])
AGE, SIZES, ONE = np.array([0, 3, 1, 0]), np.array([6, 4, 2, 4]), np.ones(4)
CHANGES = np.arange(1.0, 25).reshape(4, 6) * (np.arange(6) < SIZES[:, None])
TRAINED = np.arange(6) < SIZES[:, None]
FULL = STEPS >= ASSIGNED
SAMPLES = M * P / (M @ P)
UNIFORM = M / M.sum()


def mean(weights: Array, factors: Array | float = 1.0) -> Array:
    """The total weight times the mean over those that trained an entry of their changes times their factors."""
    counted = np.where(TRAINED, weights[:, None], 0)
    sums = (counted * (factors * ONE)[:, None] * CHANGES).sum(0)
    held = counted.sum(0)
    return np.asarray(weights.sum() * np.divide(sums, held, out=np.zeros(6), where=held > 0))


def adaptive(change: Array, v: Callable[[float, Array], Array], rate: float = 0.001) -> Array:
    """The first step of an adaptive server: m = ``rate`` / server_lr x the change, v from tau^2."""
    return np.asarray(rate * change / (np.sqrt(v(1e-6, change**2)) + 1e-3))


def amsgrad(change: Array) -> Array:
    return np.asarray(0.01 * 0.1 * change / (np.sqrt(0.01 * change**2) + 1e-8))


TAU = SAMPLES @ STEPS
SHARES = M * P / sum(POPULATION)
STALE = (AGE + 1.0) ** -0.5

ORACLES: list[tuple[dict[str, Any], Array]] = [
    ({"name": "fedavg", "server_lr": 1.5}, 1.5 * mean(SAMPLES)),
    ({"name": "fedavg", "partial": "drop"}, mean(SAMPLES * FULL / (SAMPLES @ FULL))),
    ({"name": "fedavg", "partial": "zero"}, mean(SAMPLES, FULL * 1.0)),
    ({"name": "fedprox", "weights": "uniform"}, mean(UNIFORM)),
    ({"name": "fednova"}, mean(SAMPLES, TAU / STEPS)),
    ({"name": "fednova", "weights": "uniform"}, mean(UNIFORM, UNIFORM @ STEPS / STEPS)),
    (
        {"name": "fednova", "partial": "zero"},
        mean(SAMPLES, FULL / STEPS * ((SAMPLES * FULL) @ STEPS)),
    ),
    ({"name": "rescale"}, mean(SAMPLES, ASSIGNED / STEPS)),
    ({"name": "fedavgm", "server_lr": 0.5}, 0.5 * mean(SAMPLES)),
    ({"name": "diloco"}, 0.7 * 1.9 * mean(UNIFORM)),
    ({"name": "delayed_nesterov"}, 0.7 / 10 * mean(UNIFORM)),
    ({"name": "fedadagrad"}, adaptive(mean(SAMPLES), lambda v, d: v + d, 0.1)),
    ({"name": "fedadam"}, adaptive(mean(SAMPLES), lambda v, d: 0.99 * v + 0.01 * d)),
    ({"name": "fedyogi"}, adaptive(mean(SAMPLES), lambda v, d: v - 0.01 * d * np.sign(v - d))),
    ({"name": "fadas"}, amsgrad(mean(UNIFORM))),
    ({"name": "generalized_fedavg", "every_rounds": 1}, 10 * mean(UNIFORM)),
    ({"name": "wait", "weights": "samples"}, mean(SAMPLES)),
    ({"name": "fedbuff", "alpha": 0.8}, mean(UNIFORM, 0.8 * STALE)),
    ({"name": "fedbuff", "weights": "samples", "scale": "population"}, mean(SHARES, STALE)),
    ({"name": "fedasync", "form": "delta"}, mean(SHARES, 0.6 * STALE)),
    ({"name": "fedcompass"}, mean(SHARES, 0.9 * STALE)),
    ({"name": "fedcompass", "normalized": True}, mean(SHARES, 0.9 * STALE * TAU / STEPS)),
    ({"name": "rennala"}, mean(UNIFORM)),
    ({"name": "malenia"}, mean(ONE / 4)),
    ({"name": "mindflayer"}, mean(UNIFORM)),
    ({"name": "mindflayer", "expected": 10}, mean(M / 10)),
    ({"name": "ata"}, mean(M * STEPS / (M @ STEPS))),
    # They add changes, so that nobody's counts for entries of others.
    ({"name": "ringmaster"}, M @ CHANGES),
    (
        {"name": "async_sgd", "staleness": {"name": "reciprocal", "delay": 1}},
        (M * np.array([1, 1 / 3, 1, 1])) @ CHANGES,
    ),
]


def parts_of_six() -> Parts:
    def task(size: int) -> Any:
        return SimpleNamespace(layout=SimpleNamespace(size=size, trainable=size), class_masks=None)

    parts = object.__new__(Parts)
    parts.level, parts.whole = np.array([0, 1, 2, 1, 0, 0]), task(6)
    parts.tasks = [task(6), task(4), task(2)]
    parts.submodels = SimpleNamespace(moves=False, static_statistics=False)  # type: ignore[assignment]
    parts._positions = lambda level, *_: torch.arange(6 - 2 * level)  # type: ignore[assignment]
    return parts


def moved_by(given: Mapping[str, Any], changes: Array, buffers: int = 0) -> Array:
    """What a method makes of zeros by these changes of six entries, of which the last are values of buffers, then 9."""
    whole = make(given, POPULATION, elements=6 - buffers, buffers=buffers)
    kind = with_mixin(type(whole), InParts, parts=parts_of_six())
    method = kind(whole.params, whole.context)
    updates = Written(
        {"delta": changes.tolist()},
        version=5,
        samples=P.astype(int).tolist(),
        steps=STEPS.tolist(),
        steps_assigned=ASSIGNED.tolist(),
        staleness=AGE.tolist(),
        multiplicity=M.tolist(),
        versions=(4 - AGE).tolist(),
    )
    start = torch.zeros(6, dtype=torch.float64)
    start[6 - buffers :] = 9
    after = method.aggregate(method.initial_state(start), updates)["model"]
    return np.asarray(after.numpy())


@pytest.mark.parametrize(("given", "expected"), ORACLES, ids=lambda given: str(given)[:60])
def test_an_entry_moves_by_those_that_trained_it(given: dict[str, Any], expected: Array) -> None:
    np.testing.assert_allclose(moved_by(given, CHANGES), expected, rtol=1e-12)


@pytest.mark.parametrize("given", [given for given, _ in ORACLES], ids=str)
@pytest.mark.parametrize("of_first", [5.0, 0.0])
def test_buffers_are_those_of_the_clients_that_have_them(
    given: dict[str, Any], of_first: float
) -> None:
    """Client 0 alone has all six entries. Its update is partial; if such updates do not count, its buffers stay."""
    changes = np.where(np.arange(6) < 4, CHANGES, of_first) * TRAINED
    expected = 9.0 if "partial" in given else of_first
    np.testing.assert_allclose(moved_by(given, changes, buffers=2)[4:], expected, rtol=1e-12)


def test_the_table_has_every_method_that_works_with_submodels() -> None:
    working = set()
    for name, kind in CATALOG.parts("method").items():
        try:
            refuse_whole(make({"name": name}, [1, 1]))
        except UserError:
            continue
        # The server of adapters combines them as its paper says.
        working.update([] if kind.needs_adapters else [name])
    assert working | {"fedasync"} == {given["name"] for given, _ in ORACLES}
