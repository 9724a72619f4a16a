"""Analytic tasks: every client minimises a quadratic (or linear) function with exactly known gradients.

For verification and for theory: the method cards' worked cases run on these and give exact iterates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.components import Component, Parameters
from fedsim.errors import UserError
from fedsim.randomness import Stream
from fedsim.scenario.model import NoiseEntry
from fedsim.scenario.model import QuadraticTask as QuadraticParameters
from fedsim.tasks.base import Task
from fedsim.tasks.layout import Layout

FloatArray = npt.NDArray[np.float64]

_STEPS = 1 << 24


class QuadraticTask(Task, Component):
    """Clients with quadratic objectives f_i(x) = 0.5 (x - b_i)^T A_i (x - b_i) + s_i^T x.

    All values are float64; with ``noise_std`` 0 gradients are exact up to rounding, and exact where the
    numbers are dyadic.

    Attributes:
        centers: b_i, (N, d) float64.
        curvatures: diagonals of A_i, (N, d), or full matrices, (N, d, d), float64.
        slopes: s_i, (N, d) float64.
        noise_std: standard deviation of the gradient noise in each dimension, (d,) float64.

    Raises:
        UserError: the given lists do not fit together.
    """

    name: ClassVar[str] = "quadratic"
    Params: ClassVar[type[Parameters]] = QuadraticParameters
    model_family = "quadratic"

    def __init__(self, params: QuadraticParameters) -> None:
        self.params = params
        centers = _rows(params.centers, "centers")
        slopes = _rows(params.slopes, "slopes")
        given = centers if centers is not None else slopes
        if given is None:
            raise _wrong("it needs centers or slopes")
        clients, size = given.shape
        if slopes is not None and slopes.shape != given.shape:
            raise _wrong(
                f"centers have shape {given.shape}, slopes {slopes.shape}; they must be equal"
            )
        curvature_default = 0.0 if centers is None else 1.0
        self.centers = torch.from_numpy(np.zeros_like(given) if centers is None else centers)
        self.slopes = torch.from_numpy(np.zeros_like(given) if slopes is None else slopes)
        self.curvatures = torch.from_numpy(
            _curvatures(
                curvature_default if params.curvatures is None else params.curvatures, clients, size
            )
        )
        self.noise_std = torch.from_numpy(_vector(params.noise_std, size, "noise_std"))
        if bool((self.noise_std < 0).any()):
            raise _wrong("noise_std is negative")
        self._start = torch.from_numpy(_vector(params.initial, size, "initial"))
        self.layout = _layout(params.names, size)
        self.samples = _samples(params.samples, clients)
        self._tape = _tape(params.noise_tape, clients, size)

    def initial(self, stream: Stream, dtype: torch.dtype = torch.float64) -> Tensor:
        """The given start; ``stream`` is not used."""
        return self._start.to(dtype)

    def activations_per_sample(self) -> int:
        """None: the gradient follows from the model alone."""
        return 0

    def flops_per_sample(self) -> int:
        """Operations of one gradient."""
        return 2 * self.curvatures[0].numel() + 2 * self.layout.size

    def gradients(self, clients: npt.NDArray[np.int64], points: Tensor) -> Tensor:
        """Exact gradients of the clients' objectives (B of them), each at its own row of ``points`` (B, d)."""
        rows = torch.as_tensor(clients)
        distance = points - self.centers[rows].to(points)
        curvature = self.curvatures[rows].to(points)
        return _curve(curvature, distance) + self.slopes[rows].to(points)

    def losses(self, clients: npt.NDArray[np.int64], points: Tensor) -> Tensor:
        """Objectives of the clients (B of them), each at its own row of ``points`` (B, d); (B,)."""
        rows = torch.as_tensor(clients)
        distance = points - self.centers[rows].to(points)
        curved = _curve(self.curvatures[rows].to(points), distance)
        return 0.5 * (distance * curved).sum(-1) + (self.slopes[rows].to(points) * points).sum(-1)

    @property
    def noisy(self) -> bool:
        """Whether any gradient carries noise."""
        return bool(self._tape) or bool((self.noise_std > 0).any())

    def noise(
        self,
        stream: Stream,
        clients: npt.NDArray[np.int64],
        sequences: npt.NDArray[np.int64],
        step: int,
    ) -> Tensor:
        """Noise of local step ``step`` of these dispatches, (B, d) float64; a pure function of client,
        sequence and step.

        Args:
            stream: source of the normal numbers (purpose GRADIENT_NOISE).
            clients: clients of the dispatches, (B,).
            sequences: how many dispatches each client had before, (B,).
            step: number of the local step, from 0.
        """
        size = self.layout.size
        result = torch.zeros(len(clients), size, dtype=torch.float64)
        if bool((self.noise_std > 0).any()):
            draws = (sequences[:, None] * _STEPS + step) * size + np.arange(size)
            result += torch.from_numpy(stream.normals(clients[:, None], draws)) * self.noise_std
        if self._tape:
            for row, key in enumerate(zip(clients.tolist(), sequences.tolist(), strict=True)):
                entry = self._tape.get((*key, step))
                if entry is not None:
                    result[row] += entry
        return result

    def optimum(self) -> Tensor:
        """The minimiser of the mean objective, (d,) float64; of least norm where it is not unique.

        Raises:
            UserError: the mean objective has no minimum.
        """
        curvature = (
            torch.diag_embed(self.curvatures) if self.curvatures.ndim == 2 else self.curvatures
        )
        target = (_curve(self.curvatures, self.centers) - self.slopes).mean(0)
        mean = curvature.mean(0)
        solution: Tensor = torch.linalg.pinv(mean, hermitian=True) @ target
        if not torch.allclose(mean @ solution, target) or bool(
            (torch.linalg.eigvalsh(mean) < 0).any()
        ):
            raise _wrong("the mean of the clients' objectives has no minimum")
        return solution


