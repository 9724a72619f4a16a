"""Arrays in .npz files, or in .npy files of one folder; of pickled objects, only text is read."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.files.unpickling import DamagedPickle, RefusedPickle, load_plain
from fedsim.tasks.reading.files import damaged, require_file

# Values checked at a time.
_BLOCK = 1 << 22


def read_arrays(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, npt.NDArray[Any]]:
    """The named arrays of an .npz file, or of a folder of .npy files; optional ones only if they are present.

    Arrays in a folder are memory-mapped (copy on write) and read when used.
    """
    if not path.is_dir():
        return read_npz(path, required, optional)
    files = {name: path / f"{name}.npy" for name in (*required, *optional)}
    if missing := [files[name].name for name in required if not files[name].is_file()]:
        hint = "write them with numpy.save, or numpy.lib.format.open_memmap if they are larger than memory"
        raise UserError(f"it has no file {', '.join(missing)}", where=str(path), hint=hint)
    return {name: _mapped(file) for name, file in files.items() if file.is_file()}


def names_of_arrays(path: Path) -> list[str]:
    """Names of the arrays of an .npz file, or of the .npy files of a folder."""
    if path.is_dir():
        return sorted(file.stem for file in path.glob("*.npy"))
    _require_npz(path)
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _mapped(path: Path) -> npt.NDArray[Any]:
    try:
        result: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="c")
    except (ValueError, OSError, EOFError) as error:
        texts = _texts(path.read_bytes()) if _has_objects(error) else None
        if texts is None:
            raise _unreadable(path, path.stem, error) from error
        return texts
    return result


def _member(content: Any, name: str) -> npt.NDArray[Any]:
    """An array of an open .npz file."""
    try:
        array: npt.NDArray[Any] = content[name]
    except ValueError as error:
        with content.zip.open(f"{name}.npy") as file:
            texts = _texts(file.read()) if _has_objects(error) else None
        if texts is None:
            raise
        return texts
    return array


def _has_objects(error: Exception) -> bool:
    """Whether NumPy refuses to read an array because it contains Python objects."""
    return "Object arrays" in str(error) or "Python objects" in str(error)


def _texts(content: bytes) -> npt.NDArray[np.str_] | None:
    """The array of text in an .npy file of Python objects; None if it contains anything else."""
    file = io.BytesIO(content)
    first = np.lib.format.read_magic(file) == (1, 0)
    header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    header(file)
    try:
        array = load_plain(file.read())
    except (RefusedPickle, DamagedPickle):
        return None
    is_text = isinstance(array, np.ndarray) and all(isinstance(each, str) for each in array.flat)
    return array.astype(str) if is_text else None


def _unreadable(path: Path, name: str, error: Exception) -> UserError:
    """The error for an array that NumPy refuses to read."""
    if not _has_objects(error):
        return damaged(path, str(error))
    message = f"{name} has dtype object, which could contain anything and is not read"
    hint = f"save it as numbers or text, such as {name}.astype(int) or {name}.astype(str)"
    return UserError(message, where=str(path), hint=hint)


def test_marks(values: npt.NDArray[Any], what: str, path: Path | str) -> npt.NDArray[np.bool_]:
    """The mask of the test samples, (n,) bool; ``what`` names the column or array of ``path`` in messages."""
    if values.dtype.kind not in "fiub" or not np.isin(values, (0, 1)).all():
        message = f"{what} contains values other than true and false, or 1 and 0"
        raise UserError(message, where=str(path), hint="it must mark the test samples")
    return values.astype(bool)


def as_tokens(x: npt.NDArray[Any], what: str, path: Path | str) -> npt.NDArray[Any]:
    """``x``, integers from 0, with an integer type that torch supports; uint8, int32 and int64 are not copied."""
    if x.dtype.kind not in "iu" or x.min(initial=0) < 0:
        message = (
            f"tokens is true, but {what} contains values of type {x.dtype} from {x.min(initial=0)}"
        )
        hint = "number the codes 0, 1, 2, ..., or leave tokens out"
        raise UserError(message, where=str(path), hint=hint)
    return x if x.dtype in (np.uint8, np.int32, np.int64) else x.astype(np.int64)


def first_not_finite(x: npt.NDArray[Any]) -> int | None:
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


def read_npz(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, npt.NDArray[Any]]:
    """The named arrays of an .npz file; optional ones only if they are present."""
    _require_npz(path)
    name = "it"
    try:
        with np.load(path, allow_pickle=False) as content:
            missing = [name for name in required if name not in content.files]
            if missing:
                raise UserError(
                    f"it has no array {', '.join(missing)}",
                    where=str(path),
                    hint=f"it contains: {', '.join(content.files) or 'nothing'}",
                )
            arrays = {}
            for name in (*required, *optional):
                if name in content.files:
                    arrays[name] = _member(content, name)
            return arrays
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, AttributeError) as error:
        raise _unreadable(path, name, error) from error


def _require_npz(path: Path) -> None:
    require_file(path)
    if not zipfile.is_zipfile(path):
        raise damaged(path, "it is not an .npz archive")
