"""The data sets of LEAF (Caldas et al. 2018): samples by user in JSON files, or Shakespeare's plays in a plain text."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.errors import UserError
from fedsim.files.delimited import repeated
from fedsim.files.documents import parsed
from fedsim.files.downloads import Remote
from fedsim.tasks.dataset import Dataset, DatasetComponent, pixel_map
from fedsim.tasks.reading.files import (
    FolderParameters,
    absent,
    damaged,
    local_folder,
    locate,
    read_bytes,
    reading,
)
from fedsim.vocabulary.arrays import Ints

Samples = tuple[list[Any], list[Any], list[int]]
"""Samples of a subset (train or test), labels as in its files, and the number of each one's user."""


def read_leaf(
    name: str, folder: Path, read: Callable[[list[Any], list[Any]], Iterable[Any]]
) -> tuple[Samples, Samples, tuple[str, ...]]:
    """Training samples, test samples and user names (by first appearance, files in order of name).

    The files are ``train.json`` and ``test.json``, or all of ``train/*.json`` and ``test/*.json``.

    Args:
        name: name of the data set.
        folder: the folder of the files.
        read: makes a user's samples from those in the file and their labels, or raises a ValueError.
    """
    numbers: dict[str, int] = {}
    subsets: dict[str, Samples] = {"train": ([], [], []), "test": ([], [], [])}
    for subset, (all_x, all_y, users) in subsets.items():
        earlier = set[str]()
        single = folder / f"{subset}.json"
        files = [single] if single.is_file() else sorted((folder / subset).glob("*.json"))
        if not files:
            raise UserError(
                f"neither {subset}.json nor {subset}/*.json exists in {folder}",
                where=f"data set {name}",
                hint="create them with LEAF's preprocess.sh (with a split into train and test)",
            )
        for path in files:
            with reading(path, "it is not LEAF JSON"):
                content = parsed(read_bytes(path))
                listed, data = content["users"], content["user_data"]
                # A copy of a file lists its users again.
                if (twice := repeated([*listed, *earlier])) is not None:
                    raise damaged(path, f"user {twice} is listed twice, or in another file")
                earlier |= {*listed}
                if others := sorted({*data} - {*listed}):
                    raise damaged(path, f"user {others[0]} has data, but is not listed")
                counts = content.get("num_samples") or [len(data[user]["y"]) for user in listed]
                for user, count in zip(listed, counts, strict=True):
                    x, y = data[user]["x"], data[user]["y"]
                    if not len(x) == len(y) == count:
                        what = f"{len(x)} samples and {len(y)} labels, of {count}"
                        raise damaged(path, f"user {user} has {what}")
                    with reading(path, f"user {user}"):
                        all_x.extend(read(x, y))
                    all_y.extend(y)
                    users.extend([numbers.setdefault(str(user), len(numbers))] * len(y))
    return subsets["train"], subsets["test"], tuple(numbers)


_PIXELS, _CLASSES = 784, 62


class Femnist(DatasetComponent):
    """FEMNIST: handwritten characters, 28 x 28, 62 classes, grouped by writer (LEAF, Caldas et al. 2018; NIST SD 19).

    Read from LEAF's JSON files, ``train.json`` and ``test.json`` or folders of these names. White is 1, as in LEAF.
    """

    name = "femnist"
    Params = FolderParameters
    params: FolderParameters

    def load(self, folder: Path | None = None) -> Dataset:
        source = local_folder(self.name, self.params.root, folder)
        if source is None:
            raise absent(self.name, ["train.json", "test.json"], None)
        train, test, writers = read_leaf(self.name, source, _images)
        scale, shift = pixel_map()
        return Dataset(
            self.name,
            *_arrays(train),
            *_arrays(test),
            classes=_CLASSES,
            class_names=tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase),
            scale=scale,
            shift=shift,
            train_groups=np.array(train[2], dtype=np.int64),
            test_groups=np.array(test[2], dtype=np.int64),
            group_names=writers,
        )


def _images(x: list[Any], y: list[Any]) -> npt.NDArray[np.uint8]:
    """Images (n, 784), as the 8-bit numbers that LEAF divided by 255."""
    wrong = [label for label in y if type(label) is not int or not 0 <= label < _CLASSES]
    if wrong:
        raise ValueError(f"the label {wrong[0]!r} is not a whole number from 0 to {_CLASSES - 1}")
    try:
        pixels = np.array(x, dtype=np.float64).reshape(len(x), _PIXELS)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"a sample does not have {_PIXELS} numbers") from error
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError("pixels are outside 0 to 1")
    return np.rint(pixels * 255).astype(np.uint8)


