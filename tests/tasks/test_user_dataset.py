"""Data sets that a user's function returns."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.scenario.loading import load_part
from fedsim.tasks.dataset import Dataset

DATA = """
import numpy as np
import torch
from torch.utils.data import IterableDataset, TensorDataset, Subset, random_split

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 2

class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y))

def pair(samples=20):
    return X[:samples], Y[:samples]

def named():
    return {"x_train": X[:15], "y_train": Y[:15], "x_test": X[15:], "y_test": Y[15:]}

def grouped():
    return {"x": X, "y": Y, "group": [f"w{row % 4}" for row in range(20)]}

def quantities():
    return torch.tensor(X), torch.tensor(X[:, 0] + 0.5)

def tensors():
    data = TensorDataset(torch.tensor(X), torch.tensor(Y))
    return Subset(data, range(15)), Subset(data, range(15, 20))

def listed():
    return list(tensors())

def arrays():
    return [X, Y]

def samples():
    return list(zip(X, Y))

def three():
    data = TensorDataset(torch.tensor(X), torch.tensor(Y))
    return random_split(data, [10, 5, 5])

class Folder(TensorDataset):
    def __init__(self, names, labels):
        super().__init__(torch.tensor(X[:len(labels)]), torch.tensor(labels))
        self.classes = names

def folders():
    # A class without test images shifts the numbers of the others.
    return Folder(["a", "b", "c"], [0, 1, 2, 2]), Folder(["b", "c"], [0, 1, 1])

def drawn():
    return torch.rand(20, 3), Y

def stream():
    return Stream()

def nothing():
    return None

def four():
    return X[:15], Y[:15], X[15:], Y[15:]

def table():
    import datasets
    columns = {"x": X[:, 0], "label": Y, "group": Y + 5}
    return datasets.DatasetDict(test=datasets.Dataset.from_dict(columns), train=datasets.Dataset.from_dict(columns))
"""


@pytest.fixture
def made(tmp_path: Path) -> Any:
    (tmp_path / "data.py").write_text(DATA)

    def load(function: str, **given: Any) -> Dataset:
        part = load_part("dataset", {"name": f"data.py:{function}", **given}, tmp_path)
        return part.create().loaded(tmp_path)

    return load


def test_arrays_and_tensors(made: Any) -> None:
    dataset = made("pair", samples=10)
    assert (len(dataset.train_y), len(dataset.test_y), dataset.classes) == (8, 2, 2)
    assert dataset.name == "pair"
    for function in ("named", "tensors", "listed"):
        dataset = made(function)
        assert np.array_equal(dataset.train_x, np.arange(45).reshape(15, 3))
        assert dataset.test_y.tolist() == [1, 0, 1, 0, 1]
    assert made("grouped").group_names == ("w0", "w1", "w2", "w3")
    assert made("quantities").kind == "regression"
    assert np.array_equal(made("drawn").train_x, made("drawn").train_x)
    assert len(made("arrays").train_y) == len(made("samples").train_y) == 16
    assert made("folders").test_y.tolist() == [1, 2, 2]


def test_tables(made: Any) -> None:
    pytest.importorskip("datasets", reason="needs the extra huggingface")
    dataset = made("table")
    assert dataset.input_shape == (1,)
    assert dataset.group_names == ("5", "6")
    assert len(dataset.train_y) == len(dataset.test_y) == 20


@pytest.mark.parametrize("function", ["stream", "nothing", "four", "three"])
def test_other_returns_are_refused(made: Any, function: str) -> None:
    with pytest.raises(UserError) as refusal:
        made(function)
    assert f": {function}" in str(refusal.value.where)
    assert "data.py:" in str(refusal.value.where)
