"""LEAF JSON (Caldas et al. 2018): samples by user."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsim.errors import UserError
from fedsim.files.documents import parsed
from fedsim.tasks.reading.files import damaged


@dataclass(frozen=True, slots=True)
class LeafPart:
    """The samples of one subset (train or test), user by user.

    Attributes:
        x, y: samples and labels as stored in the files.
        users: index of each sample's user in the list of user names.
    """

    x: list[Any] = field(default_factory=list)
    y: list[Any] = field(default_factory=list)
    users: list[int] = field(default_factory=list)


def read_leaf(name: str, folder: Path) -> tuple[LeafPart, LeafPart, tuple[str, ...]]:
    """Training samples, test samples and user names (by first appearance, files in order of name).

    The files are ``train.json`` and ``test.json``, or all of ``train/*.json`` and ``test/*.json``.
    """
    user_numbers: dict[str, int] = {}
    train, test = LeafPart(), LeafPart()
    for subset, samples in (("train", train), ("test", test)):
        single = folder / f"{subset}.json"
        files = [single] if single.is_file() else sorted((folder / subset).glob("*.json"))
        if not files:
            raise UserError(
                f"neither {subset}.json nor {subset}/*.json exists in {folder}",
                where=f"data set {name}",
                hint="create them with LEAF's preprocess.sh (with a split into train and test)",
            )
        for path in files:
            _read_file(path, user_numbers, samples)
    return train, test, tuple(user_numbers)


def _read_file(path: Path, user_numbers: dict[str, int], samples: LeafPart) -> None:
    """Append a file's samples, and number its users."""
    try:
        content = parsed(path.read_bytes())
        for user in content["users"]:
            x, y = content["user_data"][user]["x"], content["user_data"][user]["y"]
            if len(x) != len(y):
                raise damaged(path, f"user {user} has {len(x)} samples and {len(y)} labels")
            number = user_numbers.setdefault(str(user), len(user_numbers))
            samples.x.extend(x)
            samples.y.extend(y)
            samples.users.extend([number] * len(y))
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, f"it is not LEAF JSON ({type(error).__name__}: {error})") from error
