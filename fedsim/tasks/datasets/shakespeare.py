"""Shakespeare: the next character, by speaking role."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.errors import UserError
from fedsim.files.downloads import Remote
from fedsim.tasks.dataset import Dataset, DatasetComponent, deferred
from fedsim.tasks.reading.files import FolderParameters, damaged, local_folder, locate
from fedsim.tasks.reading.images import read_bytes
from fedsim.tasks.reading.leaf import read_leaf

Codes = npt.NDArray[np.uint8]

_REMOTE = Remote(
    (
        "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/"
        "data/tinyshakespeare/input.txt",
    ),
    "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)


class ShakespeareParameters(FolderParameters):
    """Parameters of Shakespeare."""

    length: int = Field(default=80, ge=1)
    """Number of characters before the one to be predicted (plain text only; LEAF files have 80)."""
    stride: int = Field(default=1, ge=1)
    """Number of characters from one sample to the next (plain text only); larger means fewer samples."""
    test_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of each role's text, at its end, that becomes test samples (plain text only)."""


class Shakespeare(DatasetComponent):
    """Shakespeare's plays: 80 characters in, the next one out, grouped by role (McMahan et al. 2017; LEAF,
    Caldas et al. 2018).

    Read from LEAF's JSON files, or from a plain text (``input.txt``, "tiny Shakespeare" of char-rnn) in which speeches
    are separated by blank lines and begin with the role's name and a colon. Test samples do not overlap training
    samples.
    """

    name = "shakespeare"
    Params = ShakespeareParameters
    params: ShakespeareParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The samples as character codes."""
        source = local_folder(self.name, self.params.root, folder)
        if source and ((source / "train.json").is_file() or (source / "train").is_dir()):
            return self._from_leaf(source)
        (path,) = locate(self.name, ["input.txt"], self.params.root, folder, [_REMOTE])
        return self._from_text(path)

    def _from_leaf(self, source: Path) -> Dataset:
        train, test, roles = read_leaf(self.name, source)
        samples = [*zip(train.x, train.y, strict=True), *zip(test.x, test.y, strict=True)]
        if not all(isinstance(text, str) for sample in samples for text in sample):
            raise damaged(source, "samples and labels must be text")
        texts = [x + y for x, y in samples]
        if len({len(text) for text in texts}) != 1 or len(texts[0]) < 2:
            raise damaged(source, "samples differ in length")
        characters = sorted(set("".join(texts)))
        if len(characters) > 256:
            raise damaged(
                source, f"it has {len(characters)} different characters; at most 256 are supported"
            )
        codes, cut = np.stack([_codes(text, characters) for text in texts]), len(train.y)
        return self._dataset(
            characters, ([codes[:cut]], [codes[cut:]]), (train.users, test.users), roles
        )

    def _from_text(self, path: Path) -> Dataset:
        speeches = _speeches(path)
        characters = sorted(set().union(*speeches.values()))
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
                where=str(path),
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
        """The data set of windows (training, test) whose last character is the label; copied on first use."""
        train, test = windows
        return Dataset(
            name=self.name,
            train_x=_all_but_last(train),
            train_y=_last(train),
            test_x=_all_but_last(test),
            test_y=_last(test),
            classes=len(characters),
            kind="next_character",
            class_names=tuple(characters),
            train_groups=np.array(groups[0], dtype=np.int64),
            test_groups=np.array(groups[1], dtype=np.int64),
            group_names=roles,
        )


def _codes(text: str, characters: list[str]) -> Codes:
    """Index of each character of ``text`` in the sorted ``characters``."""
    return np.searchsorted(characters, list(text)).astype(np.uint8)


def _all_but_last(windows: list[Codes]) -> Codes:
    shape = (sum(map(len, windows)), windows[0].shape[1] - 1)
    return deferred(shape, np.uint8, lambda: np.concatenate(windows)[:, :-1])


def _last(windows: list[Codes]) -> npt.NDArray[np.int64]:
    return np.concatenate([window[:, -1] for window in windows]).astype(np.int64)


def _speeches(path: Path) -> dict[str, str]:
    """All speeches of each role, joined by line ends, roles by first appearance."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise damaged(path, str(error)) from error
    speeches: dict[str, list[str]] = {}
    for block in text.split("\n\n"):
        role, colon, speech = block.strip("\n").partition(":\n")
        if colon and "\n" not in role:
            speeches.setdefault(role, []).append(speech)
    if not speeches:
        raise damaged(path, "it has no speeches (a line 'ROLE:', then text, then a blank line)")
    return {role: "\n".join(texts) for role, texts in speeches.items()}
