"""Readers of foreign trace formats, one file each; every one returns a :class:`~fedsim.traces.bundle.TraceBundle`.

An importer never invents: what it dropped, merged or held is counted in ``manifest.counts``, and what the source cannot
say is null. Intervals of the bundle are half open; sources whose ends are inclusive differ at that one instant only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from fedsim.components import Component, Parameters, discover
from fedsim.traces.bundle import TraceBundle


class ImporterParams(Parameters):
    """Options that every importer takes: where the data come from."""

    name: str | None = None
    """Name of the bundle; by default that of the first file."""
    source: str | None = None
    """Repository, commit and path of the source; by default the files' names and SHA-256."""
    licence: str | None = None
    """Licence of the source."""
    citation: str | None = None
    """How to cite the source."""
    caveat: str | None = None
    """What these data cannot show, such as that they were picked rather than drawn; kept in the manifest."""


class Importer(Component):
    """Base of every importer."""

    description: ClassVar[str] = ""
    version: ClassVar[str] = "1"
    Params: ClassVar[type[Parameters]] = ImporterParams

    @classmethod
    @abstractmethod
    def read(cls, paths: Sequence[Path], params: Any) -> TraceBundle:
        """Read files of this format into one bundle.

        Args:
            paths: files, folders of files, or zip archives; ``.gz`` is unpacked on the way.
            params: an instance of the class's ``Params``.

        Raises:
            UserError: a file is missing or not of this format; names the file, the line or record, and how to mend it.
        """


def registry() -> dict[str, type[Importer]]:
    """The importers that ship with fedsim, by the name of their format."""
    return discover("fedsim.traces.importers", Importer)
