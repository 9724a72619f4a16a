"""MNIST and Fashion-MNIST."""

from __future__ import annotations

import gzip
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.tasks.datasets.mnist import Mnist
from fedsim.tasks.reading.images import MNIST_FILES
from tests.tasks.files import equal, idx, idx_arrays
from tests.tasks.toys import load


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_idx_files_are_read_compressed_or_not(name: str, idx_folder: Path) -> None:
    dataset = load(name, root=idx_folder)
    arrays = idx_arrays()
    assert np.array_equal(dataset.train_x[:, 0], arrays[0])
    assert np.array_equal(dataset.train_y, arrays[1])
    assert np.array_equal(dataset.test_x[:, 0], arrays[2])
    assert np.array_equal(dataset.test_y, arrays[3])
    for path in list(idx_folder.iterdir()):
        (idx_folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    plain = load(name, root=idx_folder)
    assert equal(plain, dataset)
    assert isinstance(plain.train_x.base, np.memmap), "plain files are mapped, not read"


def test_the_data_folder_and_relative_roots_are_found(
    idx_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    component = CATALOG.parts("dataset")["mnist"]
    relative = component(component.Params(root=Path("images")))
    assert len(relative.load(idx_folder.parent).train_y) == 30
    (idx_folder.parent / "datasets").mkdir()
    idx_folder.rename(idx_folder.parent / "datasets" / "mnist")
    monkeypatch.setenv("FEDSIM_DATA", str(idx_folder.parent))
    assert len(load("mnist").train_y) == 30


def test_missing_files_and_wrong_labels_are_named(idx_folder: Path) -> None:
    labels = idx_folder / f"{MNIST_FILES[1]}.gz"
    labels.write_bytes(gzip.compress(idx(np.full(30, 11))))
    with pytest.raises(UserError, match="train labels run from 11 to 11, outside 0 to 9"):
        load("mnist", root=idx_folder)
    labels.unlink()
    with pytest.raises(UserError, match=f"missing {MNIST_FILES[1]} in .*images"):
        load("mnist", root=idx_folder)
    with pytest.raises(UserError, match="no such folder"):
        load("mnist", root=idx_folder / "nowhere")


def test_pixels_are_normalized_or_run_from_zero_to_one(idx_folder: Path) -> None:
    for normalize, low, high in ((True, -0.1307 / 0.3081, 0.8693 / 0.3081), (False, 0.0, 1.0)):
        dataset = load("mnist", root=idx_folder, normalize=normalize)
        assert dataset.scale is not None
        assert dataset.shift is not None
        ends = np.array([0, 255]) * dataset.scale.item() + dataset.shift.item()
        assert ends == pytest.approx([low, high], rel=1e-5)


def test_mnist_is_downloaded_where_it_is_not_at_hand(
    server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = server
    hashes = []
    for name, array in zip(MNIST_FILES, idx_arrays(), strict=True):
        content = gzip.compress(idx(array))
        (folder / f"{name}.gz").write_bytes(content)
        hashes.append(sha256(content).hexdigest())
    monkeypatch.setattr(Mnist, "mirrors", (address,))
    monkeypatch.setattr(Mnist, "digests", tuple(hashes))
    first = load("mnist")
    assert len(first.train_y) == 30
    for path in folder.iterdir():
        path.unlink()
    assert equal(load("mnist"), first), "the second time it comes from the cache"
