"""Quadratic tasks, whose gradients are known exactly: for verification, and worked examples with exact iterates."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.parts.parameters import Parameters
from fedsim.randomness import Stream
from fedsim.tasks.base import AnalyticTask, SizedParams, TaskContext, as_tensor
from fedsim.tasks.layout import Layout
from fedsim.vocabulary.arrays import Array, Floats, Ints

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_STEPS = 1 << 24


class NoiseEntry(Parameters):
    """The gradient noise of one local step."""

    client: int = Field(ge=0)
    """Client that takes the step."""
    sequence: int = Field(ge=0)
    """Number of earlier dispatches of the client."""
    step: int = Field(ge=0)
    """Number of the local step in its dispatch, from 0."""
    noise: list[float]
    """Vector (d,) added to the gradient."""


class QuadraticTask(AnalyticTask):
    """Clients with quadratic objectives f_i(x) = 0.5 (x - b_i)^T A_i (x - b_i) + s_i^T x.

    Metrics are computed in float64, models are of ``training.dtype``. With ``noise_std`` 0 gradients are exact up to
    rounding, and exact if the numbers are dyadic.
    """

    name = "quadratic"

    class Params(SizedParams):
        """Client i minimizes f_i(x) = 0.5 (x - b_i)^T A_i (x - b_i) + s_i^T x."""

        centers: list[float] | list[list[float]] | None = None
        """Centers b_i: a list of N vectors, or of N numbers if there is one dimension. Zero if only slopes are
        given."""
        curvatures: float | list[float] | list[list[float]] | list[list[list[float]]] | None = None
        """Curvatures A_i: one number for all, N numbers, N diagonals, or N symmetric matrices. 1 if centers are
        given, else 0."""
        slopes: list[float] | list[list[float]] | None = None
        """Slopes s_i: N vectors (or numbers) for linear objectives; by default zero."""
        noise_std: float | list[float] = 0.0
        """Standard deviation of normal noise added to every gradient: one number, or one per dimension."""
        noise_tape: list[NoiseEntry] = []
        """Explicit noise, added to the gradients of exactly these steps."""
        initial: float | list[float] = 0.0
        """Initial model: one number for all dimensions, or a vector."""
        names: dict[str, int] = {}
        """Named blocks of the vector with their lengths, in order, so that some may be personal; by default one block
        x."""
        samples: list[int] | None = None
        """Number of samples of each client, for methods that weight by it; by default 1."""

    model_family = "quadratic"

    def __init__(self, params: Params) -> None:
        self.params = params
        self.size_bytes = params.size
        centers, slopes = (_rows(getattr(params, name), name) for name in ("centers", "slopes"))
        given = centers if centers is not None else slopes
        if given is None:
            raise _wrong("it needs centers or slopes")
        clients, size = given.shape
        if slopes is not None and slopes.shape != given.shape:
            raise _wrong(f"centers have shape {given.shape}, but slopes {slopes.shape}")
        self._centers = np.zeros_like(given) if centers is None else centers
        self._slopes = np.zeros_like(given) if slopes is None else slopes
        default = 0.0 if centers is None else 1.0
        curvatures = default if params.curvatures is None else params.curvatures
        self._curvatures = _curvatures(curvatures, clients, size)
        self._noise_std = _vector(params.noise_std, size, "noise_std")
        self._start = _vector(params.initial, size, "initial")
        names = params.names or {"x": size}
        samples = [1] * clients if params.samples is None else params.samples
        entries = params.noise_tape
        self._tape = {(one.client, one.sequence, one.step): np.array(one.noise) for one in entries}
        for holds, message in (
            ((self._noise_std >= 0).all(), "noise_std is negative"),
            (
                min(names.values()) > 0 and sum(names.values()) == size,
                f"the lengths of the named blocks must be positive and add up to {size}",
            ),
            (
                len(samples) == clients and min(samples) > 0,
                f"samples must be {clients} numbers of at least 1",
            ),
            (
                all(one.client < clients and len(one.noise) == size for one in entries),
                f"an entry of noise_tape needs a client below {clients} and {size} values",
            ),
            (
                len(self._tape) == len(entries),
                "two entries of noise_tape have the same client, sequence and step",
            ),
        ):
            if not holds:
                raise _wrong(message)
        self.layout = Layout.of((name, (length,)) for name, length in names.items())
        self.samples = np.array(samples, dtype=np.int64)
        self._latest: tuple[Any, tuple[Tensor, Tensor, Tensor]] | None = None

    @classmethod
    def build(cls, params: Params, context: TaskContext) -> QuadraticTask:
        return cls(params)

    @cached_property
    def _objectives(self) -> tuple[Tensor, Tensor, Tensor]:
        """b_i (N, d), the diagonals (N, d) or matrices (N, d, d) A_i, and s_i (N, d); float64."""
        return as_tensor(self._centers), as_tensor(self._curvatures), as_tensor(self._slopes)

    def initial(self, stream: Stream, dtype: torch.dtype | None = None) -> Tensor:
        """The initial model of the parameters, in float64 if ``dtype`` is None; ``stream`` is not used."""
        start = as_tensor(self._start)
        return start if dtype is None else start.to(dtype)

    def activations_per_sample(self) -> int:
        return 0

    def flops_per_sample(self, frozen: Collection[str] = ()) -> int:
        return 2 * int(self._curvatures[0].size) + 2 * self.layout.size

    def gradients(self, clients: Ints, points: Tensor) -> Tensor:
        centers, curvatures, slopes = self._of(clients, points)
        return _curve(curvatures, points - centers) + slopes

    def losses(self, clients: Ints, points: Tensor) -> Tensor:
        centers, curvatures, slopes = self._of(clients, points)
        distance = points - centers
        curved = _curve(curvatures, distance)
        return 0.5 * (distance * curved).sum(-1) + (slopes * points).sum(-1)

    def _of(self, clients: Ints, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Centers, curvatures and slopes of these clients, with device and precision of ``points``.

        Those of the latest call are kept: local steps follow each other with the same clients.
        """
        import torch

        key, latest = (clients.tobytes(), points.dtype, points.device), self._latest
        if latest is None or latest[0] != key:
            rows = torch.as_tensor(clients)
            centers, curvatures, slopes = (value[rows].to(points) for value in self._objectives)
            self._latest = latest = key, (centers, curvatures, slopes)
        return latest[1]

    @property
    def noisy(self) -> bool:
        return bool(self._tape) or bool((self._noise_std > 0).any())

    def noise(self, stream: Stream, clients: Ints, sequences: Ints, step: int) -> Tensor:
        size = self.layout.size
        result = np.zeros((len(clients), size))
        if (self._noise_std > 0).any():
            draws = (sequences[:, None] * _STEPS + step) * size + np.arange(size)
            result += stream.normals(clients[:, None], draws) * self._noise_std
        if self._tape:
            for row, key in enumerate(zip(clients.tolist(), sequences.tolist(), strict=True)):
                result[row] += self._tape.get((*key, step), 0.0)
        return as_tensor(result)

    def measure(self, model: Tensor) -> dict[str, float]:
        """Exact metrics in float64.

        ``loss`` is the global objective, the mean of the clients' objectives; ``gradient_norm`` the Euclidean norm of
        its gradient; ``distance`` the Euclidean distance from its minimizer, if there is one.
        """
        import torch

        point = model.to(device="cpu", dtype=torch.float64)
        points, clients = point.expand(self.clients, -1), np.arange(self.clients)
        metrics = {
            "loss": float(self.losses(clients, points).mean()),
            "gradient_norm": float(self.gradients(clients, points).mean(0).norm()),
        }
        if self._minimizer is not None:
            metrics["distance"] = float((point - self._minimizer).norm())
        return metrics

    @cached_property
    def _minimizer(self) -> Tensor | None:
        try:
            return self.optimum()
        except UserError:
            return None

    def optimum(self) -> Tensor:
        """The minimizer of the mean objective, (d,) float64; that of least norm if it is not unique."""
        import torch

        centers, curvatures, slopes = self._objectives
        target = (_curve(curvatures, centers) - slopes).mean(0)
        matrices = torch.diag_embed(curvatures) if curvatures.ndim == 2 else curvatures
        mean = matrices.mean(0)
        solution: Tensor = torch.linalg.pinv(mean, hermitian=True) @ target
        convex = not (torch.linalg.eigvalsh(mean) < 0).any()
        if not convex or not torch.allclose(mean @ solution, target):
            raise _wrong("the mean of the clients' objectives has no minimum")
        return solution


