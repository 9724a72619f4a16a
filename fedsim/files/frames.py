"""Tables in files as frames with typed columns: the one way from a path and a mapping of columns to their values.

CSV with any separator, Parquet, Feather, Arrow, JSON lines and Excel, recognized by their content; compressed files are
unpacked by :mod:`fedsim.files.sources`. A file is opened for the names of its columns; only the columns that are asked
for are read. Fields of objects are columns with a point, such as ``object.name``; lists are left out.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import os
import re
import struct
import sys
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import UserError, cut, nearest, refused
from fedsim.files import cells
from fedsim.files.cells import Bounds, Instants
from fedsim.files.delimited import LONGEST_ROW_BYTES, checked_rows, repeated
from fedsim.files.room import open_parquet, read_arrow, require_room
from fedsim.files.sources import SourceFile
from fedsim.units import without_comma
from fedsim.vocabulary.arrays import Bools, Floats, Ints
from fedsim.vocabulary.formatting import format_counted

_HEAD_BYTES = 1 << 16
_PREAMBLE = 20
"""Lines among which a header is looked for, if the first one is none."""
_CLOCKS = 1000
_NAMES_FIRST = "the first line must name the columns; remove what comes before"
_ALIKE = "has the columns '{}' and '{}', which are read as one"
_RENAME = "remove or rename one of them"
_DAMAGE = (
    *(pa.ArrowException, OSError, ValueError, RuntimeError),
    *(zipfile.BadZipFile, struct.error, csv.Error),
)
_TIME_OF_DAY = r"(?i)^\s*\d?\d:\d\d(:\d\d([.,]\d+)?)?\s*([ap]m)?$"
_DATA = r"(?<![\w:.-])(\d{4}[-/.]\d\d?[-/.]\d\d?|\d?\d:\d\d(:\d\d)?)(?![\d:])|^\d{10}(\d{3})?(\.\d+)?$|^\w+=\S+$"
_FIRST_DATA = r"^\W*\d[\d.:/-]*\W*( |$)"
"""What is a cell of a table, or the first one, and no name of a column, in the first ``_LONG`` characters of these."""
_LONG = 100
_RULER = frozenset("-+=|,; \t")
_STREAM = b"\xff\xff\xff\xff"
_LISTED = 20
"""Rows that are wrong in the same way of which a list of mistakes names each."""
_MOST_ROWS, _MOST_CELLS = 1 << 20, 20_000_000
"""Limits of a sheet: the rows that Excel has, and cells."""
_MOST_NAMES, _DEEPEST = 100_000, 20
"""Limits of JSON, because Arrow needs long for more: names of fields, and levels of objects and lists."""
_SHEET_DIGITS = 1e15
"""Numbers from which on a sheet rounds."""
_CELL_BYTES = 10
"""Memory for each byte of the XML of a sheet, which also takes long to be read."""
_SPARSE = 100
"""Cells of a table of JSON for each one that is given, if there are that many."""
_FORMULA = re.compile(
    rb'<c r="([A-Z]+[0-9]+)"(?![^<>]*t="str")[^<>]*>\s*<f(?:[^<>]*/>|[^<>]*>[^<]*</f>)\s*(?:<v\s*/>|<v></v>)?\s*</c>'
)
"""A cell with a formula, but without its value."""
FILE = "file"
"""What a mapping of columns calls the name of each file, without its ending."""
COLUMN = "column"
"""What a mapping of columns calls the names of the columns of a table with one column per device."""
_ENDING = re.compile(r"\.(csv|tsv|txt|log|dat|parquet|feather|arrow|ipc|jsonl?|ndjson|xlsx)$", re.I)


@contextlib.contextmanager
def _without_unraisable() -> Iterator[None]:
    """Without the traceback that pyarrow prints if an invalid row is not UTF-8; it then refuses the row."""
    hook = sys.unraisablehook

    def without(unraisable: Any) -> None:
        if unraisable.exc_type is not UnicodeDecodeError:
            hook(unraisable)

    sys.unraisablehook = without
    try:
        yield
    finally:
        sys.unraisablehook = hook


class TableFile:
    """One file with a table.

    Args:
        source: the file.
        header: whether its first line names the columns; otherwise they are called 1, 2, ...

    Attributes:
        names: the columns that are not nested, in their order.
        first: the cells of the first line of a text, or the names.
        fields: those of them that are fields of objects, such as ``object.name``; columns only if they are named.
        nested: the others.
    """

    nested: Sequence[str] = ()
    fields: Sequence[str] = ()
    names: list[str]
    first: list[str]

    def __init__(self, source: SourceFile, *, header: bool = True) -> None:
        self.source = source
        self._header = header
        # The lines of the rows of a text, and those rows that have a value; as far as they are known.
        self._lines: Sequence[int] | None = None
        self._kept: Ints | None = None
        self._separator: str | None = None
        head = source.head(_HEAD_BYTES)
        self._whole: Any = None
        is_zip = head.startswith(b"PK\3\4")
        self._is_sheet = is_zip and (b"xl/" in head or source.name.endswith(".xlsx"))
        with self._reading():
            self._open(head)
            if self._whole is None:
                self._open_text(head)
                return
        schema = getattr(self._whole, "schema_arrow", self._whole.schema)
        own = schema.names
        if isinstance(self._whole, pa.Table):
            self._whole = _flat(self._whole)
        schema = _flat(schema.empty_table()).schema
        if twice := repeated(schema.names):
            raise source.error(f"has the column '{twice}' twice", _RENAME)
        self.fields = [name for name in schema.names if name not in own]
        self.nested = [f.name for f in schema if pa.types.is_nested(f.type)]
        self.names = self.first = [f.name for f in schema if f.name not in self.nested]

    def _reading(self) -> AbstractContextManager[None]:
        """Name the file in the errors of those that read it."""
        return refused("cannot be read as a table", self.source.where, "write it again", _DAMAGE)

    def _open(self, head: bytes) -> None:
        """The table of a file that is not text, by its first bytes."""
        if head.startswith(b"PAR1"):
            content = self.source.content
            packed = content if isinstance(content, Path) else pa.py_buffer(content)
            self._whole = open_parquet(packed, self.source.where)
        elif head.startswith((b"ARROW1", _STREAM)):
            self._whole = read_arrow(pa.py_buffer(self.source.data), self.source.where)
        elif self._is_sheet:
            self._whole = _converted(self._excel())
        elif head.startswith(b"\xd0\xcf\x11\xe0"):
            message = "is a spreadsheet protected by a password, or an old one (.xls)"
            raise self.source.error(message, "save it as .xlsx without a password, or as CSV")
        elif match := re.match(rb"(?:\xef\xbb\xbf)?\s*(\{|\[\s*\{)", head):
            is_lines = match[1] == b"{"
            rows = list(self.source.json_lines() if is_lines else self.source.json())
            if any(not isinstance(row, dict) for row in rows):
                raise self.source.error("has a row that is not a JSON object", "remove it")
            count = len(rows) * len(names := set[str]().union(*rows))
            sparse = count > max(_MOST_CELLS, _SPARSE * sum(map(len, rows)))
            if sparse or len(names) > _MOST_NAMES:
                message = f"has {len(names)} names of fields in {len(rows)} objects"
                raise self.source.error(message, "give all objects the same fields")
            level = rows
            for _ in range(_DEEPEST):
                inner = (each.values() if isinstance(each, dict) else each for each in level)
                level = [one for each in inner for one in each if isinstance(one, (dict, list))]
            if level:
                raise self.source.error(f"is nested more than {_DEEPEST} levels deep")
            self._whole = _converted(rows)

    def _content(self) -> Any:
        """The file for a reader that need not have all of it in memory."""
        content = self.source.content
        is_path = isinstance(content, Path)
        return pa.OSFile(os.fsencode(content)) if is_path else pa.BufferReader(content)

    def _excel(self) -> Any:
        """The first sheet that is not hidden."""
        import pandas as pd

        data = io.BytesIO(self.source.data)
        with zipfile.ZipFile(data) as parts:
            unpacked = sum(part.file_size for part in parts.infolist())
        require_room(_CELL_BYTES * unpacked, len(self.source.data), self.source.where)
        try:
            from openpyxl import load_workbook  # type: ignore[import-untyped]

            book = load_workbook(data, read_only=True, data_only=True, keep_links=False)
            sheet, *others = (one for one in book.worksheets if one.sheet_state == "visible")
            formulas = _FORMULA.findall(book._archive.read(sheet._worksheet_path))
            # What a sheet says of its size may be wrong.
            sheet.reset_dimensions()
            rows = list[list[Any]]()
            wrong = [(str(cell, "ascii"), "a formula without a value") for cell in formulas]
            for row in itertools.islice(sheet.iter_rows(), _MOST_ROWS + 1):
                rows.append([_shown(cell) for cell in row])
                errors = (one for one in row if one.data_type == "e" and one.value != "#N/A")
                wrong += [(one.coordinate, one.value) for one in errors]
            for other in others:
                other.reset_dimensions()
            tops = {one.title: one.iter_rows(max_row=_PREAMBLE, values_only=True) for one in others}
            heads = {title: next(filter(any, top), ()) for title, top in tops.items()}
        except ImportError as error:
            raise self.source.error(
                "spreadsheets need the package openpyxl",
                "pip install openpyxl, or save the sheet as CSV",
            ) from error
        except Exception as error:  # Each kind of damage has its own.
            message = f"cannot be read as a spreadsheet: {error}"
            raise self.source.error(message, "save it again, or save the sheet as CSV") from error
        width = max(map(len, rows), default=0)
        if not width:
            raise self.source.error("its first sheet is empty")
        if len(rows) > _MOST_ROWS or len(rows) * width > _MOST_CELLS:
            message = f"has cells far from the others: {len(rows)} rows of {width} cells"
            raise self.source.error(message, "remove them, or save the sheet as CSV")
        if wrong:
            fix = "correct it, or open and save the file in a spreadsheet program"
            raise self.source.error("the cell {} is {}".format(*wrong[0]), fix)
        header, *values = rows
        own = {role_name(cell) for cell in header if cell is not None}
        for title, cells_ in heads.items():
            its = {role_name(cell) for cell in map(_plain, cells_) if cell is not None}
            if len(own & its) < 2 or not (own <= its or its <= own):
                continue
            message = f"has the same columns in another sheet, '{title}'"
            raise self.source.error(message, "save each sheet as a file, or remove the other sheet")
        named = [str(name) for name in header if name is not None]
        if 2 * len(named) < width:
            message = f"has {width} columns, but its first row names {len(named)}"
            raise self.source.error(message, _NAMES_FIRST)
        header += [None] * (width - len(header))
        names = [f"Unnamed: {n}" if name is None else name for n, name in enumerate(header)]
        values = [row + [None] * (width - len(row)) for row in values]
        return pd.DataFrame(values, columns=names, dtype=object)

    # Text -----------------------------------------------------------------------------------------------------------

    def _open_text(self, head: bytes) -> None:
        try:
            text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
        except UnicodeDecodeError:
            text = self.source.text()  # raises the error that names the line
        # Not str.splitlines, which also splits at characters that values may contain.
        lines = re.split("\r\n|\r|\n", text)
        # Spreadsheets say sep=; above the header.
        declared = re.fullmatch("sep=(.)", lines[0]) if lines else None
        rest = range(1 if declared else 0, len(lines))
        first = next((n for n in rest if lines[n].strip() and lines[n][0] != "#"), None)
        if len(head) == _HEAD_BYTES and first in (None, len(lines) - 1):
            return self._open_text(self.source.data)
        if first is None:
            raise self.source.error("is empty")
        self.source.require_text()
        # Cells between tabs may have commas, and tabs may follow commas.
        count = re.sub(r"(?<=[,;])\t+", "", lines[first].rstrip("\t")).count
        in_order = "\t,;|" if count("\t") > max(count(","), count(";")) else ",;\t|"
        marks = (*(declared.groups() if declared else ()), *in_order)
        # Some name the columns in a comment, behind which the rows begin: Zeek, and sysstat in as many cells as a row.
        named = next((line for line in lines[:first] if line.startswith("#fields")), "")
        named = named[len("#fields") + 1 :]
        above = lines[first - 1] if first and self._header and not named else ""
        mark = next((mark for mark in marks if mark in lines[first]), "")
        if mark and above.startswith("# ") and re.search(rf"(^|[{mark}])\s*-?\d", lines[first]):
            is_header = above.count(mark) == lines[first].count(mark)
            named = above[2:] if is_header and not re.search(rf"[{mark}]\s*\d", above) else ""
        is_in_comment, named = bool(named), named or lines[first]
        # As in other text, dashes of Zeek are unknown values.
        self._is_zeek = is_in_comment and lines[first - 1].startswith("#types")
        self._header &= not is_in_comment
        self._separator, self._start = next((mark for mark in marks if mark in named), None), text
        for number, line in enumerate(lines[first + 1 :][:_PREAMBLE], first + 2):
            if self._separator is None and (mark := max(",;\t|", key=line.count)) in line[1:-1]:
                some = ", ".join(line.split(mark)[:3])
                message = f"has one cell, but line {number} has more: {some}"
                raise self.source.error(message, _NAMES_FIRST, line=first + 1)
        cells_ = next(self._reader([named])) if self._separator else named.split()
        self.first = names = [cell.strip() for cell in cells_]
        if len(names) > _MOST_ROWS:
            raise self.source.error(f"has {len(names):,} columns", _NAMES_FIRST, line=first + 1)
        self._skip = first + self._header
        # Programs that print tables draw a line below the names.
        self._ruler = lines[first + 1] if self._header and len(lines) > first + 1 else ""
        self._ruler *= "---" in self._ruler and _RULER.issuperset(self._ruler)
        self._skip += bool(self._ruler)
        self.names = (
            names if self._header or is_in_comment else [str(n) for n in range(1, len(names) + 1)]
        )
        if twice := repeated(self.names):
            message = f"has the column '{twice}' twice"
            hint = f"{_RENAME}; the first line must name the columns"
            raise self.source.error(message, hint, line=first + 1)

    def _reader(self, lines: Iterable[str]) -> Any:
        return csv.reader(lines, delimiter=self._separator or ",", skipinitialspace=True)

    @_without_unraisable()
    def _read_text(self, names: Sequence[str], words: Collection[str]) -> Any:
        from pyarrow import csv as arrow_csv

        whole = dict.fromkeys(self.names, pa.string())
        whole |= {
            name: pa.dictionary(pa.int32(), pa.string()) for name in self.names if name in words
        }
        try:
            # Arrow takes quotes behind a space for a part of the cell.
            if self._separator is None or re.search(
                rf'{re.escape(self._separator)} +"', self._start
            ):
                raise pa.ArrowInvalid
            return arrow_csv.read_csv(
                self._content(),
                arrow_csv.ReadOptions(
                    skip_rows=self._skip, column_names=self.names, block_size=LONGEST_ROW_BYTES
                ),
                arrow_csv.ParseOptions(
                    delimiter=self._separator,
                    invalid_row_handler=lambda row: "skip" if row.text[:1] == "#" else "error",
                ),
                arrow_csv.ConvertOptions(
                    column_types=whole,
                    include_columns=names,
                    null_values=["-"],
                    strings_can_be_null=self._is_zeek,
                ),
            )
        except pa.ArrowInvalid:
            # Rows of different widths, cells with line breaks: slower, with the place of an error.
            return self._read_rows(names)

    def _read_rows(self, names: Sequence[str]) -> Any:
        comments = self._skip - self._header - bool(self._ruler)
        if self._separator is None:
            width = len(self.names)
            rows = [
                (line, row)
                for line, text in self.source.lines()
                if line > comments
                and (text != self._ruler or not text)
                # A name may begin with #, but not a comment of the usual form.
                and ((row := text.split())[0][0] != "#" or (row[0] != "#" and len(row) == width))
            ]
            for line, row in rows:
                if len(row) != width:
                    message = f"has {len(row)} cells, but the first line has {width}"
                    hint = "every line needs as many; cells that are empty or have blanks need another separator"
                    raise self.source.error(message, hint, line=line)
        else:
            plain = self.source.text()
            text = io.StringIO(plain.replace(self._ruler, "", 1) if self._ruler else plain)
            rows = list(
                checked_rows(
                    text,
                    self.source.where,
                    skip_initial_space=True,
                    delimiter=self._separator,
                    above=comments,
                    comment="#",
                )
            )
        rows = rows[self._header :]
        self._lines = [line for line, _ in rows]
        columns = list(zip(*(row for _, row in rows), strict=True)) or [()] * len(self.names)
        chosen = {name: pa.array(columns[self.names.index(name)], pa.string()) for name in names}
        return pa.table(chosen)

    # Reading --------------------------------------------------------------------------------------------------------

    def read(self, names: Sequence[str], words: Collection[str] = ()) -> Any:
        """The columns ``names`` as an Arrow table; ``words`` repeat few words. Rows without a value are left out."""
        if self._whole is None:
            table = self._read_text(names, words)
        elif hasattr(self._whole, "read"):
            with self._reading():
                table = _flat(self._whole.read(columns=list(names))).select(list(names))
                table.validate(full=True)  # Text that is not UTF-8.
        else:
            table = self._whole.select(list(names))
        empty: Any = None
        # Whether a row has a value is mostly clear from a column of numbers or times.
        for column in sorted(table.columns, key=lambda each: pa.types.is_dictionary(each.type)):
            blank = pc.is_null(column)
            if cells._is_text(column.type):
                plain = column.cast(pa.string())
                blank = pc.or_(blank, pc.equal(plain, "").fill_null(True))
            empty = blank if empty is None else pc.and_(empty, blank)
            if not pc.any(empty).as_py():
                return table
        if empty is None:
            return table
        kept = ~np.asarray(empty)
        self._kept = np.flatnonzero(kept)
        return table.filter(pa.array(kept))

    def place(self, row: int) -> str:
        """Location of a row that was read: the line of a text, the row of a spreadsheet, or the number of the row."""
        row = row if self._kept is None else int(self._kept[row])
        if self._whole is not None:
            return f"{self.source.where}, row {row + 1 + self._is_sheet}"
        if self._lines is None:
            self._lines = [*self._line_numbers()]
        return self.source.line(self._lines[row])

    def _line_numbers(self) -> Iterator[int]:
        """The line at which each row of a text ends."""
        reader = self._reader(io.StringIO(self.source.text(), newline=""))
        for row in reader:
            is_comment = row and row[0][:1] == "#" and len(row) != len(self.names)
            if row and not is_comment and reader.line_num > self._skip:
                yield reader.line_num


class LongFile:
    """A table with one column per device as one row per cell, whose columns are ``column``, its name, and ``state``.

    Args:
        file: the table.
        shared: roles and names of its columns that belong to all devices, such as that of the times.
    """

    def __init__(self, file: TableFile, shared: Collection[str]) -> None:
        self.source, self._file, self.nested = file.source, file, file.nested
        self.fields = file.fields
        self._shared = [name for name in file.names if role_name(name) in shared]
        self._wide = [name for name in file.names if name not in self._shared]
        self.names = [*self._shared, COLUMN, "state"]

    def read(self, names: Sequence[str], words: Collection[str] = ()) -> Any:
        """The columns ``names``; see :meth:`TableFile.read`. The rows of each device follow each other."""
        table = self._file.read([*self._shared, *self._wide])
        self._rows, count = table.num_rows, len(self._wide)
        rows = pa.array(np.tile(np.arange(self._rows), count))
        columns = {name: table.column(name).take(rows) for name in self._shared}
        code = pa.array(np.repeat(np.arange(count, dtype=np.int32), self._rows))
        columns[COLUMN] = pa.DictionaryArray.from_arrays(code, pa.array(self._wide, pa.string()))
        cells_ = [table.column(name).cast(pa.string()).chunks for name in self._wide]
        columns["state"] = pa.chunked_array([c for chunks in cells_ for c in chunks], pa.string())
        # An empty cell does not show its device.
        trimmed = pc.utf8_trim_whitespace(columns["state"])
        unknown = pc.is_in(trimmed, value_set=pa.array([*cells.UNKNOWN_TEXT, None]))
        self._kept = np.flatnonzero(~np.asarray(unknown))
        return pa.table(columns).select(list(names)).take(pa.array(self._kept))

    def place(self, row: int) -> str:
        """Location of a row that was read."""
        return self._file.place(int(self._kept[row]) % self._rows)


def _flat(table: Any) -> Any:
    """A table with the fields of its objects as columns, such as ``object.name``."""
    while any(map(pa.types.is_struct, table.schema.types)):
        flat = table.flatten()
        table = pa.Table.from_arrays(flat.columns, names=flat.column_names)
    return table


def _converted(rows: Any) -> Any:
    """A pandas table of objects, or rows, in Arrow: text where the types of a column's cells differ.

    Whole numbers stay whole if a cell is missing.
    """
    import pandas as pd

    frame, columns = pd.DataFrame(rows, dtype=object), []
    for _, column in frame.items():
        kinds = {*column.map(type)}
        try:
            if bool in kinds and not kinds.isdisjoint((int, float)):
                raise pa.ArrowTypeError  # Arrow takes true for 1 beside numbers with decimals.
            cells_ = pa.array(column, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            plain = column.map(_plain) if float in kinds else column
            text = plain.astype(str).where(column.notna(), None)
            cells_ = pa.array(text, pa.string())
            if not kinds.isdisjoint((dict, list)):
                cells_ = pa.nulls(len(column), pa.list_(pa.null()))
        columns.append(cells_)
    return pa.Table.from_arrays(columns, names=[str(name).strip() for name in frame])


def _shown(cell: Any) -> Any:
    """The value of a cell, as a percentage if it is shown as one."""
    if cell.data_type != "n" or cell.value is None:
        return _plain(cell.value)
    is_percent = "%" in re.sub(r'"[^"]*"|\\.', "", cell.number_format)
    return f"{100 * cell.value:.15g}%" if is_percent else _plain(cell.value)


def _plain(value: Any) -> Any:
    """The value of a cell of a spreadsheet; None if it is unknown."""
    if value in ("", "#N/A"):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def role_name(name: object) -> str:
    """The name of a column in lower case, with one underscore for what is no letter or digit."""
    return re.sub(r"\W+", "_", str(name).strip().lower()).strip("_")


def file_names(sources: Sequence[SourceFile]) -> list[str]:
    """The names of files without their endings; with their folders if these differ alone."""
    paths = [_ENDING.sub("", source.name) for source in sources]
    names = [path.rpartition("/")[2] for path in paths]
    return names if len(set(names)) == len(names) else paths


class Frame:
    """The rows of one or more files, with typed columns by role.

    Args:
        files: the files.
        columns: the column of each role, where a file does not call it so; :data:`FILE` is the name of the file, unless
            a column is called so.

    Attributes:
        names: the columns of all files, by role or else in the form of :func:`role_name`.
        starts: the first row of each file, and the number of rows.
        stems: the names of the files without their endings.
    """

    def __init__(
        self, files: Sequence[TableFile | LongFile], columns: Mapping[str, str] | None = None
    ) -> None:
        self.files = files
        self.stems = file_names([file.source for file in files])
        self.where = ", ".join(dict.fromkeys(file.source.where for file in files))
        columns = columns or {}
        role_of = {role_name(name): role for role, name in columns.items()}
        self._named: list[dict[str, str]] = []
        self._alike: dict[str, tuple[TableFile | LongFile, str, str]] = {}
        for file in files:
            named: dict[str, str] = {}
            own = {*file.names}
            exact = {role: name for role, name in columns.items() if name in own}
            for name in file.names:
                key = role_name(name)
                role = role_of.get(key, key)
                if (key not in role_of and key in columns) or exact.get(role, name) != name:
                    continue
                if named.setdefault(role, name) != name:
                    self._alike[role] = file, named[role], name
            self._named.append(named)
        self.names = list(dict.fromkeys(name for named in self._named for name in named))
        self._by_file = {FILE}
        for role, name in columns.items():
            if role not in self.names and name == FILE:
                self._by_file.add(role)
                self.names.append(role)
            elif role not in self.names:
                known = list(dict.fromkeys(name for file in files for name in file.names))
                nested = ", ".join(dict.fromkeys(name for file in files for name in file.nested))
                hint = f"{nearest(str(name), known)}its columns are {', '.join(known)}"
                hint += nested and f"; the lists {nested} are left out"
                message = f"has no column '{name}' for {role}"
                if name in known and (other := role_of[role_name(name)]) in self.names:
                    message, hint = f"column '{name}' is given for {role} and {other}", "give two"
                    if columns[other] != name:
                        message, hint = _ALIKE.format(name, columns[other]), _RENAME
                raise UserError(message, where=self.where, hint=hint)
        self.doubted: dict[str, str] = {}
        """What to say of columns whose numbers may mean others."""
        self._tables: list[Any] = []
        self.starts: list[int] = [0]
        self.mistakes: dict[tuple[int, str], UserError] | None = None
        """The cells refused so far, by row and column, if the frame collects them; None to raise the first."""
        self.chosen: Bools | None = None
        """The rows whose cells matter: those of others are not refused. None: all."""

    def error(self, message: str, hint: str | None = None) -> UserError:
        """The error for a mistake in the files taken together."""
        return UserError(message, where=self.where, hint=hint)

    def require_header(self) -> None:
        """Refuse a file whose first line has data instead of the names of columns."""
        for file in self.files:
            for name in file.names:
                if re.search(_DATA, name[:_LONG]) or re.search(_FIRST_DATA, file.names[0][:_LONG]):
                    raise file.source.error(
                        f"does not begin with the names of its columns, but with '{name}'",
                        "write their names above, separated as the cells are; of text that is no table, write one",
                    )

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __len__(self) -> int:
        return self.starts[-1]

    def require_in_all(self, names: Collection[str]) -> None:
        """Refuse files that lack one of these columns, which others have."""
        for file, named in zip(self.files, self._named, strict=True):
            if lacks := [name for name in names if name in self and name not in named]:
                message = f"has no column '{lacks[0]}', but another file has it"
                raise file.source.error(message, f"its columns are {', '.join(file.names)}")

    def require_values(self, names: Collection[str]) -> None:
        """Refuse columns of these names whose cells are lists or objects, unless others stand for them."""
        for file in self.files:
            for column in (*file.nested, *file.fields):
                name = role_name(column.partition(".")[0])
                if name in names and name not in self:
                    message = f"'{name}' has lists or objects in its cells"
                    raise file.source.error(message, "write one value per cell, or rename it")

    def load(self, names: Collection[str], words: Collection[str] = ()) -> Frame:
        """Read these columns from all files, which have rows, once; ``words`` repeat few words, such as names."""
        for file, *alike in (self._alike[role] for role in names if role in self._alike):
            raise file.source.error(_ALIKE.format(*alike), _RENAME)
        for file, named in zip(self.files, self._named, strict=True):
            present = {role: named[role] for role in self.names if role in named and role in names}
            table = file.read(
                list(present.values()), {named[role] for role in present if role in words}
            )
            self._tables.append(table.rename_columns(list(present)))
            self.starts.append(self.starts[-1] + table.num_rows)
        if not len(self):
            raise self.error("has no rows")
        return self

    def drop(self, names: Collection[str]) -> None:
        """Free the memory of columns that have been read, whose cells are then unknown."""
        for number, table in enumerate(self._tables):
            kept = [name for name in table.column_names if name not in names]
            self._tables[number] = table.select(kept)
        # Arrow would keep it for later tables.
        pa.default_memory_pool().release_unused()

    def columns(self, name: str) -> list[Any]:
        """The cells of each file as an Arrow array; null in a file without the column."""
        return [
            table.column(name)
            if table.schema.get_field_index(name)
            >= 0  # A list of the names takes long if they are many.
            else pa.array([own if name in self._by_file else None], pa.string())
            .dictionary_encode()
            .take(pa.array(np.zeros(table.num_rows, np.int32)))
            for table, own in zip(self._tables, self.stems, strict=True)
        ]

    def _chunks(self, name: str) -> list[Any]:
        """:meth:`columns` as one list of Arrow arrays."""
        return [c for column in self.columns(name) for c in getattr(column, "chunks", [column])]

    def text(self, name: str, *, lower: bool = False) -> tuple[Ints, list[str]]:
        """The index of each row's word (-1 if unknown), and the words."""
        wide = pa.dictionary(pa.int32(), pa.string())
        with self._converting(name):
            chunks = self._chunks(name)
            if not all(cells._is_text(chunk.type) for chunk in chunks):
                chunks = [chunk.cast(pa.string()) for chunk in chunks]
            encoded = [
                c if pa.types.is_dictionary(c.type) else c.dictionary_encode() for c in chunks
            ]
            return cells.texts(pa.chunked_array([c.cast(wide) for c in encoded], wide), lower=lower)

    def _converting(self, name: str) -> AbstractContextManager[None]:
        """Name the column in the errors of Arrow, which cannot convert its type or a cell."""
        hint = "write text, numbers or timestamps"
        return refused(f"{name} cannot be read", self.where, hint, pa.ArrowException)

    def ids(self, name: str) -> tuple[Ints, list[str]]:
        """:meth:`text` whose words are names."""
        codes, words = self.text(name)
        control = [n for n, word in enumerate(words) if re.search(cells.CONTROL, word)]
        message = f"{name} is {{}}, which contains a control character"
        self.refuse(np.isin(codes, control), message, "leave it out", name)
        rounded = np.flatnonzero(cells.are_rounded(pa.array(words, pa.string())))
        self.refuse_rounded(name, np.isin(codes, rounded))
        large = [np.zeros(0, np.bool_)]
        for file, column in zip(self.files, self.columns(name), strict=True):
            bad = np.zeros(len(column), np.bool_)
            in_sheet = getattr(file, "_is_sheet", False) and not cells._is_text(column.type)
            if in_sheet or pa.types.is_floating(column.type):
                most = _SHEET_DIGITS if in_sheet else 2.0**53
                bad = cells.are_rounded(column) | (np.abs(cells.numbers(column)[0]) >= most)
            large.append(bad)
        fix = "write names as text: of a number with so many digits, the last ones are lost"
        self.refuse(np.concatenate(large), f"{name} is {{}}, a number", fix, name)
        return codes, words

    def number(
        self,
        name: str,
        factor: float = 1.0,
        bounds: Bounds | None = cells.NOT_NEGATIVE,
        unit: str = "",
        also: str = "",
        form: cells.Form = "",
    ) -> Floats:
        """The numbers of a column times ``factor``, NaN if unknown.

        ``unit`` is that of the file, and ``also`` the end of the hint, for messages. Without ``bounds``, they may be
        infinite.
        """
        with self._converting(name):
            pairs = [cells.numbers(column, factor, form) for column in self.columns(name)]
        if name not in self.doubted and self.may_have_thousands(name):
            self.doubted[name] = (
                f"if the point in {name} separates thousands, write 45300 for 45.300"
            )
        values = np.concatenate([np.zeros(0), *(pair[0] for pair in pairs)])
        bad = np.concatenate([np.zeros(0, np.bool_), *(pair[1] for pair in pairs)])
        if bounds is not None:
            bad |= ~np.isnan(values) & ~bounds.contain(values)
        unit = f" (in {unit})" if unit else ""
        limits = f" {'' if bounds.words else 'of '}{bounds}" if bounds and str(bounds) else ""
        self.refuse(
            bad,
            f"{name} is {{}}",
            f"it must be a number{unit}{limits}, or empty if unknown{also}",
            name,
        )
        return values

    def may_have_thousands(self, name: str) -> bool:
        """Whether the point in the numbers of a table with semicolons may separate thousands, as in 45.300."""
        if ";" not in {file._separator for file in self.files if isinstance(file, TableFile)}:
            return False
        words = self.text(name)[1]
        shaped = all(re.fullmatch(r"\d{1,3}(\.\d{3})?", word) for word in words)
        return shaped and any("." in word for word in words)

    def instants(
        self,
        name: str,
        unit: str | None = None,
        form: str | None = None,
        hint: str = "write it as in 2024-05-01T08:00:00+02:00",
        year: int | None = None,
        names: Sequence[str] = (),
    ) -> Instants:
        """The instants of a column; see :func:`fedsim.files.cells.instants`. ``hint`` says how to write others.

        Without years, the first one is ``year``, and the columns ``names`` show the others.
        """
        if form is not None and "%H" in form and "%p" in form:
            fix = "write %I, the hours from 1 to 12 of AM and PM"
            raise self.error(f"the form '{form}' has %H, the hours from 0 to 23, with %p", fix)
        columns = self.columns(name)
        if unit in cells.UNIX_UNITS:
            self.refuse_rounded(name)
        if year is not None:
            # One file continues the other.
            texts = [[c.cast(pa.string()) for c in self._chunks(each)] for each in names]
            columns = [cells.with_years(texts, str(form), year)[names.index(name)]]
            form = f"%Y {form}"
        with self._converting(name):
            parts = [cells.instants(column, unit, form) for column in columns]
        known = [part for part in parts if (part.us != cells.NAT).any()] or parts[:1]
        us, local, bad = (
            np.concatenate([getattr(part, key) for part in parts]) for key in ("us", "local", "bad")
        )
        offset = known[0].offset if len({part.offset for part in known}) == 1 else ""
        what = f"a number of {unit}" if unit else "an instant that can be read"
        if unit:
            hint = (
                f"it must be a number {cells.TIME_S}; if these are timestamps, leave the unit out"
                + "; the end of an open session is empty" * (name == "end")
            )
        elif form is None and bad.any() and "time_format" in hint:
            column = next(
                column for column, part in zip(columns, parts, strict=True) if part.bad.any()
            )
            if fitting := cells.fitting_forms(column.cast(pa.string())):
                hint = " or ".join(f"-s time_format='{each}'" for each in fitting)
                hint = f"give its form, {hint}" + ", and -s year=2024" * (
                    re.search(cells.HAS_YEAR, fitting[0]) is None
                )
        self.refuse(bad, f"{name} is {{}}, which is not {what}", hint, name)
        return Instants(us, local, bad, any(part.dated for part in known), offset)

    def refuse_rounded(self, name: str, rows: Bools | None = None) -> None:
        """Refuse Unix times, or the names in these rows, that have an exponent instead of all digits."""
        if rows is None:
            rows = np.concatenate([cells.are_rounded(column) for column in self.columns(name)])
        fix = "export it again, with all digits (in a spreadsheet, as a number without decimals)"
        self.refuse(rows, f"{name} is {{}}, which is rounded", fix, name)

    def require_times(self, name: str, columns: Sequence[Instants]) -> None:
        """Refuse dates without a time beside a column of times of day; ``name`` is the first of the ``columns``."""
        if not all(column.local.any() and column.are_dates() for column in columns):
            return
        for file, named in zip(self.files, self._named, strict=True):
            again = TableFile(file.source)  # Another reading would change the places of rows.
            for clock in again.names:
                cells_ = again.read([clock]).column(0)[:_CLOCKS]
                if cells._is_text(cells_.type) or pa.types.is_time(cells_.type):
                    are = pc.match_substring_regex(cells_.cast(pa.string()), _TIME_OF_DAY)
                    if pc.any(are).as_py() and named.get("duration") != clock:
                        raise self.error(
                            f"{name} has dates without a time, but the column {clock} has times of day",
                            "join them in one column, as in 2024-05-01 08:00:00",
                        )

    def are_plain_numbers(self, name: str) -> bool:
        """Whether a column of instants has numbers, whose unit must be declared."""
        with self._converting(name):
            return any(cells.are_plain_numbers(column) for column in self.columns(name))

    def called(self, name: str) -> list[str]:
        """What the files call a column."""
        return [named[name] for named in self._named if name in named]

    def place(self, row: int) -> str:
        """File and line of a row."""
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.files[number].place(row - self.starts[number])

    def cell(self, name: str, row: int) -> str:
        """A cell as it is written, in quotes."""
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        scalar = self.columns(name)[number][row - self.starts[number]]
        with self._converting(name):
            # Python has no dates before the year 1 or after 9999.
            text = repr(pc.cast(scalar, pa.string()).as_py() or "") if scalar.is_valid else "''"
        return "empty" if text == "''" else cut(text)

    def refuse(
        self, bad: Bools, message: str, hint: str | None = None, name: str | None = None
    ) -> None:
        """Refuse the first of the rows marked by ``bad``, if any; ``{}`` in the message is its cell of a column.

        If the frame collects its :attr:`mistakes`, the first of these rows are added to them instead.
        """
        rows = np.flatnonzero(bad if self.chosen is None else bad & self.chosen)
        for row, more in first_of(rows):
            text, fix = message, hint
            if name is not None:
                cell = self.cell(name, row)
                fix = without_comma(re.sub(r"[^\d.,]+$", "", cell.strip("'"))) or hint
                plain = cell.strip("' ").lower()
                if not plain.isdigit() and plain in map(str.lower, (name, *self.called(name))):
                    fix = "this is the header again: remove the line"
                text = message.format(cell)
            error = UserError(text + more, where=self.place(row), hint=fix)
            if self.mistakes is None:
                raise error
            self.mistakes.setdefault((row, name or message), error)


def first_of(rows: Ints) -> Iterator[tuple[int, str]]:
    """The first of some rows that are wrong in the same way, each with an addition to its message: of the last one, the
    number of the others."""
    others = len(rows) - _LISTED
    for number, row in enumerate(rows[:_LISTED].tolist(), 1):
        is_last = number == _LISTED and others > 0
        yield row, f" (and {format_counted(others, 'more such row')})" if is_last else ""
