"""Location of a data set's files: a given folder, the machine's data folder, or a verified download."""

from __future__ import annotations

import gzip
import lzma
import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from fedsim.errors import UserError
from fedsim.files.delimited import checked_rows
from fedsim.files.downloads import Remote, cache_folder, retrieve
from fedsim.files.durable import replacing
from fedsim.parts.component import Parameters

if TYPE_CHECKING:
    import pandas as pd

DATA_VARIABLE = "FEDSIM_DATA"
"""Environment variable that names the folder with ``datasets/<name>/``."""

PATHS_ARE_RELATIVE = "relative paths refer to the scenario's folder"
"""Hint for a file that a scenario names and that does not exist."""

_ENDINGS = ("", ".gz", ".xz")


class FolderParameters(Parameters):
    """Parameters of data sets that are read from files."""

    root: Path | None = None
    """Folder of the files; by default ``$FEDSIM_DATA/datasets/<name>`` if it exists, else the download cache, else a
    download."""


@dataclass(frozen=True, slots=True)
class Archive(Remote):
    """A .zip or .tar.gz file that can be downloaded and contains all files of a dataset.

    Attributes:
        inner: folder inside the archive; the user's folder may contain a folder of this name, too.
        ending: ending of the files inside the archive, if they are compressed.
    """

    inner: str
    ending: str = ""


def resolve(path: Path, folder: Path | None) -> Path:
    """``path`` relative to ``folder`` (the current one if None), ``~`` expanded."""
    path = path.expanduser()
    return path if folder is None else folder / path


def local_folder(name: str, root: Path | None, folder: Path | None) -> Path | None:
    """The local folder of the data set's files; None if there is none."""
    if root is not None:
        path = resolve(root, folder)
        if not path.is_dir():
            raise UserError(
                f"no such folder: {path}", where=f"data set {name}", hint="correct root"
            )
        return path
    data = os.environ.get(DATA_VARIABLE)
    path = Path(data) / "datasets" / name if data else Path()
    return path if data and path.is_dir() else None


def find(folder: Path, file: str) -> Path | None:
    """``file`` in ``folder``, uncompressed or compressed (.gz, .xz)."""
    candidates = (folder / f"{file}{ending}" for ending in _ENDINGS)
    return next((path for path in candidates if path.is_file()), None)


def locate(
    name: str,
    files: Sequence[str],
    root: Path | None,
    folder: Path | None,
    remotes: Sequence[Remote] | Archive = (),
) -> list[Path]:
    """Paths of a data set's files, downloaded if they are not available locally.

    Args:
        name: name of the dataset.
        files: file names without .gz or .xz.
        root: folder given by the user, relative to ``folder``; nothing is downloaded in this case.
        folder: folder that relative paths refer to.
        remotes: source of each file, or the archive of all files; empty if the data set cannot be downloaded.
    """
    source = local_folder(name, root, folder)
    if source is not None and isinstance(remotes, Archive) and (source / remotes.inner).is_dir():
        source = source / remotes.inner
    paths = [None if source is None else find(source, file) for file in files]
    missing = [file for file, path in zip(files, paths, strict=True) if path is None]
    if not missing:
        return [path for path in paths if path is not None]
    if root is not None or not remotes:
        raise absent(name, missing, source)
    if isinstance(remotes, Archive):
        members = [f"{remotes.inner}/{file}{remotes.ending}" for file in files]
        return _unpacked(download(name, remotes), members)
    return [download(name, remote) for remote in remotes]


def absent(name: str, missing: Sequence[str], source: Path | None) -> UserError:
    """The error for missing files."""
    where = (
        f"in {source}" if source else f"(no root is given, and no ${DATA_VARIABLE}/datasets/{name})"
    )
    return UserError(
        f"missing {', '.join(missing)} {where}",
        where=f"data set {name}",
        hint=f"put the files into a folder and name it with root: FOLDER, or as ${DATA_VARIABLE}/datasets/{name}",
    )


def require_file(path: Path) -> None:
    """Refuse a file named by the user that does not exist."""
    if not path.is_file():
        raise UserError("no such file", where=str(path), hint=PATHS_ARE_RELATIVE)