def _curve(curvature: Tensor, distance: Tensor) -> Tensor:
    """A_i (x_i - b_i) for diagonals (B, d) or matrices (B, d, d)."""
    if curvature.ndim == 2:
        return curvature * distance
    # Not a batched product: each row is then summed in the same order, independent of the batch.
    return (curvature * distance.unsqueeze(-2)).sum(-1)


def _wrong(message: str) -> UserError:
    return UserError(message, where="task quadratic")


def _array(values: Any, what: str) -> Floats:
    try:
        return np.array(values, dtype=np.float64)
    except ValueError as error:
        raise _wrong(f"the rows of {what} have different lengths") from error


def _rows(values: Any, what: str) -> Floats | None:
    """(N, d) from N vectors or N numbers."""
    if values is None:
        return None
    result = _array(values, what)
    result = result[:, None] if result.ndim == 1 else result
    if result.ndim != 2 or not result.size:
        raise _wrong(f"{what} must be a list of N vectors of equal, positive length")
    return result


def _vector(values: float | list[float], size: int, what: str) -> Floats:
    result = _array(values, what)
    if result.ndim and result.shape != (size,):
        raise _wrong(f"{what} has {len(result)} values; the task has {size} dimensions")
    return np.broadcast_to(result, (size,)).copy()


def _curvatures(values: Any, clients: int, size: int) -> Floats:
    """Diagonals (N, d) or matrices (N, d, d)."""
    result = _array(values, "curvatures")
    shapes = ((), (clients,), (clients, size), (clients, size, size))
    if result.shape not in shapes:
        raise _wrong(f"curvatures have shape {result.shape}, which is none of {shapes}")
    if result.ndim < 2:
        result = np.broadcast_to(result[..., None], (clients, size)).copy()
    least: Array = result
    if result.ndim == 3:
        if not np.array_equal(result, result.transpose(0, 2, 1)):
            raise _wrong("a curvature matrix is not symmetric")
        # The zero eigenvalues of a singular matrix have rounding errors.
        least = np.linalg.eigvalsh(result)
        least = least + 1e-12 * np.abs(least).max(axis=1, keepdims=True)
    if (least < 0).any():
        client = int(np.argmin(least.min(axis=1)))
        raise _wrong(
            f"the curvature of client {client} is negative ({least[client].min():g}), so its objective has no minimum"
        )
    return result
