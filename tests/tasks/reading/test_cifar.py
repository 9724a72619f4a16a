"""The archives of CIFAR."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from fedsim.errors import UserError
from fedsim.tasks.reading.cifar import CifarArchive
from fedsim.tasks.reading.files import Remote
from tests.tasks.files import batch, digest
from tests.tasks.toys import load


def test_a_cut_off_batch_is_damaged(cifar_folder: Path) -> None:
    path = cifar_folder / "cifar-10-batches-py" / "data_batch_1.xz"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(UserError, match=r"data_batch_1\.xz.*damaged"):
        load("cifar10", root=cifar_folder, batches=[1])


def test_the_downloaded_archive_is_read_without_unpacking(server: tuple[str, Path]) -> None:
    address, folder = server
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        body = batch(1, labels=[1] * 6)
        member = tarfile.TarInfo("inner/data_batch_1")
        member.size = len(body)
        archive.addfile(member, io.BytesIO(body))
    (folder / "all.tar.gz").write_bytes(content.getvalue())
    remote = Remote((f"{address}all.tar.gz",), digest(content.getvalue()))
    source = CifarArchive("toy", "inner", remote)
    assert source.read(["data_batch_1"], None, None)[0].values["labels"] == [1] * 6
    with pytest.raises(UserError, match=r"damaged.*data_batch_2"):
        source.read(["data_batch_2"], None, None)
