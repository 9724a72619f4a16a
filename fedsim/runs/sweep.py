"""``sweep.json``: the run folders in the folder of a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedsim.errors import UserError
from fedsim.files.checksums import file_sha256, is_unchanged, later_format, require_regular, stamped
from fedsim.files.documents import json_text
from fedsim.files.durable import write_text
from fedsim.files.locks import is_owned

SWEEP_FILE = "sweep.json"
SCENARIO = "scenario.yaml"
"""The resolved scenario of a sweep, with its section ``sweep``."""
PRECISION = "precision.csv"
"""Ratios of the variants to the baseline, and the seeds that they needed, if seeds were added to a precision."""
SWEEP_FORMAT = 2
"""Format of ``sweep.json``; raised when the meaning of an entry changes."""


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

    def write(self, folder: Path) -> None:
        """Replace the file in ``folder``."""
        document = {"format": SWEEP_FORMAT, **asdict(self)}
        write_text(folder / SWEEP_FILE, json_text(stamped(document), indent=1) + "\n")

    def require_intact(self, folder: Path, name: str) -> None:
        """Refuse a file of the sweep in ``folder`` that is missing, or not as fedsim wrote it.

        The checksum of a sweep in progress may follow later.

        Raises:
            UserError: it is damaged.
        """
        expected, path = self.files.get(name), folder / name
        if expected is None or is_owned(folder):
            return
        try:
            problem = (
                "" if file_sha256(path) == expected else "it has changed since fedsim wrote it"
            )
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
        if problem:
            raise damaged(path, problem)


def is_sweep(folder: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return (folder / SWEEP_FILE).is_file()


def read_sweep(folder: Path) -> SweepRecord:
    """Read ``sweep.json``.

    Raises:
        UserError: there is no sweep, or its file is damaged.
    """
    path = folder / SWEEP_FILE
    try:
        require_regular(path)
        document = json.loads(path.read_text(encoding="utf-8"))
        written = document["format"]
        if written > SWEEP_FORMAT:
            raise later_format(written, path)
        if not is_unchanged(document):
            raise ValueError("it has changed since fedsim wrote it")
        runs = tuple(SweepEntry(**entry) for entry in document["runs"])
        for entry in runs:
            _require_plain_name(entry.run)
        return SweepRecord(document["name"], document["scenario"], runs, document["files"])
    except FileNotFoundError:
        raise UserError(
            f"the folder contains no {SWEEP_FILE}, so it is not a sweep folder",
            where=str(folder),
            hint="give the folder that `fedsim sweep` printed",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, f"cannot be read: {error}") from error


def damaged(path: Path, problem: str) -> UserError:
    """The error for a damaged file of a sweep, which is written again with the sweep."""
    hint = "run fedsim sweep (in Python: fedsim.sweep()) again"
    return UserError(problem, where=str(path), hint=hint)


def _require_plain_name(name: str) -> None:
    """Refuse a name that leads outside the sweep's folder.

    Raises:
        ValueError: it is not the name of a folder in it.
    """
    if not isinstance(name, str) or name != Path(name).name or name in ("", "..") or "\\" in name:
        raise ValueError(f"{name!r} is not the name of a folder")
