"""A data set's files: a given folder, the machine's data folder or a verified download; tables and arrays in them."""

from __future__ import annotations

import lzma
import math
import os
import re
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError, reason, refused
from fedsim.files.checksums import require_file, require_regular
from fedsim.files.delimited import checked_rows, repeated
from fedsim.files.downloads import Remote, cache_folder, retrieve
from fedsim.files.durable import replacing
from fedsim.files.room import open_parquet, require_room
from fedsim.files.sources import CODECS, unpacked
from fedsim.files.unpickling import DamagedPickle, RefusedPickle, load_plain
from fedsim.parts.component import Parameters
from fedsim.vocabulary.arrays import Array, Bools

if TYPE_CHECKING:
    import pandas as pd

DATA_VARIABLE = "FEDSIM_DATA"
"""Environment variable that names the folder with ``datasets/<name>/``."""

_ENDINGS = ("", *CODECS)


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
    """``file`` in ``folder``, uncompressed or compressed (.gz, .bz2, .xz, .zst)."""
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
        files: file names without .gz and the like.
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


_DAMAGED = "the file is damaged or has unexpected content"
_AGAIN = "remove it, and download or create it again"
_DAMAGE = (
    *(ValueError, OSError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError),
    *(EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, TokenError),
)
"""What libraries raise for files that they cannot decode or convert."""


_ROWS = r"__index_level_\d+__"
"""What pandas calls an index without a name."""


def read_table(path: Path, hint: str, names: Collection[str] = ()) -> pd.DataFrame:
    """The table in a file: Parquet if its name ends in .parquet, else CSV, which may be compressed.

    Args:
        path: the file.
        hint: how to fix a damaged one.
        names: columns with names, such as NA, which stay text if some would be the same number, as 007 and 7.
    """
    import pandas as pd
    import pyarrow as pa

    from fedsim.files.cells import UNKNOWN_TEXT, are_rounded
    from fedsim.files.sources import SourceFile

    require_file(path)
    try:
        is_parquet = path.suffix.lower() == ".parquet"
        if is_parquet:
            content = open_parquet(path, path).read()
            content.validate(full=True)
            for at, field in enumerate(content.schema):
                # Names stay exact: as floats, long ones would become one.
                if pa.types.is_decimal(field.type) and field.name not in names:
                    floats = content.column(at).cast(pa.float64())
                    content = content.set_column(at, field.name, floats)
            # What pandas wrote about columns and its index may be wrong, or hide them.
            table: pd.DataFrame = content.to_pandas(ignore_metadata=True)
            table = table[[name for name in table if not re.fullmatch(_ROWS, str(name))]]
        else:
            # pandas renames a column that appears twice, and fills or shifts rows with too few or too many cells.
            content = read_bytes(path)
            SourceFile(path.name, str(path), content).require_text()
            lines = TextIOWrapper(BytesIO(content), encoding="utf-8-sig", newline="")
            deque(checked_rows(lines, str(path)), maxlen=0)
            table = pd.read_csv(BytesIO(content), low_memory=False)
            table.columns = table.columns.str.strip()
        for name in {*names} & {*table.columns} - {*table.select_dtypes("bool")}:
            column, place = table[name], table.columns.get_loc(name)
            is_number = column.dtype.kind in "iuf"
            if not is_parquet:
                words = pd.read_csv(
                    BytesIO(content), usecols=[place], dtype=str, keep_default_na=False
                ).iloc[:, 0]
            elif (kind := pd.api.types.infer_dtype(words := column.astype(object))) != "string":
                if kind in ("bytes", "mixed"):
                    raise ValueError(f"column '{name}' has bytes, lists or objects, not names")
                continue
            texts = words.str.strip()
            if are_rounded(pa.array(texts, pa.string())).any():
                raise ValueError(f"column '{name}' has names that a spreadsheet has rounded")
            if not is_number or texts[column.notna()].nunique() > column.nunique():
                table[name] = texts.mask(texts.isin(UNKNOWN_TEXT))
        return table
    except (*_DAMAGE, pa.ArrowException) as error:
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

    return TableFile(SourceFile(path.name, str(path), read_bytes(path))).place(row)


def damaged(path: Path, what: str) -> UserError:
    """The error for a file with unexpected content."""
    return UserError(f"{_DAMAGED}: {what}", where=path, hint=_AGAIN)


def reading(path: Path, what: str = "") -> AbstractContextManager[None]:
    """Turn an error of a library inside into that of a :func:`damaged` file; ``what`` describes it."""
    return refused(f"{_DAMAGED}: {what}".removesuffix(": "), path, _AGAIN, _DAMAGE)


def read_bytes(path: Path) -> bytes:
    """Content of a file, decompressed if its name ends in .gz, .bz2, .xz or .zst."""
    with reading(path):
        require_regular(path)
        with path.open("rb") as file:
            return unpacked(file, path.suffix.lower(), path, path.stat().st_size)


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
    broken = (tarfile.TarError, zipfile.BadZipFile, zlib.error, KeyError, EOFError)
    with refused(_DAMAGED, archive, _AGAIN, broken), opened(archive) as content:
        for member, path in zip(members, paths, strict=True):
            if not path.is_file():
                with replacing(path) as temporary:
                    _copy_member(content, member, temporary)
    return paths


def _copy_member(content: zipfile.ZipFile | tarfile.TarFile, member: str, path: Path) -> None:
    """Copy the bytes of a member, but not its permissions, nor a link to a file outside the archive."""
    read = content.open if isinstance(content, zipfile.ZipFile) else content.extractfile
    source = read(member)
    if source is None:
        raise KeyError(f"{member} is not a file")
    with source, path.open("wb") as target:
        shutil.copyfileobj(source, target)


# Values checked at a time.
_BLOCK = 1 << 22