def _arrays(samples: Samples) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Images (n, 1, 28, 28) and labels (n,)."""
    x, y, _ = samples
    return np.array(x, dtype=np.uint8).reshape(-1, 1, 28, 28), np.array(y, dtype=np.int64)


Codes = npt.NDArray[np.uint8]

_REMOTE = Remote(
    (
        "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/"
        "data/tinyshakespeare/input.txt",
    ),
    "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)


class Shakespeare(DatasetComponent):
    """Shakespeare's plays: 80 characters in, the next one out, grouped by role (McMahan et al. 2017; LEAF,
    Caldas et al. 2018).

    Read from LEAF's JSON files, or from a plain text (``input.txt``, "tiny Shakespeare" of char-rnn) in which speeches
    are separated by blank lines and begin with the role's name and a colon. Test samples do not overlap training
    samples.
    """

    name = "shakespeare"

    class Params(FolderParameters):
        length: int = Field(default=80, ge=1)
        """Number of characters before the one to be predicted (plain text only; LEAF files have 80)."""
        stride: int = Field(default=1, ge=1)
        """Number of characters from one sample to the next (plain text only); larger means fewer samples."""
        test_share: float = Field(default=0.2, gt=0, lt=1)
        """Share of each role's text, at its end, that becomes test samples (plain text only)."""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        source = local_folder(self.name, self.params.root, folder)
        if source and ((source / "train.json").is_file() or (source / "train").is_dir()):
            return self._from_leaf(source)
        (path,) = locate(self.name, ["input.txt"], self.params.root, folder, [_REMOTE])
        return self._from_text(path)

    def _from_leaf(self, source: Path) -> Dataset:
        lengths = set[int]()

        def joined(x: list[Any], y: list[Any]) -> list[str]:
            if not all(isinstance(text, str) for text in (*x, *y)) or {*map(len, y)} - {1}:
                raise ValueError("samples must be text, and labels single characters")
            texts = [sample + label for sample, label in zip(x, y, strict=True)]
            lengths.update(map(len, texts))
            if len(lengths) > 1 or 1 in lengths:
                raise ValueError("samples differ in length")
            return texts

        train, test, roles = read_leaf(self.name, source, joined)
        texts = train[0] + test[0]
        if not texts:
            raise damaged(source, "it has no samples")
        characters = _alphabet(texts, source)
        codes, cut = np.stack([_codes(text, characters) for text in texts]), len(train[1])
        return self._dataset(characters, ([codes[:cut]], [codes[cut:]]), (train[2], test[2]), roles)

    def _from_text(self, path: Path) -> Dataset:
        speeches = _speeches(path)
        characters = _alphabet(speeches.values(), path)
        length = self.params.length + 1
        windows: tuple[list[Codes], list[Codes]] = ([], [])
        groups: tuple[list[int], list[int]] = ([], [])
        roles: list[str] = []
        for role, text in speeches.items():
            codes = _codes(text, characters)
            cut = round(len(codes) * (1 - self.params.test_share))
            if cut < length:
                continue
            for split, text_codes in enumerate((codes[:cut], codes[cut:])):
                if len(text_codes) >= length:
                    views = np.lib.stride_tricks.sliding_window_view(text_codes, length)
                    windows[split].append(views[:: self.params.stride])
                    groups[split].extend([len(roles)] * len(windows[split][-1]))
            roles.append(role)
        if not windows[0] or not windows[1]:
            raise UserError(
                f"no role has enough text for samples of {self.params.length} characters and for test samples",
                where=path,
                hint="use a smaller length, or a different test_share",
            )
        return self._dataset(characters, windows, groups, tuple(roles))

    def _dataset(
        self,
        characters: list[str],
        windows: tuple[list[Codes], list[Codes]],
        groups: tuple[list[int], list[int]],
        roles: tuple[str, ...],
    ) -> Dataset:
        """The data set of windows (training, test) whose last character is the label."""
        train, test = map(np.concatenate, windows)
        return Dataset(
            name=self.name,
            train_x=train[:, :-1],
            train_y=train[:, -1].astype(np.int64),
            test_x=test[:, :-1],
            test_y=test[:, -1].astype(np.int64),
            classes=len(characters),
            kind="next_character",
            class_names=tuple(characters),
            train_groups=np.array(groups[0], dtype=np.int64),
            test_groups=np.array(groups[1], dtype=np.int64),
            group_names=roles,
        )


def _alphabet(texts: Iterable[str], path: Path) -> list[str]:
    characters = sorted(set().union(*texts))
    if "\0" in characters:
        raise damaged(path, "it has the character 0, which no text has")
    if len(characters) > 256:
        what = f"it has {len(characters)} different characters; at most 256 are supported"
        raise damaged(path, what)
    return characters


def _codes(text: str, characters: list[str]) -> Codes:
    """Index of each character of ``text`` in the sorted ``characters``."""
    return np.searchsorted(characters, list(text)).astype(np.uint8)


def _speeches(path: Path) -> dict[str, str]:
    """All speeches of each role, joined by line ends, roles by first appearance."""
    with reading(path):
        text = read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n")
    text = re.sub(r"(?m)^[ \t]+$|(?<=:)[ \t]+$", "", text)
    speeches: dict[str, list[str]] = {}
    for block in text.split("\n\n"):
        role, colon, speech = block.strip("\n").partition(":\n")
        if colon and "\n" not in role:
            speeches.setdefault(role, []).append(speech)
    if not speeches:
        raise damaged(path, "it has no speeches (a line 'ROLE:', then text, then a blank line)")
    return {role: "\n".join(texts) for role, texts in speeches.items()}
