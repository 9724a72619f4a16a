"""Writers of foreign trace formats, one file each, so that other simulators can read our bundles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from fedsim.components import Component, discover
from fedsim.traces.bundle import TraceBundle


class Exporter(Component, ABC):
    """Base of every exporter."""

    description: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def write(
        cls, bundle: TraceBundle, path: Path, params: Any, *, overwrite: bool = False
    ) -> dict[str, int]:
        """Write a bundle in this format.

        Args:
            bundle: what to write; it must be sound (:func:`~fedsim.traces.validation.require_sound`).
            path: the file, or the folder of one file per series.
            params: an instance of the class's ``Params``.
            overwrite: replace files that are there already.

        Returns:
            What was written and what the format could not hold, counted by kind.

        Raises:
            UserError: the bundle lacks what the format needs, or ``path`` exists or cannot be written.
        """


def registry() -> dict[str, type[Exporter]]:
    """The exporters that ship with fedsim, by the name of their format."""
    return discover("fedsim.traces.exporters", Exporter)