def read_arrays(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Array]:
    """The named arrays of an .npz file, or of a folder of .npy files; optional ones only if they are present.

    Arrays in a folder are memory-mapped (copy on write) and read when used.
    """
    known = names_of_arrays(path)
    arrays: dict[str, Array] = {}
    if missing := [name for name in required if name not in known]:
        what, hint = f"array {', '.join(missing)}", f"it contains: {', '.join(known) or 'nothing'}"
        if path.is_dir():
            what = f"file {', '.join(f'{name}.npy' for name in missing)}"
            hint = "write them with numpy.save, or numpy.lib.format.open_memmap if they are larger than memory"
        raise UserError(f"it has no {what}", where=path, hint=hint)
    for name in (*required, *(name for name in optional if name in known)):
        file = path / f"{name}.npy" if path.is_dir() else path
        require_file(file)
        try:
            if path.is_dir():
                mapped = arrays[name] = np.lib.format.open_memmap(file, mode="c")
                if mapped.offset + mapped.nbytes != file.stat().st_size:
                    raise ValueError(f"more follows its array of the shape {mapped.shape}")
            else:
                with zipfile.ZipFile(path) as archive:
                    with archive.open(f"{name}.npy") as member:
                        shape, _, dtype = _header(member)
                        end = member.tell() + math.prod(shape) * dtype.itemsize
                    unpacked = archive.getinfo(f"{name}.npy").file_size
                    if not dtype.hasobject and end != unpacked:
                        how_many = "fewer" if end > unpacked else "more"
                        raise ValueError(f"{name} has {how_many} values than its shape {shape}")
                    with archive.open(f"{name}.npy") as member:
                        arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
            if arrays[name].dtype.kind == "U":
                points = arrays[name].view(arrays[name].dtype.byteorder.replace("|", "=") + "u4")
                if (points > sys.maxunicode).any():
                    raise ValueError(f"{name} has text that is not Unicode")
        except _DAMAGE as error:
            if "Object arrays" not in str(error) and "Python objects" not in str(error):
                raise damaged(file, reason(error)) from error
            stored = file if path.is_dir() else zipfile.Path(path, f"{name}.npy")
            words = _texts(stored.read_bytes(), file)
            if words is None:
                raise UserError(
                    f"{name} has dtype object, which could contain anything and is not read",
                    where=file,
                    hint=f"save it as numbers or text, such as {name}.astype(int) or {name}.astype(str)",
                ) from error
            arrays[name] = words
    return arrays


def _texts(content: bytes, path: Path) -> npt.NDArray[np.str_] | None:
    """The array of text in an .npy file of Python objects; None if it contains anything else."""
    file = BytesIO(content)
    _header(file)
    try:
        array = load_plain(file.read())
    except (RefusedPickle, DamagedPickle):
        return None
    if not isinstance(array, np.ndarray) or not all(isinstance(each, str) for each in array.flat):
        return None
    return texts([*array.flat], path).reshape(array.shape)


def texts(words: Sequence[Any], where: object) -> Array:
    """An array of text or bytes, in which each takes as much memory as the longest."""
    lengths = [*map(len, words)]
    require_room(4.0 * len(words) * max(lengths, default=0), 4 * sum(lengths), where)
    return np.array(words)


def _header(file: Any) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, order and type of an .npy file, which is read up to its values."""
    first = np.lib.format.read_magic(file) == (1, 0)
    header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    return header(file)


def names_of_arrays(path: Path) -> list[str]:
    """Names of the arrays of an .npz file, or of the .npy files of a folder."""
    if path.is_dir():
        return sorted(file.stem for file in path.glob("*.npy"))
    require_file(path)
    with reading(path, "it is not an .npz archive"), zipfile.ZipFile(path) as archive:
        unpacked_bytes = sum(member.file_size for member in archive.infolist())
        if min((member.header_offset for member in archive.infolist()), default=0):
            raise damaged(path, "it does not begin with the arrays that it lists")
        require_room(unpacked_bytes, path.stat().st_size, path)
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    if twice := repeated(names):
        raise damaged(path, f"it contains '{twice}' twice")
    return names


def test_marks(values: Array, what: str, path: Path | str) -> Bools:
    """The mask of the test samples, (n,) bool; ``what`` names the column or array of ``path`` in messages."""
    if values.dtype.kind not in "fiub" or not np.isin(values, (0, 1)).all():
        message = f"{what} contains values other than true and false, or 1 and 0"
        raise UserError(message, where=path, hint="it must mark the test samples")
    return values.astype(bool)


def as_tokens(x: Array, what: str, path: Path | str) -> Array:
    """``x``, integers from 0, with an integer type that torch supports; uint8, int32 and int64 are not copied."""
    low, high = x.min(initial=0), x.max(initial=0)
    if x.dtype.kind not in "iu" or low < 0 or high > np.iinfo(np.int64).max:
        message = (
            f"tokens is true, but {what} contains values of type {x.dtype} from {low} to {high}"
        )
        hint = "number the codes 0, 1, 2, ..., or leave tokens out"
        raise UserError(message, where=path, hint=hint)
    return x if x.dtype in (np.uint8, np.int32, np.int64) else x.astype(np.int64)


def first_not_finite(x: Array) -> int | None:
    """Index of the first sample of ``x`` (n, ...) with a value that is not finite; None if there is none.

    Checks ``x`` in blocks, because it may be larger than memory.
    """
    if not np.issubdtype(x.dtype, np.floating):
        return None
    rows = max(1, _BLOCK // max(1, math.prod(x.shape[1:])))
    for start in range(0, len(x), rows):
        block = x[start : start + rows]
        finite = np.isfinite(block).reshape(len(block), -1).all(axis=1)
        if not finite.all():
            return start + int(np.argmin(finite))
    return None
