"""What every exporter does with its files: none is replaced unless requested, and none is left half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from fedsim.errors import UserError
from fedsim.parts.parameters import Parameters
from fedsim.traces.exporters import Exporter, Files
from tests.traces.cases import bundle_of


class Two(Exporter):
    """Writes two files."""

    name = "two"
    Params = Parameters
    writes_folder: ClassVar[bool] = True

    @classmethod
    def files(cls, bundle: Any, path: Path, params: Any, counts: dict[str, int]) -> Files:
        counts["files"] = 2
        yield path / "a", "text ü"
        yield path / "b", b"\x00bytes"


@pytest.fixture
def bundle() -> Any:
    return bundle_of({"d0": [(0, 60_000_000)]})


def test_text_and_bytes_are_written_into_a_new_folder(bundle: Any, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert Two.write(bundle, folder, Parameters()) == {"files": 2}
    assert (folder / "a").read_bytes() == "text ü".encode()
    assert (folder / "b").read_bytes() == b"\x00bytes"
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_existing_files_are_replaced_only_on_request(bundle: Any, tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    with pytest.raises(UserError, match="the output already exists") as caught:
        Two.write(bundle, tmp_path, Parameters())
    assert caught.value.where == str(tmp_path / "b")
    assert (tmp_path / "b").read_text() == "mine"
    Two.write(bundle, tmp_path, Parameters(), overwrite=True)
    assert (tmp_path / "b").read_bytes() == b"\x00bytes"
