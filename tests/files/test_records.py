"""Records: what was written is read, and every damage is one error that names the file and the way on."""

import errno
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import TypedDict

from fedsim.errors import Unreadable, UserError
from fedsim.files.checksums import stamped
from fedsim.files.records import Checksums, Number, Record, Whole, entries


@entries
class Entries(TypedDict, total=False):
    count: Whole
    value: Number
    words: list[str]
    files: Checksums


RECORD = Record("record.json", 3, Entries)
CONTENT = {"count": 7, "value": 1.5, "words": ["a", "b"], "more": {"x": [None, True]}}
RANDOM = random.Random(1)


def damages(data: bytes) -> Iterator[bytes]:
    """Forty flipped bits, forty cuts and removals, and documents that are not records."""
    for _ in range(40):
        changed = bytearray(data)
        changed[RANDOM.randrange(len(data) - 1)] ^= 1 << RANDOM.randrange(8)
        yield bytes(changed)
        begin, end = sorted(RANDOM.sample(range(len(data)), 2))
        yield data[:begin] + data[end:]
    yield from (
        b"",
        b"[]",
        b"3",
        b'{"format": "3"}',
        b'{"format": 4}',
        b"[" * 100_000,
        b"9" * 9_999,
    )


def test_every_damage_is_one_error(tmp_path: Path) -> None:
    RECORD.write(tmp_path, CONTENT)
    assert RECORD.read(tmp_path).items() >= {**CONTENT, "format": 3}.items()
    path = tmp_path / RECORD.file
    for data in damages(path.read_bytes()):
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"rm |update fedsim") as caught:
            RECORD.read(tmp_path)
        assert caught.value.where == str(path)
    os.truncate(path, 3 << 30)
    with pytest.raises(UserError, match="larger than"):
        RECORD.read(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        RECORD.read(tmp_path)


def test_an_intact_record_that_may_not_be_opened_is_not_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    RECORD.write(tmp_path, CONTENT)
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(Unreadable, match="Too many open files") as caught:
        RECORD.read(tmp_path)
    assert caught.value.hint is None


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("count", True),
        ("count", 10**400),
        ("value", "1"),
        ("value", 10**400),
        ("words", [1]),
        ("files", {"../other.csv": "0"}),
        ("files", {"/etc/passwd": "0"}),
    ],
)
def test_an_entry_of_another_type_is_refused_with_a_fitting_checksum(
    tmp_path: Path, entry: str, value: Any
) -> None:
    document = stamped({**CONTENT, "format": 3, entry: value})
    (tmp_path / RECORD.file).write_text(json.dumps(document))
    with pytest.raises(UserError, match=f"the entry '{entry}"):
        RECORD.read(tmp_path)


def test_control_characters_stay_in_the_file(tmp_path: Path) -> None:
    RECORD.write(tmp_path, {"words": ["\x1b[31mred\n"], "error": "\x07a\nb"})
    content = RECORD.read(tmp_path)
    assert content["words"] == ["\\x1b[31mred\\n"]
    assert content["error"] == "\\x07a\nb"


def test_a_listed_file_is_intact_also_if_the_process_ends_between_two_writes(
    tmp_path: Path,
) -> None:
    content: dict[str, Any] = {}
    RECORD.write_listed(tmp_path, content, {"table.csv": "first"})
    file = tmp_path / "table.csv"
    RECORD.write_listed(tmp_path, content, {"table.csv": "second"})
    for text in ("second", "first"):  # The second record was written, its file was not.
        file.write_text(text)
        RECORD.require_intact(tmp_path, RECORD.read(tmp_path), "table.csv")
    for change in (lambda: file.write_text("third"), file.unlink):
        change()
        with pytest.raises(UserError, match=r"changed|No such file"):
            RECORD.require_intact(tmp_path, RECORD.read(tmp_path), "table.csv")
