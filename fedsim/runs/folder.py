"""Where the parts of a run folder lie, and its status in ``run.json``."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from fedsim.errors import UserError
from fedsim.runs.schema import FORMAT_VERSION, STREAMED, TABLES


class Status(StrEnum):
    """How far a run has come."""

    RUNNING = "running"
    """Going on, or killed without a chance to say so."""
    COMPLETE = "complete"
    FAILED = "failed"
    """Ended by an error, which ``run.json`` holds."""
    INTERRUPTED = "interrupted"
    """Stopped by the user; can be resumed."""


class RunFolder:
    """Paths and status of one run.

    Args:
        path: the folder; it need not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def scenario(self) -> Path:
        """The resolved scenario."""
        return self.path / "scenario.yaml"

    @property
    def info(self) -> Path:
        """Status, environment and summary figures."""
        return self.path / "run.json"

    @property
    def model(self) -> Path:
        """The final model."""
        return self.path / "model.safetensors"

    @property
    def report(self) -> Path:
        """The page a person opens."""
        return self.path / "report.html"

    @property
    def checkpoint(self) -> Path:
        """The folder of checkpoints; absent once the run is complete."""
        return self.path / "checkpoint"

    def stream(self, table: str) -> Path:
        """The Arrow stream of a table of a run that is going on."""
        return self.path / f"{table}.arrows"

    def parquet(self, table: str) -> Path:
        """The finished file of a table."""
        return self.path / f"{table}.parquet"

    def create(self, *, overwrite: bool = False) -> None:
        """Make the folder.

        Args:
            overwrite: if the folder exists, remove from it what fedsim wrote there, and nothing else.

        Raises:
            UserError: the folder exists and is not to be overwritten, or cannot be written.
        """
        if self.path.is_symlink() or self.path.exists():
            if not self.path.is_dir():
                raise UserError(
                    "a file of this name is in the way",
                    where=str(self.path),
                    hint="choose another output folder",
                )
            if any(self.path.iterdir()):
                if not overwrite:
                    raise UserError(
                        "the output folder exists and is not empty",
                        where=str(self.path),
                        hint="choose another folder, resume the run, or ask to overwrite it",
                    )
                if not self.info.exists():
                    raise UserError(
                        "the folder is not a run of fedsim, so it is not overwritten",
                        where=str(self.path),
                        hint="choose another output folder",
                    )
                self._remove_own_files()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise UserError(
                f"cannot write to the output folder: {error.strerror}",
                where=str(self.path),
                hint="choose a folder that you may write to",
            ) from error

    def remove(self) -> None:
        """Take back a run that has come to nothing: remove what fedsim wrote, and the folder if nothing else is in
        it."""
        self._remove_own_files()
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _remove_own_files(self) -> None:
        own = [self.scenario, self.info, self.model, self.report]
        own += [self.stream(table.name) for table in STREAMED]
        own += [self.parquet(table.name) for table in TABLES]
        try:
            for path in own:
                path.unlink(missing_ok=True)
            if self.checkpoint.is_dir():
                shutil.rmtree(self.checkpoint)
        except OSError as error:
            raise UserError(
                f"cannot remove the files of the earlier run: {error.strerror}",
                where=str(self.path),
            ) from error

    def write_scenario(self, text: str) -> None:
        """Store the resolved scenario (YAML)."""
        write_atomically(self.scenario, text)

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Replace ``run.json``."""
        document = {"format": FORMAT_VERSION, **info}
        write_atomically(self.info, json.dumps(document, indent=2, sort_keys=True) + "\n")

    def read_info(self) -> dict[str, Any]:
        """The content of ``run.json``.

        Raises:
            UserError: the folder or the file is missing or damaged, or a later fedsim wrote it.
        """
        if not self.path.is_dir():
            raise UserError(
                "no such run folder",
                where=str(self.path),
                hint="give the folder that `fedsim run` printed",
            )
        try:
            info = json.loads(self.info.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(
                "the folder holds no run.json, so it is not a run of fedsim",
                where=str(self.path),
                hint="give the folder that `fedsim run` printed",
            ) from None
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot be read: {error}", where=str(self.info), hint="run the scenario again"
            ) from error
        if not isinstance(info, dict) or not isinstance(info.get("format"), int):
            raise UserError("is not a run description of fedsim", where=str(self.info))
        if info["format"] > FORMAT_VERSION:
            raise UserError(
                f"was written by a later fedsim (format {info['format']})",
                where=str(self.info),
                hint="update fedsim",
            )
        return info

    def update_info(self, **changes: Any) -> dict[str, Any]:
        """Change entries of ``run.json``; returns its new content."""
        info = {**(self.read_info() if self.info.exists() else {}), **changes}
        self.write_info(info)
        return info


def write_atomically(path: Path, text: str) -> None:
    """Replace a text file such that a reader (or a crash) finds the old or the new one, never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
