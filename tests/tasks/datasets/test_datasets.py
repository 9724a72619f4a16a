"""All data sets: their names, and the sizes of the real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tasks.toys import load


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "params", "train", "test", "shape", "classes", "groups"),
    [
        ("mnist", {}, 60000, 10000, (1, 28, 28), 10, 0),
        ("fashion_mnist", {}, 60000, 10000, (1, 28, 28), 10, 0),
        ("uci_har", {}, 7715, 2584, (9, 128), 6, 30),
        ("heart_disease", {}, 494, 246, (13,), 2, 4),
    ],
)
def test_real_data_have_their_known_sizes(
    real: Path,
    name: str,
    params: dict[str, Any],
    train: int,
    test: int,
    shape: tuple[int, ...],
    classes: int,
    groups: int,
) -> None:
    dataset = load(name, **params)
    assert (len(dataset.train_y), len(dataset.test_y)) == (train, test)
    assert dataset.input_shape == shape
    assert (dataset.classes, len(dataset.group_names)) == (classes, groups)
    if dataset.scale is not None and dataset.shift is not None:
        seen = dataset.train_x[:3000] * dataset.scale + dataset.shift
        assert abs(float(seen.mean())) < 0.05
        assert float(seen.std()) == pytest.approx(1, abs=0.05)
