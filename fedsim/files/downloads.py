"""Downloads into the user's cache; a file is used only if it has the expected hash."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from types import SimpleNamespace
from typing import TYPE_CHECKING

from fedsim.errors import UserError
from fedsim.files import terminal

if TYPE_CHECKING:
    from rich.progress import Progress

_MOST_S = (10, 30)
"""Seconds until a server accepts a connection, of which a host may have several, and between parts of the file."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A file that can be downloaded.

    Attributes:
        urls: addresses, tried in order.
        digest: expected hash, ``sha256:...`` or ``md5:...``.
    """

    urls: tuple[str, ...]
    digest: str


def cache_folder(*names: str) -> Path:
    """A folder of the user's cache of downloads."""
    import pooch

    return Path(pooch.os_cache("fedsim")).joinpath(*names)


def retrieve(remote: Remote, folder: Path, *, where: str, hint: str) -> Path:
    """The file in ``folder``, downloaded if it is not there with the expected hash.

    Args:
        remote: the file.
        folder: a folder of the cache.
        where: what the file belongs to, for messages.
        hint: what to do if the download fails.
    """
    import pooch
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    pooch.get_logger().setLevel("WARNING")
    problems = []
    for url in remote.urls:
        file = url.rpartition("/")[2]
        with Progress(
            *Progress.get_default_columns(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=terminal.console(stderr=True),
            disable=not sys.stderr.isatty(),
        ) as progress:
            try:
                path = pooch.retrieve(
                    url,
                    known_hash=remote.digest,
                    fname=file,
                    path=folder,
                    downloader=pooch.HTTPDownloader(
                        progressbar=_bar(progress, file), timeout=_MOST_S
                    ),
                )
            # After any failure (name lookup, refusal, wrong hash, full disk), the next address is tried.
            except (OSError, ValueError) as error:
                problems.append(f"{url}: {shorten(str(error), 160)}")
            else:
                return Path(path)
    raise UserError("cannot download " + "; ".join(problems), where=where, hint=hint)


def _bar(progress: Progress, file: str) -> SimpleNamespace:
    """A progress bar with pooch's interface: pooch sets ``total`` and calls the functions."""
    task = progress.add_task(file, total=None)
    bar = SimpleNamespace(total=0, reset=lambda: progress.reset(task), close=lambda: None)

    def update(size: int) -> None:
        progress.update(task, advance=size, total=bar.total)
        if progress.tasks[task].completed > 1 << 30:  # Twice the largest file, that of EMNIST.
            raise ValueError("it does not end after 1 GiB")

    bar.update = update
    return bar