def read_table(path: Path, hint: str) -> pd.DataFrame:
    """The table in a file: Parquet if its name ends in .parquet, else CSV; ``hint`` says how to fix a damaged one."""
    import pandas as pd
    import pyarrow as pa

    require_file(path)
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        if path.suffix != ".csv":
            return pd.read_csv(path)
        # pandas renames a column that appears twice, and fills or shifts rows with too few or too many cells.
        content = path.read_bytes()
        text = TextIOWrapper(BytesIO(content), encoding="utf-8-sig", newline="")
        deque(checked_rows(text, str(path)), maxlen=0)
        return pd.read_csv(BytesIO(content))
    except (ValueError, OSError, pa.ArrowException) as error:
        # Only the parser of CSV files gives a line.
        line = re.search(r" in line (\d+)", str(error))
        where = f"{path}:{line[1]}" if line else str(path)
        raise UserError(
            f"it cannot be read: {str(error).strip()}", where=where, hint=hint
        ) from error


def row_place(path: Path, row: int) -> str:
    """``file:line`` of a row (from 0) of a CSV file, or ``file, row N`` (from 1) of a Parquet file."""
    # Imports Arrow.
    from fedsim.files.frames import TableFile
    from fedsim.files.sources import SourceFile

    return TableFile(SourceFile(path.name, str(path), path)).place(row)


def damaged(path: Path, what: str) -> UserError:
    """The error for a file with unexpected content."""
    return UserError(
        f"the file is damaged or has unexpected content: {what}",
        where=str(path),
        hint="download or create it again",
    )


def read_bytes(path: Path) -> bytes:
    """Content of a file, decompressed if its name ends in .gz or .xz."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as stream:
                return stream.read()
        if path.suffix == ".xz":
            with lzma.open(path) as stream:
                return stream.read()
        return path.read_bytes()
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise damaged(path, str(error)) from error


class NotOnDisk(UserError):
    """Data are not on this disk, and downloads are not allowed."""


_may_download = ContextVar("may_download", default=True)


@contextmanager
def no_downloads() -> Iterator[None]:
    """Raise :class:`NotOnDisk` instead of downloading."""
    token = _may_download.set(False)
    try:
        yield
    finally:
        _may_download.reset(token)


def may_download() -> bool:
    """Whether downloads are allowed."""
    return _may_download.get()


def download_cache(name: str) -> Path:
    """The folder to which files of this data set are downloaded."""
    return cache_folder("datasets", name)


def download(name: str, remote: Remote) -> Path:
    """The file in the download cache, downloaded if necessary (and allowed), and verified by its hash."""
    cache = download_cache(name)
    files = [url.rpartition("/")[2] for url in remote.urls]
    if not may_download() and not any((cache / file).is_file() for file in files):
        raise NotOnDisk("it is not on this disk", where=f"data set {name}")
    return retrieve(
        remote,
        cache,
        where=f"data set {name}",
        hint="download the files yourself and name their folder with root: FOLDER, or as "
        f"${DATA_VARIABLE}/datasets/{name}",
    )


def _unpacked(archive: Path, members: Sequence[str]) -> list[Path]:
    """Paths of the archive's members, extracted next to it if necessary."""
    paths = [archive.parent / Path(member).name for member in members]
    opened = zipfile.ZipFile if zipfile.is_zipfile(archive) else tarfile.open
    try:
        with opened(archive) as content:
            for member, path in zip(members, paths, strict=True):
                if not path.is_file():
                    with replacing(path) as temporary:
                        _copy_member(content, member, temporary)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        raise damaged(archive, str(error)) from error
    return paths


def _copy_member(content: zipfile.ZipFile | tarfile.TarFile, member: str, path: Path) -> None:
    """Copy the bytes of a member, but not its permissions, nor a link to a file outside the archive."""
    read = content.open if isinstance(content, zipfile.ZipFile) else content.extractfile
    source = read(member)
    if source is None:
        raise KeyError(f"{member} is not a file")
    with source, path.open("wb") as target:
        shutil.copyfileobj(source, target)
