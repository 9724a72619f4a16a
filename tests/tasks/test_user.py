"""Data sets and models of the user's own."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.loading import load_part
from fedsim.tasks.dataset import Dataset
from tests.learning.problems import Timeline, make_learner, make_training
from tests.tasks.toys import START, train_rows
from tests.tasks.users import own_task

DATA = """
import numpy as np
import pandas as pd
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

def misnamed():
    return {"a": X, "y": Y}

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

def ragged():
    return {"x": [[1, 2], [3]], "y": [0, 1]}

def with_gradient():
    return torch.rand(20, 3, requires_grad=True), Y

def frame():
    return pd.DataFrame({"x": [1, 2], "y": [0, 1]})

def unsortable():
    return {"x": X, "y": Y, "group": np.array([None, "a"] * (len(Y) // 2), object)}

def nothing():
    return None

def elsewhere():
    import os
    os.chdir("/")
    return X, Y

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
    folder = Path.cwd()
    assert made("elsewhere").classes == 2
    assert Path.cwd() == folder  # Relative output folders stay where they are.


def test_tables(made: Any) -> None:
    pytest.importorskip("datasets", reason="needs the extra huggingface")
    dataset = made("table")
    assert dataset.input_shape == (1,)
    assert dataset.group_names == ("5", "6")
    assert len(dataset.train_y) == len(dataset.test_y) == 20


@pytest.mark.parametrize(
    "function",
    [
        *("stream", "nothing", "four", "three", "misnamed", "ragged"),
        *("with_gradient", "frame", "unsortable"),
    ],
)
def test_other_returns_are_refused(made: Any, function: str) -> None:
    with pytest.raises(UserError) as refusal:
        made(function)
    assert f": {function}" in str(refusal.value.where)
    assert "data.py:" in str(refusal.value.where)


def test_a_torch_module_of_the_users_can_be_trained(users: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    problem = own_task(users, "Net", width=20)
    assert problem.parameters == 65 * 20 + 21 * 10
    first = problem.initial(START)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, problem.initial(START))
    assert not torch.equal(first, problem.initial(Stream(1, Purpose.INITIAL_MODEL)))
    assert (problem.layout.views(first)["last.bias"] == 3).all(), "the constructor's choice stays"
    assert problem.drops
    assert problem.layout.names == ("hidden.weight", "hidden.bias", "last.weight", "last.bias")


def test_a_component_of_the_users_can_be_trained(users: Path) -> None:
    problem = own_task(users, "Component")
    assert problem.parameters == 650
    assert problem.initial(START).std() > 0


def test_a_module_that_ends_with_a_softmax_is_doubted(users: Path) -> None:
    (doubt,) = own_task(users, "Softmax").doubts()
    assert doubt.message.endswith("returns probabilities, but the loss expects logits")
    assert own_task(users, "Small").doubts() == []


def test_frozen_parameters_stay_as_they_are(users: Path) -> None:
    """What remains to be trained is trained as torch trains it, with momentum and weight decay."""
    problem = own_task(users, "Frozen")
    assert problem.parameters == 9 * 10
    assert problem.layout.names == ("last.weight", "last.bias"), "frozen tensors are not sent"
    assert problem.fixed_elements == 65 * 8
    assert problem.model_family == "module"
    optimizer = {"name": "sgd", "lr": 0.1, "momentum": 0.5, "weight_decay": 0.1}
    training = make_training(optimizer=optimizer, batch_size=1000, threads=1)
    learner = make_learner(problem, training)
    timeline = Timeline()
    timeline.aggregate(timeline.dispatch(0, steps=3))
    start = learner.named_model()
    timeline.play(learner)
    learner.close()
    result = learner.named_model()

    module = copy.deepcopy(problem.module)
    module.load_state_dict(start)
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5, weight_decay=0.1)
    rows = torch.from_numpy(train_rows(problem.partition, 0))
    for _ in range(3):
        sgd.zero_grad()
        outputs = module(problem.inputs(problem.train_x[rows]))
        nn.functional.cross_entropy(outputs, problem.train_y[rows]).backward()
        sgd.step()
    for name, expected in module.state_dict().items():
        if name.startswith("first"):
            assert torch.equal(result[name], start[name]), name
        assert torch.allclose(result[name], expected, rtol=1e-4, atol=1e-6), name
    assert not torch.equal(result["last.weight"], start["last.weight"])


def test_parameters_that_nothing_uses_stay_as_they_are(users: Path) -> None:
    learner = make_learner(own_task(users, "Spare"), make_training(threads=1))
    timeline = Timeline()
    timeline.aggregate(timeline.dispatch(0, steps=3))
    start = learner.named_model()
    timeline.play(learner).close()
    for name, value in learner.named_model().items():
        assert torch.equal(value, start[name]) == name.startswith("spare"), name


def test_a_stack_with_frozen_layers_is_no_stack_for_the_kernels(users: Path) -> None:
    assert own_task(users, "FrozenStack").model_family == "module"
