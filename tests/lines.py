"""Tables of test cases as text, and messages without the numbers of lines, which most tests leave open."""

import re


def without_lines(text: str | None) -> str:
    """The text, in which ``own.py:12: Mine.draw`` is ``own.py: Mine.draw``."""
    return re.sub(r"(\.py):\d+(?=: )", r"\1", text or "")


def rows(table: str) -> list[list[str]]:
    """The cells of each line, between ``" | "``; a written ``\\n`` is a new line."""
    lines = table.strip("\n").splitlines()
    return [[cell.replace("\\n", "\n") for cell in line.split(" | ")] for line in lines]
