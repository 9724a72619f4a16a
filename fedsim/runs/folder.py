"""The run folder: where its files lie, who may write to it, its status in ``run.json``, and the checksums of its files.

A folder is complete when ``run.json`` says so: it is written last, and holds the checksums of all other files but the
report.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from fedsim.checksums import file_sha256, is_unchanged, stamped
from fedsim.durable import TEMPORARY_PREFIX, remove_temporaries, write_text
from fedsim.errors import UserError
from fedsim.locks import LOCK_NAMES, locked
from fedsim.runs.schema import STREAMED, TABLES
from fedsim.scenario import own_code

INFO_FORMAT = 2
"""Format of ``run.json``; raised when the meaning of an entry changes. 1 was that of fedsim 0.1."""
FIRST_WITH_CHECKSUMS = 2
"""Earlier formats of ``run.json`` have no checksums."""


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

    @contextlib.contextmanager
    def claimed(self, *, overwrite: bool = False) -> Iterator[None]:
        """Make the folder of a new run, and hold its lock.

        Args:
            overwrite: replace a run that is there: remove the files that fedsim wrote, and nothing else.

        Raises:
            UserError: the folder holds something, another process works in it, or it cannot be written to.
        """
        self._require_free(overwrite)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot write to the output folder: {error.strerror}",
                where=str(self.path),
                hint="choose a folder that you may write to",
            ) from error
        try:
            with locked(self.path):
                self._require_free(overwrite)
                self._remove_own_files()
                yield
        finally:
            self._remove_if_empty()

    @contextlib.contextmanager
    def reclaimed(self) -> Iterator[None]:
        """Hold the lock of the folder of a run that is there.

        Raises:
            UserError: another process works in it, or it cannot be written to.
        """
        with locked(self.path):
            remove_temporaries(self.path)
            yield

    def _require_free(self, overwrite: bool) -> None:
        if not (self.path.is_symlink() or self.path.exists()):
            return
        if not self.path.is_dir():
            raise UserError(
                "a file with this name exists",
                where=str(self.path),
                hint="choose another output folder with -o",
            )
        if all(_is_left_over(item.name) for item in self.path.iterdir()):
            return
        if self._is_own() and not self.has_begun:
            return
        if not overwrite:
            raise UserError(
                "the output folder exists and is not empty",
                where=str(self.path),
                hint=f"choose another folder with -o, finish the run with 'fedsim resume {self.path}', or replace it "
                "with --overwrite"
                if self.info.exists()
                else "choose another folder with -o",
            )
        if not self._is_own():
            raise UserError(
                "the folder was not written by fedsim, so it is not overwritten",
                where=str(self.path),
                hint="choose another output folder with -o",
            )

    @property
    def has_begun(self) -> bool:
        """Whether a run has written its scenario here; one that was killed before that has nothing to resume."""
        if not self.info.exists():
            return False
        info = self.read_info()
        return info["format"] < FIRST_WITH_CHECKSUMS or bool(info.get("files"))

    def _is_own(self) -> bool:
        """Whether ``run.json`` states that fedsim wrote this folder, damaged or not."""
        try:
            info = json.loads(self.info.read_text(encoding="utf-8"))
            return isinstance(info["format"], int) and "fedsim-des" in info["versions"]
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def make_room(self) -> None:
        """Remove the streams of a run that ran out of disk space, so that its status can be written.

        Resuming writes them anew.
        """
        for table in STREAMED:
            with contextlib.suppress(OSError):
                self.stream(table.name).unlink(missing_ok=True)
        remove_temporaries(self.path)

    def remove(self) -> None:
        """Remove what fedsim wrote; the folder goes when its lock is released, if nothing else is in it."""
        self._remove_own_files()

    def _remove_own_files(self) -> None:
        own = [self.scenario, self.info, self.model, self.report]
        own += [self.stream(table.name) for table in STREAMED]
        own += [self.parquet(table.name) for table in TABLES]
        try:
            for path in own:
                path.unlink(missing_ok=True)
            # A link in place of the folder is removed, and not followed.
            for folder in (self.checkpoint, self.path / own_code.FOLDER):
                if folder.is_symlink():
                    folder.unlink()
                elif folder.is_dir():
                    shutil.rmtree(folder)
            remove_temporaries(self.path)
        except OSError as error:
            raise UserError(
                f"cannot remove the files of the earlier run: {error.strerror}",
                where=str(self.path),
                hint="choose another output folder with -o",
            ) from error

    def _remove_if_empty(self) -> None:
        names = {item.name for item in self.path.iterdir()}
        if names <= set(LOCK_NAMES):
            for name in names:
                (self.path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.path.rmdir()

    # -- content ----------------------------------------------------------------------------------------------------

    def begin(self, scenario: str, info: Mapping[str, Any]) -> None:
        """Write the first files of a run: its scenario, and ``run.json`` with the status ``running``.

        A copy of the scenario lies with the checkpoints, so that a resumed run can say what has been edited since.

        Args:
            scenario: the resolved scenario as YAML.
            info: entries of ``run.json``.
        """
        # run.json first, so that whatever a run killed in between leaves is known to be fedsim's.
        self.write_info({**info, "status": Status.RUNNING, "files": {}})
        self.checkpoint.mkdir(exist_ok=True)
        write_text(self.original_scenario, scenario)
        write_text(self.scenario, scenario)
        self.update_info(files={self.scenario.name: file_sha256(self.scenario)})

    @property
    def original_scenario(self) -> Path:
        """The scenario as it was when the run began; absent once the run is complete."""
        return self.checkpoint / "scenario.yaml"

    def complete(self, **changes: Any) -> dict[str, Any]:
        """Set the status ``complete``, together with the checksum of every file but the report.

        Args:
            changes: other entries of ``run.json``.

        Returns:
            The content of ``run.json``.
        """
        paths = [self.scenario, self.model, *(self.parquet(table.name) for table in TABLES)]
        files = {path.name: file_sha256(path) for path in paths if path.exists()}
        return self.update_info(status=Status.COMPLETE, files=files, **changes)

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Replace ``run.json``, which carries a checksum of its own content."""
        document = stamped({**info, "format": INFO_FORMAT})
        write_text(self.info, json.dumps(document, indent=2, sort_keys=True) + "\n")

    def read_info(self) -> dict[str, Any]:
        """The content of ``run.json``.

        Raises:
            UserError: the folder or the file is missing or damaged, or a later fedsim wrote it.
        """
        if not self.path.is_dir():
            raise UserError(
                "no such run folder",
                where=str(self.path),
                hint="give the folder that 'fedsim run' printed",
            )
        try:
            info = json.loads(self.info.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(
                "the folder has no run.json, so it is not a run of fedsim",
                where=str(self.path),
                hint="give the folder that 'fedsim run' printed",
            ) from None
        except (OSError, ValueError) as error:
            raise self.damaged(self.info, f"cannot be read: {error}") from error
        if not isinstance(info, dict) or not isinstance(info.get("format"), int):
            raise self.damaged(self.info, "is not the description of a run")
        if info["format"] > INFO_FORMAT:
            raise UserError(
                f"was written by a later fedsim (format {info['format']})",
                where=str(self.info),
                hint="update fedsim: pip install --upgrade fedsim-des",
            )
        if info["format"] >= FIRST_WITH_CHECKSUMS and not is_unchanged(info):
            raise self.damaged(self.info, "has changed since fedsim wrote it")
        _require_plausible(info, self.info)
        return info

    def update_info(self, **changes: Any) -> dict[str, Any]:
        """Change entries of ``run.json``; returns its new content."""
        self.write_info({**(self.read_info() if self.info.exists() else {}), **changes})
        return self.read_info()

    def require_unchanged(self, info: Mapping[str, Any], path: Path) -> None:
        """Compare a file with its checksum in ``run.json``, if it has one there.

        Args:
            info: what :meth:`read_info` gave.
            path: a file of this folder, which must exist.

        Raises:
            UserError: it has changed since fedsim wrote it.
        """
        expected = info.get("files", {}).get(path.name)
        if expected is not None and file_sha256(path) != expected:
            raise self.damaged(path, "has changed since fedsim wrote it (its checksum differs)")

    def problems(self, info: Mapping[str, Any]) -> list[UserError]:
        """What is wrong with the files that ``run.json`` lists: one error per file that is missing or has changed."""
        problems = []
        for name in info.get("files", {}):
            path = self.path / name
            try:
                self.require_unchanged(info, path)
            except FileNotFoundError:
                problems.append(self.missing(info, path))
            except OSError as error:
                problems.append(self.damaged(path, f"cannot be read: {error.strerror}"))
            except UserError as error:
                problems.append(error)
        return problems

    def missing(self, info: Mapping[str, Any], path: Path) -> UserError:
        """The error for a missing file; what brings it back depends on whether the run has ended."""
        if info["status"] != Status.COMPLETE:
            return UserError(
                "no such file; the run has not ended",
                where=str(path),
                hint=f"finish it: fedsim resume {self.path}",
            )
        words = ["fedsim run", str(self.scenario), "-o", str(self.path), "--overwrite"]
        if info.get("timing_only"):
            words.append("--timing-only")
        if info.get("timeline"):
            words += ["--timeline", info["timeline"]["run"]]
        return UserError(
            "no such file, though the run is complete: the folder is damaged",
            where=str(path),
            hint=f"restore the file from a copy, or repeat the run: {' '.join(words)}",
        )

    def damaged(self, path: Path, problem: str) -> UserError:
        """The error for a damaged file, with the ways to get it back."""
        return UserError(
            problem,
            where=str(path),
            hint="restore the file from a copy, or repeat the run with --overwrite",
        )


def _is_left_over(name: str) -> bool:
    """Whether a file may lie in the folder of a run that was killed before it had written anything."""
    return name in LOCK_NAMES or name.startswith(TEMPORARY_PREFIX)


def _require_plausible(info: Mapping[str, Any], path: Path) -> None:
    """Refuse entries that readers could not work with; checksums protect later files, but not those of 0.1.0.

    Raises:
        UserError: an entry has a value that fedsim never writes.
    """
    number = (int, float)
    allowed: dict[str, tuple[type, ...]] = {
        "seed": (int,),
        "simulated_s": number,
        "wall_s": number,
        "metrics": (dict,),
        "versions": (dict,),
        "hardware": (dict,),
        "files": (dict,),
        "timeline": (dict,),
    }
    wrong = [
        key
        for key, types in allowed.items()
        if info.get(key) is not None and not isinstance(info[key], types)
    ]
    if info.get("status") not in list(Status):
        wrong.append("status")
    if wrong:
        key = wrong[0]
        raise UserError(
            f"the entry {key!r} is {json.dumps(info.get(key))}, which fedsim never writes",
            where=str(path),
            hint="restore the file from a copy, or repeat the run with --overwrite",
        )
