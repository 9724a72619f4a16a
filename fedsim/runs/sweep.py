"""``sweep.json``: the run folders in the folder of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedsim.errors import UserError
from fedsim.files.locks import is_owned
from fedsim.runs.records import SWEEP

SCENARIO = "scenario.yaml"
"""The resolved scenario of a sweep, with its section ``sweep``."""
PRECISION = "precision.csv"
"""Ratios of the variants to the baseline, and the seeds that they needed, if seeds were added to a precision."""


@dataclass(frozen=True)
class SweepEntry:
    """One run of a sweep.

    Attributes:
        run: name of its folder in the sweep's folder.
        seed: its seed.
        values: the values that the sweep set, by dotted path.
        digest: digest of its resolved scenario; equal digests mean equal scenarios.
    """

    run: str
    seed: int
    values: Mapping[str, Any]
    digest: str


@dataclass(frozen=True)
class SweepRecord:
    """The content of ``sweep.json``.

    Attributes:
        name: the scenario's name.
        scenario: the scenario file; None if it was built in Python.
        runs: in the order of the sweep.
        files: checksums of the sweep's other files, by name.
    """

    name: str
    scenario: str | None
    runs: tuple[SweepEntry, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    def require_intact(self, folder: Path, name: str) -> None:
        """Refuse a file of the sweep in ``folder`` that is missing, or not as fedsim wrote it.

        The checksum of a sweep in progress may follow later.

        Raises:
            UserError: it is damaged.
        """
        if not is_owned(folder):
            SWEEP.require_intact(folder, vars(self), name)

    def write(self, folder: Path) -> None:
        """Replace the file in ``folder``."""
        SWEEP.write(folder, asdict(self))


def is_sweep(folder: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return (folder / SWEEP.file).is_file()


def read_sweep(folder: Path) -> SweepRecord:
    """Read ``sweep.json``.

    Raises:
        UserError: there is no sweep, or its file is damaged.
    """
    try:
        document = SWEEP.read(folder)
    except FileNotFoundError:
        raise UserError(
            f"the folder contains no {SWEEP.file}, so it is not a sweep folder",
            where=str(folder),
            hint="give the folder that `fedsim sweep` printed",
        ) from None
    runs = (
        SweepEntry(*(entry[name] for name in SweepEntry.__annotations__))
        for entry in document["runs"]
    )
    return SweepRecord(document["name"], document["scenario"], tuple(runs), document["files"])
