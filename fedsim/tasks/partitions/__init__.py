"""The partitions, one file each."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.tasks.partition import Partitioner


def registry() -> Mapping[str, type[Partitioner]]:
    """The partitions that ship with fedsim, by name."""
    return discover("fedsim.tasks.partitions", Partitioner)
