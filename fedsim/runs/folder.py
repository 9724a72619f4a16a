"""The run folder: its paths, its lock, its status in ``run.json``, and the checksums of its files.

A folder is complete when ``run.json`` says so: it is written last, and holds the checksums of all other files but the
report.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from fedsim.errors import UserError, refused
from fedsim.files.checksums import file_sha256, require_regular
from fedsim.files.documents import parsed
from fedsim.files.durable import (
    FULL,
    TEMPORARY_PREFIX,
    is_disk_full,
    remove_matching,
    remove_temporaries,
    require_no_folder,
    write_text,
)
from fedsim.files.locks import LOCK_NAMES, is_owned, locked
from fedsim.runs.checkpoint import Checkpoints
from fedsim.runs.records import FACTS, RUN, is_sweep, record_of
from fedsim.runs.schema import STREAMED, STREAMED_OF_EDGES, TABLES
from fedsim.scenario import own_code
from fedsim.vocabulary.formatting import format_command

_MODELS = f"version-{'[0-9]' * 8}*.safetensors"
"""Models kept during a run."""


class Status(StrEnum):
    """State of a run."""

    RUNNING = "running"
    """In progress; in ``run.json`` also if the process was killed, see :meth:`RunFolder.status`."""
    COMPLETE = "complete"
    FAILED = "failed"
    """Ended by an error, which is in ``run.json``."""
    INTERRUPTED = "interrupted"
    """Stopped before its end, by the user or because its process was killed; can be resumed."""


class RunFolder:
    """Paths and status of one run.

    Args:
        path: the folder; it need not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.given = Path(path)
        """The folder as it was given, for messages and pages."""
        self._start = Path() if self.given.is_absolute() else Path.cwd()
        self._place(self.given)

    def _return(self) -> None:
        """Go back to the working folder, which the code of a part may have changed."""
        if not self.given.is_absolute():
            os.chdir(self._start)
        self._place(self.given)

    def _place(self, path: Path) -> None:
        self._held: os.stat_result | None = None
        self.path = path
        self.scenario = self.path / "scenario.yaml"
        """The resolved scenario."""
        self.info = self.path / RUN.file
        """Status, environment and summary figures."""
        self.model = self.path / "model.safetensors"
        """The final model."""
        self.report = self.path / "report.html"
        """The report page."""
        self.facts = self.path / FACTS.file
        """What comparisons use of the tables; absent until the run is complete."""
        self.checkpoint = self.path / "checkpoint"
        """The folder of checkpoints; absent once the run is complete."""
        self.original_scenario = self.checkpoint / "scenario.yaml"
        """The scenario as it was when the run began; absent once the run is complete."""
        self.models = self.path / "models"
        """The folder of models kept during the run."""
        self.tracking = self.path / "tracking"
        """The folder of the trackers' files."""

    def status(self, info: Mapping[str, Any]) -> Status:
        """The state of the run with this ``run.json``; a run without a process is interrupted."""
        status = Status(info["status"])
        if status is Status.RUNNING and not is_owned(self.path):
            return Status.INTERRUPTED
        return status

    def checkpoints(self, info: Mapping[str, Any]) -> Checkpoints:
        """The checkpoints of the run with this ``run.json``."""
        return Checkpoints(self.checkpoint, info["files"].get(self.scenario.name, ""))

    def stream(self, table: str) -> Path:
        """The Arrow stream of a table of a run in progress."""
        return self.path / f"{table}.arrows"

    def parquet(self, table: str) -> Path:
        """The finished file of a table."""
        return self.path / f"{table}.parquet"

    @contextlib.contextmanager
    def claimed(self, *, overwrite: bool = False) -> Iterator[None]:
        """Make the folder of a new run, and hold its lock.

        Args:
            overwrite: replace an existing run: remove the files that fedsim wrote, and nothing else. A run that failed
                is replaced without it.
        """
        self._return()
        self.require_free(overwrite)
        is_held = False
        try:
            with locked(self.path):
                is_held = True
                self.require_free(overwrite)
                self.remove()
                with self._noting_interruption():
                    yield
        except UserError as error:
            if not is_disk_full(error):
                raise
            raise self.no_room() from error
        finally:
            # Not those of the process that holds the lock.
            is_left = is_held and self.path.is_dir()
            names = {item.name for item in self.path.iterdir()} if is_left else None
            if names is not None and names <= set(LOCK_NAMES):
                for name in names:
                    (self.path / name).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    self.path.rmdir()

    @contextlib.contextmanager
    def reclaimed(self) -> Iterator[None]:
        """Hold the lock of the folder of an existing run."""
        with locked(self.path):
            self._require_no_folders()
            remove_temporaries(self.path)
            with self._noting_interruption():
                yield

    @contextlib.contextmanager
    def _noting_interruption(self) -> Iterator[None]:
        """Set the status ``interrupted`` even if the process is stopped while the run is being prepared."""
        # The code of a part may change the working folder.
        self._place(self._start / self.given)
        self._held = os.stat(self.path)
        try:
            yield
        except KeyboardInterrupt:
            if RUN.is_in(self.path) and self.read_info()["status"] == Status.RUNNING:
                self.close(Status.INTERRUPTED)
            raise
        finally:
            self._return()

    def require_free(self, overwrite: bool) -> None:
        """Check that a new run may take the folder."""
        if not (self.path.is_symlink() or self.path.exists()):
            return
        hint = "choose another output folder with -o (in Python: output)"
        if not self.path.is_dir():
            raise UserError("a file with this name exists", where=self.given, hint=hint)
        # A run that was killed before it had written anything may have left its lock and temporary files.
        names = [item.name for item in self.path.iterdir()]
        if all(name in LOCK_NAMES or name.startswith(TEMPORARY_PREFIX) for name in names):
            return
        message = "the output folder exists and is not empty"
        if self._is_own():
            if not self.has_begun:
                return
            info = self.read_info()
            if overwrite or info["status"] == Status.FAILED:
                return
            hint += ", or replace the run with --overwrite (overwrite=True)"
            if info["status"] != Status.COMPLETE and "app" not in info:
                hint += f"; {self.next_step(info)}"
        else:
            self.require_intact_info()
            if overwrite:
                message = "the folder is not a run folder, so it is not overwritten"
        raise UserError(message, where=self.given, hint=hint)

    @property
    def has_begun(self) -> bool:
        """Whether a run has written its scenario here; one that was killed earlier has nothing to resume."""
        return RUN.is_in(self.path) and bool(self.read_info().get("files"))

    def _is_own(self) -> bool:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            require_regular(self.info)
            info = parsed(self.info.read_text(encoding="utf-8"))
            return isinstance(info["format"], int) and "fedsim-des" in info["versions"]
        return False

    def require_intact_info(self) -> None:
        """Refuse the files of a run whose ``run.json`` has been lost."""
        if len({*self._results, *self._streams}.intersection(self.path.glob("*"))) > 2:
            with contextlib.suppress(FileNotFoundError):
                RUN.read(self.path)
            raise RUN.damaged(self.info, "is missing or damaged, but the folder has files of a run")

    def no_room(self) -> UserError:
        """The error for a run that ran out of disk space, with the command that continues it."""
        command = "repeat the command"  # That of a sweep or an answer repeats its runs.
        if self.has_begun and not any(map(record_of, self.path.absolute().parents[:2])):
            command = self.next_step({**self.read_info(), "status": Status.INTERRUPTED})
        return UserError(FULL, where=self.given, hint=f"free space, then {command}")

    def make_room(self) -> None:
        """Remove the streams of a run that ran out of disk space, so that its status can be written.

        Resuming writes them again.
        """
        for path in self._streams:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        remove_temporaries(self.path)

    def remove(self) -> None:
        """Remove the files that fedsim wrote; the folder is removed when its lock is released, if it is empty."""
        self._require_no_folders()
        info = self.read_info() if RUN.is_in(self.path) else {"files": {}}
        tracked = info.get("tracking")
        inside: dict[Path, Iterable[str]] = {
            self.models: (_MODELS,),
            self.tracking: ("*",) if tracked is None else map(glob.escape, tracked),
            self.path / own_code.FOLDER: [glob.escape(path.name) for path in self._code(info)],
        }
        what = "cannot remove the files of the earlier run"
        with refused(what, self.path, "choose another output folder with -o"):
            self.checkpoints(info).remove()
            for folder, patterns in inside.items():
                remove_matching(folder, (*patterns, f"{TEMPORARY_PREFIX}*"))
            for path in self._files:
                path.unlink(missing_ok=True)
            remove_temporaries(self.path)

    def _require_no_folders(self) -> None:
        for path in self._files:
            require_no_folder(path)

    @property
    def _files(self) -> list[Path]:
        # run.json last, so that what is left by a killed process is recognized as fedsim's.
        return [*self._results, *self._streams, self.report, self.facts, self.info]

    @property
    def _results(self) -> list[Path]:
        tables = [self.parquet(table.name) for table in TABLES]
        return [self.scenario, self.model, *tables]

    def _code(self, info: Mapping[str, Any]) -> list[Path]:
        """The files with the source of classes that had none."""
        names = {name.rpartition(":")[0] for name in info.get("user_code", {})}
        files = (self.path / own_code.FOLDER).glob("*.py")
        return [path for path in files if self._name(path) in names]

    @property
    def _streams(self) -> list[Path]:
        return [self.stream(table.name) for table in (*STREAMED, *STREAMED_OF_EDGES)]

    # -- content ----------------------------------------------------------------------------------------------------

    def begin(self, scenario: str, info: Mapping[str, Any]) -> None:
        """Write the first files of a run: its scenario, and ``run.json`` with the status ``running``.

        A copy of the scenario, resolved and as YAML, is kept with the checkpoints, so that ``resume`` can name later
        edits.
        """
        # run.json first, so that files left by a run killed in between are recognized as fedsim's.
        RUN.write(self.path, {**info, "status": Status.RUNNING, "files": {}})
        self.checkpoint.mkdir(exist_ok=True)
        write_text(self.original_scenario, scenario)
        write_text(self.scenario, scenario)
        self.update_info(files={self.scenario.name: file_sha256(self.scenario)})

    def close(self, status: Status, **changes: Any) -> dict[str, Any]:
        """Set the status of a run whose process ends, with the checksum of every file but the report.

        ``changes`` are other entries of ``run.json``, whose new content is returned.
        """
        paths = [
            *self._results,
            *self._streams,
            *self.models.glob(_MODELS),
            *self._code(self.read_info()),
        ]
        files = {self._name(path): file_sha256(path) for path in paths if path.is_file()}
        # A model kept before an interruption has the checksum that it had then.
        files |= self._checksums_of_models()
        tracked = sorted(path.name for path in self.tracking.glob("*"))
        return self.update_info(status=status, files=files, tracking=tracked, **changes)

    def reopen(self, **changes: Any) -> None:
        """Set the status ``running``, and other entries, of a run that is resumed, whose tables are written again."""
        files = {self.scenario.name: file_sha256(self.scenario), **self._checksums_of_models()}
        self.update_info(status=Status.RUNNING, files=files, **changes)

    @contextlib.contextmanager
    def tables_aside(self) -> Iterator[Callable[[], None]]:
        """Keep the tables of an interrupted run while they are written again.

        The value is a function that puts them back in place of the new ones, which must be closed; they are removed at
        the end. If the process is killed, the next :meth:`reclaimed` removes them.
        """
        aside, tables = {}, [*self._streams, *(self.parquet(table.name) for table in TABLES)]
        for path in tables:
            if path.exists():
                aside[path] = path.with_name(f"{TEMPORARY_PREFIX}{path.name}")
                os.replace(path, aside[path])

        def put_back() -> None:
            for path in tables:
                path.unlink(missing_ok=True)
            for path, moved in aside.items():
                os.replace(moved, path)

        try:
            yield put_back
        finally:
            for moved in aside.values():
                moved.unlink(missing_ok=True)

    def _checksums_of_models(self) -> dict[str, str]:
        files = self.read_info().get("files") or {}
        return {name: files[name] for name in files if name.startswith(f"{self.models.name}/")}

    def _name(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def read_info(self) -> dict[str, Any]:
        """The content of ``run.json``."""
        hint = "give the folder that 'fedsim run' printed (in Python: the run's path)"
        if not self.path.is_dir():
            hint += "; if it was stopped before it wrote anything, run it again"
            raise UserError("no such run folder", where=self.given, hint=hint)
        try:
            return RUN.read(self.path)
        except FileNotFoundError:
            self.require_in_place()
            self.require_intact_info()
            raise UserError(
                "the folder has no run.json, so it is not a fedsim run",
                where=self.given,
                hint="give a run in it, or continue the sweep by repeating the 'fedsim sweep' command or the "
                "fedsim.sweep() call that started it"
                if is_sweep(self.path)
                else hint,
            ) from None

    def require_in_place(self) -> None:
        """Refuse another folder in the place of the one that this process has claimed."""
        if self._held is not None and not os.path.samestat(self._held, os.stat(self.path)):
            message = "another folder is in the place of this run's, which was moved or removed"
            raise UserError(message, where=self.given, hint="resume the run where its folder is")

    def update_info(self, **changes: Any) -> dict[str, Any]:
        """Change entries of ``run.json``; returns its new content."""
        self.require_in_place()
        RUN.write(self.path, {**(self.read_info() if RUN.is_in(self.path) else {}), **changes})
        return self.read_info()

    def require_unchanged(self, info: Mapping[str, Any], path: Path) -> None:
        """Compare a file of this folder with its checksum in ``run.json``, which that of a complete run has."""
        name = self._name(path)
        if info["status"] == Status.COMPLETE and name not in info["files"]:
            raise RUN.damaged(path, f"is not listed in {RUN.file}")
        try:
            RUN.require_intact(self.path, info, name)
        except UserError:
            if (latest := self.read_info()) == info:
                raise
            self.require_unchanged(latest, path)  # Another process has resumed or replaced the run.

    def intact_scenario(self) -> Path:
        """``scenario.yaml``, which nobody has edited."""
        self.require_unchanged(self.read_info(), self.scenario)
        return self.scenario

    def problems(
        self, info: Mapping[str, Any], names: Iterable[str] | None = None
    ) -> list[UserError]:
        """One error per file with these names, or of the run, that is missing, not in ``run.json`` or has changed."""
        problems = []
        if names is None:
            there = [path for path in self._results if path.exists()]
            names = dict.fromkeys([*info["files"], *map(self._name, there)])
        for name in names:
            if not os.path.exists(self.path / name):  # Of Path, a name can be too long.
                problems.append(self.missing(info, self.path / name))
                continue
            try:
                self.require_unchanged(info, self.path / name)
            except UserError as error:
                problems.append(error)
        return problems

    def missing(self, info: Mapping[str, Any], path: Path) -> UserError:
        """The error for a missing file; its hint depends on whether the run has ended."""
        if info["status"] != Status.COMPLETE:
            return UserError(
                "no such file; the run has not ended",
                where=path,
                hint=f"finish it: {format_command('resume', self.given)}",
            )
        return UserError(
            "no such file, though the run is complete: the folder is damaged",
            where=path,
            hint=f"restore the file from a copy, or repeat the run: {self._repeated(info, '--overwrite')}",
        )

    def next_step(self, info: Mapping[str, Any]) -> str:
        """What to do with a run that is not complete, with the command."""
        status = self.status(info)
        if status is Status.RUNNING:
            return f"in progress; to watch it: {format_command('watch', self.given)}"
        after_fixing = "after fixing the cause, " if status is Status.FAILED else ""
        if is_sweep(self.path.parent):
            return f"{after_fixing}repeat the command of the sweep"
        if info.get("app") or not self.has_begun:
            replacing = "" if after_fixing or not self.has_begun else ", with --overwrite"
            return f"{after_fixing}repeat the command that began the run{replacing}"
        if status is Status.INTERRUPTED:
            return f"continue with: {format_command('resume', self.given)}"
        return f"{after_fixing}run the scenario again: {self._repeated(info)}"

    def _repeated(self, info: Mapping[str, Any], *options: str) -> str:
        scenario = self.scenario if self.scenario.exists() else "SCENARIO"
        words = ["run", scenario, "-o", self.path, *options]
        if info.get("timing_only"):
            words.append("--timing-only")
        return format_command(*words)
