"""Parameter models with paths and unions."""

from __future__ import annotations

from pathlib import Path

from pydantic import DirectoryPath, Field, FilePath

from fedsim.parts.parameters import Parameters
from tests.scenario.conftest import Mixing


class Pathy(Parameters):
    """Paths in every place where a type can hold one."""

    one: FilePath
    """An existing file."""
    maybe: FilePath | None = None
    many: list[FilePath] = []
    pair: tuple[Path, Path] | None = None
    named: dict[str, DirectoryPath] = {}
    word: Path | str = "auto"
    choice: Path | None = Field(default=None, alias="lambda")


class MyMixing(Mixing):
    """Parameters of a class in this module."""
