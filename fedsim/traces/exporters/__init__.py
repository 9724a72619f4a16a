"""Writers of other trace formats, one file each, so that other simulators can read fedsim's bundles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from fedsim.errors import UserError
from fedsim.files.durable import replacing
from fedsim.parts.component import Component, discover
from fedsim.traces.bundle import TraceBundle

Files = Iterator[tuple[Path, str | bytes]]
"""Files and their content."""


class Exporter(Component, ABC):
    """Base of every exporter.

    Attributes:
        description: one line for the list of formats.
        writes_folder: whether the format is a folder with one file per series instead of a single file.
    """

    description: ClassVar[str] = ""
    writes_folder: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def files(cls, bundle: TraceBundle, path: Path, params: Any, counts: dict[str, int]) -> Files:
        """The files of a bundle in this format and their content.

        Args:
            bundle: a sound bundle (:func:`~fedsim.traces.validation.require_sound`).
            path: the file, or the folder for one file per series.
            params: an instance of the class's ``Params``.
            counts: receives the numbers of items written, and of those that the format cannot express.
        """

    @classmethod
    def write(
        cls, bundle: TraceBundle, path: Path, params: Any, *, overwrite: bool = False
    ) -> dict[str, int]:
        """Write a bundle in this format, replacing existing files only with ``overwrite``; returns the counts."""
        counts: dict[str, int] = {}
        for file, content in cls.files(bundle, path, params, counts):
            if file.exists() and not (overwrite and file.is_file()):
                raise UserError(
                    "the output already exists",
                    where=str(file),
                    hint="name another file, or use --force to replace this one",
                )
            data = content.encode() if isinstance(content, str) else content
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with replacing(file) as temporary:
                    temporary.write_bytes(data)
            except OSError as error:
                raise UserError(f"cannot be written: {error.strerror}", where=str(file)) from error
        return counts


def registry() -> Mapping[str, type[Exporter]]:
    """The exporters that ship with fedsim, by the name of their format."""
    return discover("fedsim.traces.exporters", Exporter)
