"""The samples of each local step and their augmentation, from counters, without a loop over clients or samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.device import uploaded
from fedsim.randomness import GOLDEN, MIX_1, MIX_2, Purpose, Stream
from fedsim.scenario.training import Augmentation
from fedsim.tasks.base import steps_per_epoch
from fedsim.vocabulary.arrays import Ints

# Sorting keys hold the number of a permutation above this many bits of its hashes.
_HASH_BITS = 43
_MOST_PERMUTATIONS = 1 << (63 - _HASH_BITS)
# Bits of the hash of an independent draw; its product with a number of samples fits into 63 bits.
_DRAW_BITS = 31
# Products of one sample are summed in a different order, so that a batch of one would differ between groups.
_NARROWEST = 8

# Bits of a hash from which one offset is drawn.
_OFFSET_BITS = 31
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class BatchOrder:
    """The order in which clients go through their samples.

    Every epoch of a dispatch visits all samples of its client once, in an order drawn from (seed, client, sequence,
    phase, epoch). Batches are consecutive pieces of that order; the last batch of an epoch may be short, or is left
    out with ``drops_last``. With replacement, every sample of a batch is instead drawn uniformly from all of the
    client's, from (seed, client, sequence, phase, step, position). The order depends on nothing else: neither on the
    group nor on the device or the number of workers. Client i holds ``rows[offsets[i] : offsets[i + 1]]``.
    """

    def __init__(
        self,
        seed: int,
        offsets: Ints,
        rows: Ints,
        batch_size: int,
        device: torch.device,
        augmenter: Augmenter | None = None,
        *,
        with_replacement: bool = False,
        drops_last: bool = False,
    ) -> None:
        self.seed = seed
        self._with_replacement = with_replacement
        self.augmenter = augmenter
        self._stream = Stream(seed, Purpose.DATA_ORDER)
        self._offsets = offsets
        self._rows = torch.from_numpy(np.ascontiguousarray(rows)).to(device)
        self._device = device
        self._numbers = torch.empty(0, dtype=torch.int64, device=device)
        self.batch_size = batch_size
        self.samples: Ints = np.diff(offsets)
        self.steps_per_epoch = steps_per_epoch(self.samples, batch_size, drops_last=drops_last)

    def widths(self, clients: Ints) -> Ints:
        """Positions per padded batch of each client: ``batch_size``, or fewer if it has fewer samples."""
        fewest = np.maximum(self.samples[clients], _NARROWEST)
        rounded = 1 << np.ceil(np.log2(fewest)).astype(np.int64)
        result: Ints = np.minimum(rounded, max(self.batch_size, _NARROWEST))
        return result

    def visited(self, clients: Ints, steps: Ints) -> Ints:
        """Sum of the sizes of each client's first ``steps`` batches, (B,)."""
        samples = self.samples[clients]
        if self._with_replacement:
            return steps * np.minimum(samples, self.batch_size)
        epochs, rest = np.divmod(steps, self.steps_per_epoch[clients])
        of_epoch = np.minimum(samples, self.steps_per_epoch[clients] * self.batch_size)
        result: Ints = epochs * of_epoch + rest * self.batch_size
        return result

    def plan(
        self,
        clients: Ints,
        sequences: Ints,
        *,
        first: int,
        last: int,
        phase: int = 0,
        padded: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The arguments of :meth:`draw` for steps ``first <= step < last``; the clients must have equal :meth:`widths`.

        If they are as long, the first two are in the same memory. If ``padded``, few shapes occur: the numbers of
        samples and of permutations, which differ from group to group, are powers of two. What is added comes last and
        is not used.
        """
        samples = self.samples[clients]
        steps = np.arange(first, last)[:, np.newaxis]
        if self._with_replacement:
            keys = self._stream.keys(clients, sequences, phase).view(np.int64)
            columns, total = np.stack([keys, samples, self._offsets[clients]]), 0
            pieces = np.stack(np.broadcast_arrays(steps, np.minimum(samples, self.batch_size)))
        else:
            per_epoch = self.steps_per_epoch[clients]
            first_epoch = first // per_epoch
            epochs = -(-last // per_epoch) - first_epoch
            columns = self._permutations(clients, sequences, phase, first_epoch, epochs, padded)
            total = int(columns[0].sum())
            starts = np.cumsum(epochs * samples) - epochs * samples
            epoch = steps // per_epoch
            within = (steps - epoch * per_epoch) * self.batch_size
            begin = (epoch - first_epoch) * samples + starts + within
            pieces = np.stack([begin, np.minimum(samples - within, self.batch_size)])
        width = int(self.widths(clients[:1])[0])
        given = uploaded(columns, self._device), uploaded(pieces, self._device)
        return self._range(total), self._range(width), *given

    def draw(self, places: Tensor, positions: Tensor, columns: Tensor, pieces: Tensor) -> Tensor:
        """Sample numbers of the mini-batches of B dispatches over S steps, (S, B, width).

        The operations depend only on the shapes of the arguments. Positions beyond a batch's samples repeat its first.

        Args:
            places: numbers from 0, one for each sample of each permutation.
            positions: numbers from 0, (width,).
            columns: samples, key, number (the high bits of a sorting key), first row and first place of each
                permutation, (5, permutations); with replacement, key, samples and first row of each dispatch, (3, B).
            pieces: first place (with replacement, step) and number of samples of each batch, (2, S, B); meaningless
                after the end of a dispatch.
        """
        begins, counts = pieces.unsqueeze(3)
        position = torch.where(positions < counts, positions, 0)
        if self._with_replacement:
            # As many independent draws as a batch or the client has samples, whichever is fewer.
            keys, samples, offset = columns.unsqueeze(2)
            hashes = fold(fold(keys, begins), position)
            draws = (shift(hashes, 64 - _DRAW_BITS) * samples) >> _DRAW_BITS
            return self._rows[offset + draws]
        # Permuted within each epoch of each client; epoch after epoch and client after client.
        key, high_bits, offset, start = torch.repeat_interleave(
            columns[1:], columns[0], dim=1, output_size=len(places)
        )
        within = places - start
        sort_key = high_bits | shift(fold(key, within), 64 - _HASH_BITS)
        place = torch.sort(sort_key, stable=True).indices[begins + position]
        return self._rows[(offset + within)[place]]

    def _permutations(
        self,
        clients: Ints,
        sequences: Ints,
        phase: int,
        first_epoch: Ints,
        epochs: Ints,
        padded: bool,
    ) -> Ints:
        permutations = int(epochs.sum())
        count = 1 << permutations.bit_length() if padded else permutations
        if count > _MOST_PERMUTATIONS:
            raise ValueError("too many permutations at once; request fewer steps")
        number = np.arange(permutations)
        dispatch = np.repeat(np.arange(len(clients)), epochs)
        epoch = first_epoch[dispatch] + number - (np.cumsum(epochs) - epochs)[dispatch]
        keys = self._stream.keys(clients[dispatch], sequences[dispatch], phase, epoch)
        samples = self.samples[clients][dispatch]
        ends = np.cumsum(samples)
        columns = np.zeros((5, count), np.int64)
        columns[:, :permutations] = (
            samples,
            keys.view(np.int64),
            number << _HASH_BITS,
            self._offsets[clients][dispatch],
            ends - samples,
        )
        if padded:
            total = int(ends[-1])
            columns[0, permutations] = (1 << (total - 1).bit_length()) - total
            columns[2, permutations:] = permutations << _HASH_BITS
            columns[4, permutations:] = total
        return columns

    def _range(self, count: int) -> Tensor:
        """Numbers from 0, (count,)."""
        numbers = self._numbers
        if len(numbers) < count:
            length = 1 << (count - 1).bit_length()
            self._numbers = numbers = torch.arange(length, device=self._device)
        return numbers[:count]


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
    """Draws :class:`Moves` from counters: client, sequence, phase, local step and position in the mini-batch."""

    def __init__(self, augmentation: Augmentation, seed: int, device: torch.device) -> None:
        self._padding = augmentation.crop_padding
        self._flip = augmentation.flip
        self._key = signed(Stream(seed, Purpose.AUGMENTATION).key)
        self._device = device

    def keys(self, clients: Ints, sequences: Ints, phase: int) -> Tensor:
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


def signed(value: int) -> int:
    """The int64 with the bits of an unsigned 64-bit ``value``."""
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN, _MIX_1, _MIX_2 = signed(GOLDEN), signed(MIX_1), signed(MIX_2)


def shift(values: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 bits."""
    return (values >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def mix(values: Tensor) -> Tensor:
    """:func:`fedsim.randomness.mix64` on the bits of an int64 tensor."""
    values = shift(values, 30).bitwise_xor_(values).mul_(_MIX_1)
    values = shift(values, 27).bitwise_xor_(values).mul_(_MIX_2)
    return shift(values, 31).bitwise_xor_(values)


def fold(keys: Tensor, counters: Tensor) -> Tensor:
    """Keys of the streams that ``counters`` (broadcast) select, derived as in :class:`fedsim.randomness.Stream`."""
    return mix((counters + 1).mul_(_GOLDEN) + keys)
