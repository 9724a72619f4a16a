"""Pickled records: plain numbers, text, lists and dictionaries; everything else is refused."""

from __future__ import annotations

from typing import Any

from fedsim.errors import UserError
from fedsim.traces.importers._files import SourceFile
from fedsim.unpickling import DamagedPickle, RefusedPickle, load_plain


def load_records(source: SourceFile) -> Any:
    """Content of a file of records, JSON or a pickle of plain data.

    Raises:
        UserError: the file is neither, or the pickle names a class or function. Nothing that it names is called.
    """
    data = source.data
    if data[:1] != b"\x80" and data[:2] not in (b"(d", b"}q", b"(l", b"]q"):
        return source.json()
    try:
        return load_plain(data)
    except RefusedPickle as error:
        raise UserError(
            f"the pickle asks for {error}, which is not plain data; it was not loaded",
            where=source.where,
            hint="a pickle can run any program: load it on a machine you can spare and save it as JSON",
        ) from error
    except DamagedPickle as error:
        raise UserError(
            f"the pickle is truncated or damaged: {error}",
            where=source.where,
            hint="copy the file again, or give the JSON form",
        ) from error
