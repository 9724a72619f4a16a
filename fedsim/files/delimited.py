"""Comma-separated text: no column appears twice, and every row has as many cells as the header."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator

from fedsim.errors import UserError
from fedsim.vocabulary.formatting import format_counted

LONGEST_ROW_BYTES = 1 << 24
"""Of a table, whether Arrow or Python reads it."""
csv.field_size_limit(LONGEST_ROW_BYTES)


def checked_rows(
    text: Iterable[str],
    where: str,
    *,
    skip_initial_space: bool = False,
    delimiter: str = ",",
    above: int = 0,
    comment: str | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows that are not blank, each with the number of its last line.

    Args:
        text: the lines of a file.
        where: its path, for messages.
        skip_initial_space: whether spaces after a comma do not belong to the cell.
        delimiter: what separates cells.
        above: the number of lines above the header.
        comment: what rows begin with that are left out if they have another number of cells.
    """
    reader = csv.reader(text, delimiter=delimiter, skipinitialspace=skip_initial_space)
    header: list[str] | None = None
    try:
        for row in reader:
            line = f"{where}:{reader.line_num}"
            if reader.line_num <= above or not any(cell.strip() for cell in row):
                continue
            if header is None:
                header = [name.strip() for name in row]
                if twice := repeated(header):
                    hint = "remove or rename one of them"
                    raise UserError(f"has the column '{twice}' twice", where=line, hint=hint)
            elif len(row) != len(header):
                if comment and row[0].startswith(comment):
                    continue
                raise UserError(
                    f"has {format_counted(len(row), 'cell')}, but the header has {len(header)}",
                    where=line,
                    hint=hint_of_header(header, "every row needs as many cells as the header"),
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise UserError(f"is not CSV: {error}", where=f"{where}:{reader.line_num}") from error


def repeated(names: Iterable[str]) -> str | None:
    """The name that occurs most often; None if each occurs once."""
    return next((name for name, count in Counter(names).most_common(1) if count > 1), None)


def hint_of_header(header: Iterable[str], otherwise: str) -> str:
    """The fix for a wrong header: commas if its columns are separated by semicolons or tabs, else ``otherwise``."""
    others = any(";" in name or "\t" in name for name in header)
    return "separate the columns by commas" if others else otherwise
