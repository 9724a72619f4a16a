"""The table of methods and compressions: complete, and as the program finds it now, for a sample."""

from collections.abc import Iterator

import pytest

from benchmarks import compressed_methods
from benchmarks.compressed_methods import COMPRESSIONS, PAGE, TABLE
from fedsim.parts.catalog import CATALOG


def recorded() -> Iterator[tuple[str, str, str, str]]:
    """Direction, method, compression and outcome of every cell."""
    match = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert match is not None
    _, *tables = match[0].split("| method |")
    for way, table in zip(("up", "down"), tables, strict=True):
        for line in table.splitlines():
            if line.startswith("| `"):
                name, *cells = line.strip("| ").split(" | ")
                for compression, cell in zip(COMPRESSIONS, cells, strict=True):
                    yield way, name.strip("`"), compression, cell


def test_every_method_and_every_lossy_compression_is_in_the_table() -> None:
    parts = CATALOG.parts("compression")
    assert set(COMPRESSIONS) == {name for name, part in parts.items() if part.lossy}
    expected = {
        (way, name, one)
        for way in ("up", "down")
        for name in CATALOG.parts("method")
        for one in COMPRESSIONS
    }
    assert {cell[:3] for cell in recorded()} == expected


@pytest.mark.parametrize(
    ("way", "method", "compression"),
    [
        ("up", "scaffold", "qsgd"),
        ("up", "fedavg", "qsgd"),
        ("up", "flora", "topk"),
        ("down", "fedawe", "cast"),
    ],
)
def test_the_table_holds(way: str, method: str, compression: str) -> None:
    found = compressed_methods.outcome(method, **{way: compression})
    (cell,) = [cell[3] for cell in recorded() if cell[:3] == (way, method, compression)]
    assert cell == (found if found in compressed_methods.OUTCOMES else "refused")
