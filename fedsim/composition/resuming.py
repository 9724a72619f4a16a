"""The scenario with which a run is resumed: the original one, apart from settings that never change a result."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsim import bundled
from fedsim.errors import UserError, raise_all
from fedsim.files.checksums import data_sha256, file_sha256
from fedsim.runs.folder import RunFolder
from fedsim.scenario import own_code
from fedsim.scenario.comparing import differences, flattened, text
from fedsim.scenario.description import section_of
from fedsim.scenario.loading import LoadedScenario, load_scenario
from fedsim.scenario.overrides import Override
from fedsim.scenario.source import read_yaml
from fedsim.vocabulary.formatting import format_command, format_names
from fedsim.vocabulary.timeline import TimelineDiffers

MAY_CHANGE = (
    "training.workers",
    "training.threads",
    "training.memory",
    "training.cuda_graphs",
    "logging",
)
"""Settings that may change when a run is resumed, because they never change a result."""


def require_simulated(info: Mapping[str, Any], where: Path) -> None:
    """Refuse to simulate the run of a real deployment, whose clients only its ServerApp reaches."""
    if info.get("clock") == "wall":
        raise UserError(
            "the clients of this run were real nodes, which no simulation can continue or repeat",
            where=where,
            hint="start its ServerApp again: it continues a run that was interrupted; for a change, give it another "
            "scenario and output",
        )


def load_original(
    folder: RunFolder, info: Mapping[str, Any], overrides: Sequence[Override | str]
) -> LoadedScenario:
    """The scenario of a run, with overrides of settings in :data:`MAY_CHANGE`."""
    _require_original_scenario(folder, info)
    raise_all(changed_files(folder, info))
    moved = [
        Override(key, there, str(folder.scenario))
        for key, value in flattened(_content(folder.scenario))
        if isinstance(value, str) and (there := _in_moved_project(folder, info, value)) != value
    ]
    try:
        loaded = load_scenario(folder.scenario, overrides=moved)
    except UserError as error:
        given = [name for name in info.get("user_code", {}) if name.startswith(own_code.FOLDER)]
        if not given:
            raise
        raise UserError(
            f"the run uses {', '.join(given)}, a class that was defined in Python: {error}",
            where=folder.path,
            hint="put the class into a file, name it file.py:ClassName in the scenario, and run it again",
        ) from error
    if not overrides:
        return loaded
    changed = loaded.changed(overrides)
    raise_all(
        UserError(
            f"{path} affects the result, so it cannot change when a run is resumed",
            where=changed.source.value_place(tuple(path.split("."))),
            hint=f"a resumed run may change {', '.join(MAY_CHANGE)}; for other changes begin a new run",
        )
        for path, _, _ in differences(loaded.resolved(), changed.resolved())
        if not any(f"{path}.".startswith(f"{allowed}.") for allowed in MAY_CHANGE)
    )
    return changed


OF_TIME = (
    *("selection", "schedule", "compute", "availability", "network", "transport", "exchange"),
    *("partition", "dataset", "task"),
)
"""Kinds of parts that affect time."""


def timeline_differs(
    error: TimelineDiffers, loaded: LoadedScenario, folder: RunFolder
) -> UserError:
    """The error for a run whose timeline is not repeated, with the user's parts that may be the cause."""
    causes = [
        f"{Path(part.name).name} ({section_of(part.kind)})"
        for part in loaded.parts()
        if part.user is not None and part.kind in OF_TIME
    ]
    hint = f"fedsim or a library has probably changed: resume it with the versions in {folder.info.name}"
    if causes:
        hint = f"{format_names(causes)} must be a function of the seed: 'fedsim scenario check --replay' names why"
    return UserError(
        f"{error.message}; the run and its checkpoint stay as they are",
        where=folder.path,
        hint=f"{hint}\n  or begin a new run: {_again(folder)}",
    )


def _again(folder: RunFolder) -> str:
    return format_command("run", folder.scenario, "-o", "NEW_FOLDER")


def changed_files(folder: RunFolder, info: Mapping[str, Any]) -> list[UserError]:
    """One error per file of a user's code or data that has changed since the run began; no file is imported."""
    changed = []
    for name, digest in info.get("user_code", {}).items():
        path = folder.path / _in_moved_project(folder, info, name).rpartition(":")[0]
        if digest is not None and path.is_file() and file_sha256(path) != digest:
            changed.append(("the code has changed", path))
    for name, digest in info.get("data_files", {}).items():
        path = bundled.resolved(_in_moved_project(folder, info, name))
        if path.exists() and data_sha256(path) != digest:
            changed.append(("the data have changed", path))
    return [
        UserError(
            f"{what} since the run began",
            where=path,
            hint=f"undo the change, or begin a new run: {_again(folder)}",
        )
        for what, path in changed
    ]


def _in_moved_project(folder: RunFolder, info: Mapping[str, Any], path: str) -> str:
    """A path (or ``file.py:Class``) of the scenario, in the present place of a project that was moved with its runs."""
    folders = info.get("folders")
    if folders is None or not path.startswith(f"{folders['project']}{os.sep}"):
        return path
    project = folder.path.resolve() / os.path.relpath(folders["project"], folders["run"])
    moved = os.path.join(os.path.normpath(project), os.path.relpath(path, folders["project"]))
    before, now = (Path(re.sub(r"(\.py):\w+$", r"\1", one)) for one in (path, moved))
    return moved if now.exists() and not before.exists() else path


def _require_original_scenario(folder: RunFolder, info: Mapping[str, Any]) -> None:
    """Refuse a scenario that was edited after the run began; name the keys if the original is still there."""
    original, is_kept = folder.original_scenario, False
    with contextlib.suppress(OSError):
        is_kept = file_sha256(original) == info["files"].get(folder.scenario.name)
    if not folder.scenario.exists():
        restored = f"cp {original} {folder.scenario}" if is_kept else "from a copy"
        raise UserError(
            "cannot be read: No such file or directory",
            where=folder.scenario,
            hint=f"restore it: {restored}",
        )
    try:
        folder.require_unchanged(info, folder.scenario)
    except UserError:
        changes = []
        with contextlib.suppress(UserError):
            before, now = map(_content, (original, folder.scenario))
            changes = [
                f"{key} was {text(old)} and is {text(new)}"
                for key, old, new in differences(before, now)
            ]
        raise UserError(
            f"the scenario has changed since the run began{': ' if changes else ''}{'; '.join(changes)}",
            where=folder.scenario,
            hint=f"undo the change{f' (the original is {original})' if is_kept else ''}, or begin a new run; "
            "'fedsim resume -s' changes the settings that may differ",
        ) from None


def _content(path: Path) -> Mapping[str, Any]:
    data = read_yaml(path).data
    if not isinstance(data, dict):
        raise UserError("is not a scenario", where=path)
    return data
