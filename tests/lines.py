"""Messages about users' files without the numbers of their lines, which most tests leave open."""

from __future__ import annotations

import re


def without_lines(text: str | None) -> str:
    """The text, in which ``own.py:12: Mine.draw`` is ``own.py: Mine.draw``."""
    return re.sub(r"(\.py):\d+(?=: )", r"\1", text or "")
