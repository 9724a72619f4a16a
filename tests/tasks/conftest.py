"""Folders of data sets, and nothing at hand from elsewhere."""

import gzip
import lzma
from pathlib import Path

import pytest

from fedsim.tasks.datasets.images import MNIST_FILES
from tests.tasks.files import batch, idx, idx_arrays
from tests.tasks.users import USERS


@pytest.fixture(autouse=True)
def nothing_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data folder, an empty download cache."""
    monkeypatch.delenv("FEDSIM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def idx_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for name, array in zip(MNIST_FILES, idx_arrays(), strict=True):
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return folder


@pytest.fixture
def cifar_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for number in (1, 2, 5):
        content = batch(number, labels=[number] * 6)
        (folder / f"data_batch_{number}.xz").write_bytes(lzma.compress(content))
    (folder / "test_batch").write_bytes(batch(9, labels=list(range(6))))
    return folder.parent


@pytest.fixture
def real(fedsim_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDSIM_DATA", str(fedsim_data))
    return fedsim_data / "datasets"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(USERS)
    return tmp_path
