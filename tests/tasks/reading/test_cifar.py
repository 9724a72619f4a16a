"""The batches of CIFAR."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from tests.tasks.files import batch
from tests.tasks.toys import load


class Nasty:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Nasty()), "not a CIFAR batch .*exec"),
        (pickle.dumps([1]), "not a dictionary"),
        (b"nonsense", "not a CIFAR batch"),
        (batch(0, labels=[1]), "not hold images of 3 x 32 x 32"),
        (batch(0, other=[1] * 6), "one entry of labels for each"),
    ],
)
def test_a_batch_can_hold_arrays_and_nothing_else(
    cifar_folder: Path, content: bytes, message: str
) -> None:
    (cifar_folder / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load("cifar10", root=cifar_folder, batches=[1])
