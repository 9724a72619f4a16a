"""Data sets: the sizes of the real ones, and those that are generated."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from tests.tasks.files import batch, equal
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


def test_the_gaussian_mixture_has_the_given_moments() -> None:
    dataset = load("gaussian_mixture", samples=20000, features=30, mean_std=0.45)
    means = np.stack(
        [dataset.train_x[dataset.train_y == label].mean(axis=0) for label in range(10)]
    )
    assert means.std() == pytest.approx(0.45, rel=0.1)
    assert (dataset.train_x - means[dataset.train_y]).std() == pytest.approx(1.0, rel=0.01)
    assert np.bincount(dataset.train_y).tolist() == [2000] * 10
    # Training and test samples come from the same means.
    other = np.stack([dataset.test_x[dataset.test_y == label].mean(axis=0) for label in range(10)])
    assert np.corrcoef(means.ravel(), other.ravel())[0, 1] > 0.9


def test_the_common_work_is_a_hundred_clients_of_two_hundred_images() -> None:
    dataset = load("common_work", test_samples=50)
    assert dataset.train_x.shape == (20000, 1, 28, 28)
    assert dataset.train_x.dtype == np.float32
    assert dataset.train_groups is not None
    assert np.bincount(dataset.train_groups).tolist() == [200] * 100
    assert dataset.classes == 10


def test_shifted_logistic_has_a_model_a_group() -> None:
    dataset = load("shifted_logistic", groups=4, samples=4000, features=6)
    assert dataset.kind == "binary"
    assert dataset.train_groups is not None
    assert np.square(dataset.train_x).sum(axis=1).mean() == pytest.approx(1, abs=0.35)
    # Least squares on one group's samples predicts that group's labels and not another's.
    weights = []
    for group in range(4):
        of_group = dataset.train_groups == group
        x = np.c_[dataset.train_x[of_group], np.ones(of_group.sum())]
        weights.append(np.linalg.lstsq(x, dataset.train_y[of_group] - 0.5, rcond=None)[0])
    cosines = [
        weights[a] @ weights[b] / np.linalg.norm(weights[a]) / np.linalg.norm(weights[b])
        for a in range(4)
        for b in range(a)
    ]
    assert max(cosines) < 0.9


def test_synthetic_follows_its_law() -> None:
    dataset = load("synthetic", alpha=0.5, beta=0.5, devices=20)
    assert dataset.input_shape == (60,)
    assert dataset.train_groups is not None
    sizes = np.bincount(dataset.train_groups)
    assert len(sizes) == 20
    assert sizes.min() >= 45, "50 samples or more, a tenth set aside"
    # Variance of feature j around its device's mean is j ^ -1.2.
    largest = int(np.argmax(sizes))
    group_x = dataset.train_x[dataset.train_groups == largest]
    assert group_x.var(axis=0)[[0, 9, 59]] == pytest.approx(np.array([1, 10, 60]) ** -1.2, rel=0.5)
    assert equal(dataset, load("synthetic", alpha=0.5, beta=0.5, devices=20))
    assert not equal(dataset, load("synthetic", alpha=0.5, beta=0.5, devices=20, seed=1))


def test_alpha_and_beta_set_how_much_the_devices_differ() -> None:
    def spread_of_means(beta: float) -> float:
        dataset = load("synthetic", alpha=0, beta=beta, devices=40)
        assert dataset.train_groups is not None
        means = [dataset.train_x[dataset.train_groups == device].mean() for device in range(40)]
        return float(np.std(means))

    assert spread_of_means(0) < 0.3
    assert spread_of_means(4) == pytest.approx(4, rel=0.4)
    shared = load("synthetic", iid=True, devices=40)
    means = [shared.train_x[shared.train_groups == device].mean() for device in range(40)]
    assert np.std(means) < 0.05


def test_digits_are_scikit_learns_with_a_fixed_split() -> None:
    from sklearn.datasets import load_digits

    dataset = load("digits")
    assert (len(dataset.train_y), len(dataset.test_y)) == (1438, 359)
    theirs = load_digits()
    is_test = np.arange(len(theirs.target)) % 5 == 4
    for x, y, rows in (
        (dataset.train_x, dataset.train_y, ~is_test),
        (dataset.test_x, dataset.test_y, is_test),
    ):
        assert np.array_equal(x[:, 0], theirs.images[rows])
        assert np.array_equal(y, theirs.target[rows])
    assert dataset.train_x.dtype == np.uint8
    assert dataset.scale is not None
    assert (dataset.train_x * dataset.scale).max() == 1.0
    assert np.bincount(dataset.train_y).min() > 120


def test_cifar100_has_fine_and_coarse_labels(tmp_path: Path) -> None:
    labels = {"fine_labels": [99, 3, 4, 5, 6, 7], "coarse_labels": [19, 1, 2, 3, 4, 5]}
    for part in ("train", "test"):
        (tmp_path / part).write_bytes(batch(0, **labels))
    names = {
        "fine_label_names": [f"f{number}" for number in range(100)],
        "coarse_label_names": [f"c{number}" for number in range(20)],
    }
    (tmp_path / "meta").write_bytes(pickle.dumps(names, protocol=2))
    fine, coarse = (load("cifar100", root=tmp_path, labels=kind) for kind in ("fine", "coarse"))
    assert (fine.classes, fine.train_y[0], fine.class_names[99]) == (100, 99, "f99")
    assert (coarse.classes, coarse.train_y[0], coarse.class_names[19]) == (20, 19, "c19")
    (tmp_path / "train").write_bytes(batch(0, fine_labels=["a"] * 6))
    with pytest.raises(UserError, match=r"train: .*images of 3 x 32 x 32 bytes and one entry of"):
        load("cifar100", root=tmp_path)
    for wrong in ({}, {"fine_label_names": 100}, {"fine_label_names": ["f0"]}):
        (tmp_path / "meta").write_bytes(pickle.dumps(wrong, protocol=2))
        with pytest.raises(UserError, match=r"meta: .*does not name 100 fine labels"):
            load("cifar100", root=tmp_path)
