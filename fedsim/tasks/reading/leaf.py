"""LEAF JSON (Caldas et al. 2018): samples by user."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.errors import UserError
from fedsim.tasks.reading.files import damaged


@dataclass(frozen=True, slots=True)
class LeafPart:
    """The samples of one part (train or test), users after one another.

    Attributes:
        x: samples as the files have them.
        y: labels as the files have them.
        users: index into the list of user names for each sample.
    """

    x: list[Any]
    y: list[Any]
    users: list[int]


def read_leaf(name: str, folder: Path) -> tuple[LeafPart, LeafPart, tuple[str, ...]]:
    """Training part, test part and user names (by first appearance, files in order of name).

    The files are ``train.json`` and ``test.json``, or all of ``train/*.json`` and ``test/*.json``.

    Raises:
        UserError: files are missing or damaged.
    """
    names: dict[str, int] = {}
    parts = []
    for part in ("train", "test"):
        single = folder / f"{part}.json"
        files = [single] if single.is_file() else sorted((folder / part).glob("*.json"))
        if not files:
            raise UserError(
                f"neither {part}.json nor {part}/*.json in {folder}",
                where=f"dataset {name}",
                hint="LEAF's preprocess.sh writes them (with a split into train and test)",
            )
        read = LeafPart([], [], [])
        for path in files:
            _read_file(path, names, read)
        parts.append(read)
    return parts[0], parts[1], tuple(names)


def _read_file(path: Path, names: dict[str, int], into: LeafPart) -> None:
    try:
        content = json.loads(path.read_bytes())
        for user in content["users"]:
            data = content["user_data"][user]
            if len(data["x"]) != len(data["y"]):
                raise damaged(
                    path, f"user {user} has {len(data['x'])} samples and {len(data['y'])} labels"
                )
            number = names.setdefault(str(user), len(names))
            into.x.extend(data["x"])
            into.y.extend(data["y"])
            into.users.extend([number] * len(data["y"]))
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, f"it is not LEAF JSON ({type(error).__name__}: {error})") from error
