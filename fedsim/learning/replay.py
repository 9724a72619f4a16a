"""Checks that a resumed run submits the timeline that its checkpoint continues.

A checkpoint holds a checksum of every instruction up to it, four bytes each. The time plane is replayed from the start
when a run is resumed; the first instruction whose checksum differs ends the replay before anything is executed.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from dataclasses import astuple, fields
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor

from fedsim.vocabulary.timeline import (
    Adopt,
    Aggregate,
    Evaluate,
    Gather,
    Instruction,
    TimelineDiffers,
    Train,
)

# Doubles hold every integer of an instruction exactly, whichever type it has.
_TRAIN = struct.Struct("<8d?2d?")
_FIELDS = attrgetter(*(field.name for field in fields(Train)))
_HEAD = struct.Struct("<c3d")


class Replay:
    """The checksums of all instructions submitted so far, compared with those of a checkpoint."""

    def __init__(self) -> None:
        self._checksums = array("I")
        self._expected = array("I")

    def __len__(self) -> int:
        return len(self._checksums)

    def submitted(self, instruction: Instruction) -> None:
        """Record an instruction.

        Raises:
            TimelineDiffers: the checkpoint continues another one.
        """
        value, number = checksum(instruction), len(self)
        self._checksums.append(value)
        if number < len(self._expected) and self._expected[number] != value:
            raise self.difference(f"{_described(instruction)} differs")

    def ended(self) -> None:
        """Check that the timeline is not shorter than that of the checkpoint.

        Raises:
            TimelineDiffers: it is.
        """
        if len(self) < len(self._expected):
            numbers = f"{len(self)} of {len(self._expected)} instructions"
            raise self.difference(f"the run ends after {numbers}")

    def difference(self, first: str) -> TimelineDiffers:
        """The error whose first difference is ``first``."""
        return TimelineDiffers(
            f"the simulation does not repeat the timeline that the checkpoint continues: {first}"
        )

    def tensor(self) -> Tensor:
        """The checksums for a checkpoint, (instructions,) int32."""
        return torch.from_numpy(np.array(self._checksums, dtype=np.uint32).view(np.int32))

    def expect(self, tensor: Tensor) -> None:
        """Compare the instructions that follow with those of a checkpoint, from the beginning of its timeline."""
        self._expected = array("I", tensor.numpy().view(np.uint32).tobytes())


def checksum(instruction: Instruction) -> int:
    """CRC-32 of everything in an instruction."""
    if isinstance(instruction, Train):
        return zlib.crc32(_TRAIN.pack(*_FIELDS(instruction)))
    if isinstance(instruction, Gather):
        return zlib.crc32(struct.pack("<d", instruction.model), checksum(instruction.train))
    if isinstance(instruction, Adopt):
        return zlib.crc32(struct.pack("<4d", *astuple(instruction)))
    kind = b"e" if isinstance(instruction, Evaluate) else b"a"
    value = zlib.crc32(_HEAD.pack(kind, instruction.version, instruction.time_s, instruction.round))
    if isinstance(instruction, Aggregate):
        value = zlib.crc32(np.array(instruction.contributions, np.float64).tobytes(), value)
        value = zlib.crc32(struct.pack("<2d", instruction.edge, instruction.adopted), value)
        for name, number in instruction.attributes.items():
            value = zlib.crc32(name.encode() + struct.pack("<d", number), value)
    return value


def _described(instruction: Instruction) -> str:
    if isinstance(instruction, Train):
        return f"dispatch {instruction.dispatch_id} to client {instruction.client}"
    if isinstance(instruction, Gather):
        return f"the update of edge server {instruction.train.client}"
    return f"version {instruction.version}"
