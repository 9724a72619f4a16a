"""The page benchmarks/validation/README.md, whose tables are written by the modules that measure them."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = Path(__file__).parent / "README.md"


def replace_table(mark: str, text: str) -> None:
    """Replace what stands between ``<!-- MARK -->`` and ``<!-- end of MARK -->``."""
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    before, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}")