def _curve(curvature: Tensor, distance: Tensor) -> Tensor:
    """A_i (x_i - b_i) for diagonals (B, d) or matrices (B, d, d)."""
    if curvature.ndim == 2:
        return curvature * distance
    # Written out, not as a batched product: every row is then summed in the same order whatever the group.
    return (curvature * distance.unsqueeze(-2)).sum(-1)


def _wrong(message: str) -> UserError:
    return UserError(message, where="task quadratic")


def _array(values: Any, what: str) -> FloatArray:
    try:
        result = np.array(values, dtype=np.float64)
    except ValueError as error:
        raise _wrong(f"the rows of {what} have different lengths") from error
    return result


def _rows(values: Any, what: str) -> FloatArray | None:
    """(N, d) from N vectors or N numbers."""
    if values is None:
        return None
    result = _array(values, what)
    result = result[:, None] if result.ndim == 1 else result
    if result.ndim != 2 or not result.size:
        raise _wrong(f"{what} must be a list of N vectors of equal, positive length")
    return result


def _vector(values: float | list[float], size: int, what: str) -> FloatArray:
    result = _array(values, what)
    if result.ndim and result.shape != (size,):
        raise _wrong(f"{what} has {len(result)} values; the task has {size} dimensions")
    return np.broadcast_to(result, (size,)).copy()


def _curvatures(values: Any, clients: int, size: int) -> FloatArray:
    """Diagonals (N, d) or matrices (N, d, d)."""
    result = _array(values, "curvatures")
    if result.ndim < 2:
        if result.ndim and len(result) != clients:
            raise _wrong(f"there are {len(result)} curvatures for {clients} clients")
        column = np.broadcast_to(result, (clients,))[:, None]
        return np.broadcast_to(column, (clients, size)).copy()
    if result.shape not in ((clients, size), (clients, size, size)):
        raise _wrong(
            f"curvatures have shape {result.shape}; expected ({clients},), ({clients}, {size}) "
            f"or ({clients}, {size}, {size})"
        )
    if result.ndim == 3 and not np.array_equal(result, result.transpose(0, 2, 1)):
        raise _wrong("a curvature matrix is not symmetric")
    return result


def _layout(names: Mapping[str, int], size: int) -> Layout:
    if not names:
        return Layout.of([("x", (size,))])
    if any(length < 1 for length in names.values()) or sum(names.values()) != size:
        raise _wrong(
            f"the named blocks have lengths {list(names.values())}; they must be positive and add up to {size}"
        )
    return Layout.of([(name, (length,)) for name, length in names.items()])


def _samples(values: list[int] | None, clients: int) -> npt.NDArray[np.int64]:
    if values is None:
        return np.ones(clients, dtype=np.int64)
    if len(values) != clients or min(values) < 1:
        raise _wrong(f"samples must be {clients} numbers of at least 1")
    return np.array(values, dtype=np.int64)


def _tape(entries: list[NoiseEntry], clients: int, size: int) -> dict[tuple[int, int, int], Tensor]:
    tape: dict[tuple[int, int, int], Tensor] = {}
    for number, entry in enumerate(entries):
        if entry.client >= clients or len(entry.noise) != size:
            raise _wrong(
                f"noise_tape entry {number} needs a client below {clients} and {size} values"
            )
        key = (entry.client, entry.sequence, entry.step)
        if key in tape:
            raise _wrong(f"noise_tape entry {number} repeats client, sequence and step {key}")
        tape[key] = torch.tensor(entry.noise, dtype=torch.float64)
    return tape
