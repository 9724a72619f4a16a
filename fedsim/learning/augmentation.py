"""Random crops and flips of training samples, drawn on the device without a loop over samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.learning.batches import fold, shift, signed
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.training import Augmentation, Training
from fedsim.tasks.base import Task, check_augmentation

IntArray = npt.NDArray[np.int64]

# Bits of a hash from which one offset is drawn.
_OFFSET_BITS = 31
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


@dataclass(frozen=True, slots=True)
class Moves:
    """The crop and orientation of each of m images.

    Attributes:
        down, right: pixels by which the crop is shifted down and right, (m,) int64; negative for up and left.
        mirrored: whether the crop is then mirrored left to right, (m,) bool.
    """

    down: Tensor
    right: Tensor
    mirrored: Tensor


class Augmenter:
    """Draws :class:`Moves` from counters: client, sequence, phase, local step and position in the mini-batch.

    They depend on nothing else: neither on the group nor on the device or the number of workers.

    Args:
        augmentation: which moves are drawn.
        seed: the scenario's seed.
        device: device of the drawn tensors.
    """

    def __init__(self, augmentation: Augmentation, seed: int, device: torch.device) -> None:
        self._padding = augmentation.crop_padding
        self._flip = augmentation.flip
        self._key = signed(Stream(seed, Purpose.AUGMENTATION).key)
        self._device = device

    def keys(self, clients: IntArray, sequences: IntArray, phase: int) -> Tensor:
        """The streams of these dispatches in a phase, (B,) int64."""
        client, sequence = torch.from_numpy(np.stack([clients, sequences])).to(self._device)
        keys = fold(torch.full_like(client, self._key), client)
        return fold(fold(keys, sequence), torch.full_like(client, phase))

    def moves(self, keys: Tensor, steps: Tensor, count: int) -> Moves:
        """The moves of ``count`` samples for each pair of a stream (b,) and a local step (b,); b x count moves."""
        of_step = fold(keys, steps).unsqueeze(1)
        hashes = fold(of_step, torch.arange(count, device=self._device)).view(-1)
        choices = 2 * self._padding + 1

        def offset(bits: Tensor) -> Tensor:
            return ((bits & _OFFSET_MASK) * choices >> _OFFSET_BITS) - self._padding

        mirrored = (hashes & 1).bool() if self._flip else torch.zeros_like(hashes).bool()
        return Moves(offset(shift(hashes, 1)), offset(shift(hashes, 32)), mirrored)


def augmenter(training: Training, task: Task, seed: int, device: torch.device) -> Augmenter | None:
    """The augmenter of a task's samples; None if the training section has no augmentation.

    Raises:
        UserError: the samples cannot be augmented.
    """
    check_augmentation(training, task)
    augmentation = training.augmentation
    return None if augmentation is None else Augmenter(augmentation, seed, device)


def moved(images: Tensor, moves: Moves, black: Tensor) -> Tensor:
    """The crops of ``images`` (m, c, h, w) given by ``moves``; pixels outside come from ``black`` (c, h, w)."""
    count, channels, height, width = images.shape
    row = torch.arange(height, device=images.device) + moves.down.unsqueeze(1)
    column = torch.arange(width, device=images.device)
    column = torch.where(moves.mirrored.unsqueeze(1), width - 1 - column, column)
    column = column + moves.right.unsqueeze(1)
    inside = ((row >= 0) & (row < height)).unsqueeze(2) & (
        (column >= 0) & (column < width)
    ).unsqueeze(1)
    source = row.clamp(0, height - 1).unsqueeze(2) * width + column.clamp(0, width - 1).unsqueeze(1)
    pixels = images.reshape(count, channels, -1)
    moved_pixels = pixels.gather(2, source.view(count, 1, -1).expand(-1, channels, -1))
    return torch.where(inside.unsqueeze(1), moved_pixels.view_as(images), black)
