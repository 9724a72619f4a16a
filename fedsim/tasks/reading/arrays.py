"""Arrays in .npz files; never unpickles."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.tasks.reading.files import damaged


def read_npz(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, npt.NDArray[Any]]:
    """The named arrays of an .npz file; optional ones only where they are there.

    Raises:
        UserError: the file is missing or damaged, lacks a required array, or an array holds Python objects.
    """
    if not path.is_file():
        raise UserError("no such file", where=str(path))
    try:
        with np.load(path, allow_pickle=False) as content:
            missing = [name for name in required if name not in content.files]
            if missing:
                raise UserError(
                    f"it has no array {', '.join(missing)}",
                    where=str(path),
                    hint=f"it holds: {', '.join(content.files) or 'nothing'}",
                )
            wanted = [*required, *(name for name in optional if name in content.files)]
            return {name: content[name] for name in wanted}
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, AttributeError) as error:
        raise damaged(path, str(error)) from error
