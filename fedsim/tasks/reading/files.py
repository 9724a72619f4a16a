"""Where the files of a dataset are: a given folder, the data folder of the machine, or a checked download."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from types import TracebackType

from pydantic import Field

from fedsim.components import Parameters
from fedsim.errors import UserError

DATA_VARIABLE = "FEDSIM_DATA"
"""Environment variable that names the folder with ``datasets/<name>/``."""

PATHS_ARE_RELATIVE = (
    "relative paths start at the scenario's folder (for fedsim data at the current one)"
)
"""Hint for a file that the user named and that does not exist."""

_ENDINGS = ("", ".gz", ".xz")


class FolderParameters(Parameters):
    """Parameters of datasets that are read from files."""

    root: Path | None = Field(default=None)
    """Folder that holds the files. When not given: $FEDSIM_DATA/datasets/<name>, else the download cache,
    else a download."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A file that can be downloaded.

    Attributes:
        urls: addresses, tried in order.
        digest: what it must hash to, ``sha256:...`` or ``md5:...``.
    """

    urls: tuple[str, ...]
    digest: str


def resolve(path: Path, folder: Path | None) -> Path:
    """``path`` relative to ``folder`` (the current one if None), ``~`` expanded."""
    path = path.expanduser()
    return path if folder is None else folder / path


def local_folder(name: str, root: Path | None, folder: Path | None) -> Path | None:
    """The folder that should hold the dataset's files without a download; None if there is none.

    Raises:
        UserError: ``root`` is given and is not a folder.
    """
    if root is not None:
        path = resolve(root, folder)
        if not path.is_dir():
            raise UserError(
                f"no such folder: {path}", where=f"dataset {name}", hint="root names it"
            )
        return path
    data = os.environ.get(DATA_VARIABLE)
    path = Path(data) / "datasets" / name if data else Path()
    return path if data and path.is_dir() else None


def find(folder: Path, file: str) -> Path | None:
    """``file`` in ``folder``, uncompressed or compressed (.gz, .xz)."""
    for ending in _ENDINGS:
        path = folder / f"{file}{ending}"
        if path.is_file():
            return path
    return None


def locate(
    name: str,
    files: Sequence[str],
    root: Path | None,
    folder: Path | None,
    remotes: Mapping[str, Remote],
) -> dict[str, Path]:
    """Paths of a dataset's files, downloaded if they are not available locally.

    Args:
        name: of the dataset.
        files: file names without .gz or .xz.
        root: folder given by the user, relative to ``folder``; nothing is downloaded then.
        folder: folder that relative paths refer to.
        remotes: where each file can be downloaded; empty if the dataset cannot be.

    Raises:
        UserError: a file is missing and cannot be downloaded.
    """
    place = local_folder(name, root, folder)
    found = {} if place is None else {file: find(place, file) for file in files}
    missing = [file for file in files if found.get(file) is None]
    if not missing:
        return {file: path for file, path in found.items() if path is not None}
    if root is not None or not remotes:
        raise absent(name, missing, place)
    return {file: download(name, remotes[file]) for file in files}


def absent(name: str, missing: Sequence[str], place: Path | None) -> UserError:
    """The error for missing files."""
    where = (
        f"in {place}"
        if place
        else f"(no root is given and ${DATA_VARIABLE} has no datasets/{name})"
    )
    return UserError(
        f"missing {', '.join(missing)} {where}",
        where=f"dataset {name}",
        hint=f"put the files into a folder and name it with root:, or as ${DATA_VARIABLE}/datasets/{name}",
    )


def require_file(path: Path) -> None:
    """Require a file that the user named.

    Raises:
        UserError: it is not.
    """
    if not path.is_file():
        raise UserError("no such file", where=str(path), hint=PATHS_ARE_RELATIVE)


def damaged(path: Path, what: str) -> UserError:
    """The error for a file with unexpected content."""
    return UserError(
        f"the file is damaged or not what was expected: {what}",
        where=str(path),
        hint="download it again, or write it again",
    )


def download(name: str, remote: Remote) -> Path:
    """The file in the download cache, downloaded if it is not there yet, and checked by its hash.

    Raises:
        UserError: no address delivers the right file.
    """
    import pooch

    cache = Path(pooch.os_cache("fedsim")) / "datasets" / name
    pooch.get_logger().setLevel("WARNING")
    problems = []
    for url in remote.urls:
        with _Bar(url.rpartition("/")[2]) as bar:
            try:
                path = pooch.retrieve(
                    url,
                    known_hash=remote.digest,
                    fname=url.rpartition("/")[2],
                    path=cache,
                    downloader=pooch.HTTPDownloader(progressbar=bar, timeout=30),
                )
            # Whatever goes wrong on the way (name look-up, refusal, wrong hash, full disk) ends this address.
            except (OSError, ValueError) as error:
                problems.append(f"{url}: {shorten(str(error), 160)}")
            else:
                return Path(path)
    raise UserError(
        "cannot download " + "; ".join(problems),
        where=f"dataset {name}",
        hint=f"download the files yourself and name their folder with root:, or as ${DATA_VARIABLE}/datasets/{name}",
    )


class _Bar:
    """Progress of one download on the terminal, in the form that pooch asks for; silent if stderr is not a terminal."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

        self._progress = Progress(
            *Progress.get_default_columns(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task(label, total=None)
        self.total = 0

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def update(self, size: int) -> None:
        """``size`` more bytes have arrived."""
        self._progress.update(self._task, advance=size, total=self.total)

    def reset(self) -> None:
        """Start again from no bytes."""
        self._progress.reset(self._task)

    def close(self) -> None:
        """The download has ended; the bar is closed by the context."""
