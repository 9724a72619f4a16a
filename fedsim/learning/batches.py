"""The samples of each local step: a counter-based order, computed on the device without a loop over clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.learning.augmentation import Augmenter
from fedsim.learning.counters import fold, shift, signed
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.base import steps_per_epoch

IntArray = npt.NDArray[np.int64]

# Sorting keys hold the number of a permutation above this many bits of its hashes.
_HASH_BITS = 43
_MOST_PERMUTATIONS = 1 << (63 - _HASH_BITS)
# Bits of the hash of an independent draw; its product with a number of samples fits into 63 bits.
_DRAW_BITS = 31
# Products of one sample are summed in a different order, so that a batch of one would differ between groups.
_NARROWEST = 8


@dataclass(frozen=True, slots=True)
class Batches:
    """The mini-batches of B dispatches over S consecutive local steps.

    Attributes:
        first: number of the first of these steps.
        rows: sample numbers, (S, B, width) int64; positions from ``counts`` on repeat the batch's first sample.
        counts: samples per batch, (S, B) int64; meaningless after the end of a dispatch.
    """

    first: int
    rows: Tensor
    counts: Tensor


class BatchOrder:
    """The order in which clients go through their samples.

    Every epoch of a dispatch visits all samples of its client once, in an order drawn from (seed, client, sequence,
    phase, epoch). Batches are consecutive pieces of that order; the last batch of an epoch may be short. With
    replacement, every sample of a batch is instead drawn uniformly from all of the client's, from (seed, client,
    sequence, phase, step, position). The order depends on nothing else: neither on the group nor on the device or the
    number of workers.

    Args:
        seed: the scenario's seed.
        offsets: client i holds ``rows[offsets[i] : offsets[i + 1]]``, (N + 1,).
        rows: sample numbers.
        batch_size: samples of a mini-batch.
        device: device on which the orders are computed.
        augmenter: augments the samples of each step; None for no augmentation.
        with_replacement: whether samples are drawn independently instead of epoch by epoch.
    """

    def __init__(
        self,
        seed: int,
        offsets: IntArray,
        rows: IntArray,
        batch_size: int,
        device: torch.device,
        augmenter: Augmenter | None = None,
        *,
        with_replacement: bool = False,
    ) -> None:
        self.seed = seed
        self._with_replacement = with_replacement
        self.augmenter = augmenter
        self._key = signed(Stream(seed, Purpose.DATA_ORDER).key)
        self._offsets = offsets
        self._rows = torch.from_numpy(np.ascontiguousarray(rows)).to(device)
        self._device = device
        self.batch_size = batch_size
        self.samples: IntArray = np.diff(offsets)
        self.steps_per_epoch = steps_per_epoch(self.samples, batch_size)

    def widths(self, clients: IntArray) -> IntArray:
        """Positions per padded batch of each client: ``batch_size``, or fewer if it has fewer samples."""
        fewest = np.maximum(self.samples[clients], _NARROWEST)
        rounded = 1 << np.ceil(np.log2(fewest)).astype(np.int64)
        result: IntArray = np.minimum(rounded, max(self.batch_size, _NARROWEST))
        return result

    def visited(self, clients: IntArray, steps: IntArray) -> IntArray:
        """Sum of the sizes of each client's first ``steps`` batches, (B,)."""
        samples = self.samples[clients]
        if self._with_replacement:
            return steps * np.minimum(samples, self.batch_size)
        epochs, rest = np.divmod(steps, self.steps_per_epoch[clients])
        result: IntArray = epochs * samples + rest * self.batch_size
        return result

    def batches(
        self,
        clients: IntArray,
        sequences: IntArray,
        *,
        first: int,
        last: int,
        phase: int = 0,
    ) -> Batches:
        """The mini-batches of steps ``first <= step < last``; all clients must have equal :meth:`widths`."""
        width = int(self.widths(clients[:1])[0])
        if self._with_replacement:
            return self._independent(clients, sequences, first, last, phase, width)
        samples, per_epoch = self.samples[clients], self.steps_per_epoch[clients]
        first_epoch = first // per_epoch
        epochs = -(-last // per_epoch) - first_epoch
        starts = np.concatenate([[0], np.cumsum(epochs * samples)])
        order = self._orders(clients, sequences, phase, first_epoch, epochs, starts)

        columns = torch.from_numpy(np.stack([per_epoch, first_epoch, samples, starts[:-1]]))
        per_epoch_d, first_epoch_d, samples_d, starts_d = columns.to(self._device)
        step = torch.arange(first, last, device=self._device).unsqueeze(1)
        epoch = torch.div(step, per_epoch_d, rounding_mode="floor")
        within = (step - epoch * per_epoch_d) * self.batch_size
        counts = (samples_d - within).clamp_(max=self.batch_size)
        begin = (epoch - first_epoch_d) * samples_d + starts_d + within
        position = torch.arange(width, device=self._device)
        rows = begin.unsqueeze(2) + torch.where(position < counts.unsqueeze(2), position, 0)
        return Batches(first, order[rows], counts)

    def _independent(
        self,
        clients: IntArray,
        sequences: IntArray,
        first: int,
        last: int,
        phase: int,
        width: int,
    ) -> Batches:
        """Batches of ``batch_size`` independent draws, or of as many as the client has samples if these are fewer."""
        columns = np.stack([clients, sequences, self.samples[clients], self._offsets[clients]])
        client, sequence, samples, offset = torch.from_numpy(columns).to(self._device)
        keys = self._dispatch_keys(client, sequence, phase)
        step = torch.arange(first, last, device=self._device).view(-1, 1, 1)
        counts = samples.clamp(max=self.batch_size).expand(last - first, -1)
        position = torch.arange(width, device=self._device)
        position = torch.where(position < counts.unsqueeze(2), position, 0)
        hashes = fold(fold(keys.view(1, -1, 1), step), position)
        draws = (shift(hashes, 64 - _DRAW_BITS) * samples.view(1, -1, 1)) >> _DRAW_BITS
        return Batches(first, self._rows[offset.view(1, -1, 1) + draws], counts)

    def _dispatch_keys(self, client: Tensor, sequence: Tensor, phase: int) -> Tensor:
        """Keys of the streams of dispatches, (B,)."""
        keys = fold(torch.full_like(client, self._key), client)
        return fold(fold(keys, sequence), torch.full_like(client, phase))

    def _orders(
        self,
        clients: IntArray,
        sequences: IntArray,
        phase: int,
        first_epoch: IntArray,
        epochs: IntArray,
        starts: IntArray,
    ) -> Tensor:
        """Sample numbers, permuted within each epoch of each client; epoch after epoch and client after client."""
        device = self._device
        permutations = np.concatenate([[0], np.cumsum(epochs)])
        if permutations[-1] > _MOST_PERMUTATIONS:
            raise ValueError("too many permutations at once; request fewer steps")
        columns = torch.from_numpy(
            np.stack(
                [
                    clients,
                    sequences,
                    self.samples[clients],
                    first_epoch,
                    permutations[:-1],
                    self._offsets[clients],
                    starts[:-1],
                    np.diff(starts),
                ]
            )
        ).to(device)
        client, sequence, samples, epoch_0, permutation_0, offset, start, length = columns
        keys = self._dispatch_keys(client, sequence, phase)

        total = int(starts[-1])
        per_element = torch.repeat_interleave(
            torch.stack([keys, samples, epoch_0, permutation_0, offset, start]),
            length,
            dim=1,
            output_size=total,
        )
        key, samples, epoch_0, permutation_0, offset, start = per_element
        within = torch.arange(total, device=device) - start
        epoch = torch.div(within, samples, rounding_mode="floor")
        local = within - epoch * samples
        hashes = fold(fold(key, epoch_0 + epoch), local)
        sort_key = ((permutation_0 + epoch) << _HASH_BITS) | shift(hashes, 64 - _HASH_BITS)
        order = torch.sort(sort_key, stable=True).indices
        return self._rows[(offset + local)[order]]
