"""Models of the user's own, right and wrong."""

from pathlib import Path
from typing import Any

from fedsim.scenario.loading import load_part
from fedsim.tasks.kinds.supervised import SupervisedTask
from tests.tasks.toys import split, toy_dataset

USERS = """
import torch
from torch import nn
from fedsim.parts.component import Parameters
from fedsim.tasks.model import ModelComponent

class Net(nn.Module):
    def __init__(self, input_shape, classes, width=16):
        super().__init__()
        self.hidden = nn.Linear(input_shape[0] * input_shape[1] * input_shape[2], width)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(width, classes)
        nn.init.constant_(self.last.bias, 3.0)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.hidden(x.flatten(1)))))

class Wrong(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :3]

class Tuple(Wrong):
    def forward(self, x):
        return super().forward(x), x

class Array(Wrong):
    def forward(self, x):
        return torch.zeros(len(x), 10).numpy()

class Complex(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last = nn.Linear(64, classes, dtype=torch.complex64)

    def forward(self, x):
        return self.last(x.flatten(1).to(torch.complex64)).abs()

class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        raise ZeroDivisionError("no idea")

class Unrepeatable(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(8, 10, dropout=0.5, num_layers=2)

class Component(ModelComponent):
    name = "mine"
    def build(self, dataset):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, dataset.classes))

class Small(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.first = nn.Linear(64, 8)
        self.last = nn.Linear(8, classes)

    def forward(self, x):
        return self.last(torch.relu(self.first(x.flatten(1))))

class Faulty(Small):
    def forward(self, x):
        return self.nothing(x)

class Whole(Small):
    def forward(self, x):
        return super().forward(x).long()

def scripted(classes):
    return torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(64, classes)))

class Softmax(Small):
    def forward(self, x):
        return super().forward(x).softmax(1)

class Detached(Small):
    def forward(self, x):
        return self.last(self.first(x.flatten(1))).detach()

class Spare(Small):
    def __init__(self, classes):
        super().__init__(classes)
        self.spare = nn.Linear(3, 3)

class Frozen(Small):
    def __init__(self, classes):
        super().__init__(classes)
        self.first.requires_grad_(False)

class AllFrozen(Small):
    def __init__(self, classes):
        super().__init__(classes)
        self.requires_grad_(False)

class Masked(Small):
    def forward(self, x, mask):
        return super().forward(x * mask)

class Lazy(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last = nn.LazyLinear(classes)

    def forward(self, x):
        return self.last(x.flatten(1))

class LazyBuffer(Small):
    def __init__(self, classes):
        super().__init__(classes)
        self.norm = nn.LazyBatchNorm1d(affine=False)

class OnlyEvaluated(Small):
    def forward(self, x):
        if self.training:
            raise KeyError("mode")
        return super().forward(x)

class Restless(Small):
    def __init__(self, classes):
        super().__init__(classes)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        self.train()
        return self.drop(super().forward(x))

class Normed(Small):
    def __init__(self, classes):
        super().__init__(classes)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x.flatten(1)))))

class FrozenStack(ModelComponent):
    name = "frozen_stack"
    family = "mlp"
    def build(self, dataset):
        stack = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, dataset.classes))
        stack[1].requires_grad_(False)
        return stack

class Neither:
    pass
"""


def own_task(folder: Path, name: str, **options: Any) -> SupervisedTask:
    model = load_part("model", {"name": f"own.py:{name}", **options}, folder).create()
    dataset = toy_dataset()
    return SupervisedTask(dataset, split(dataset, "iid", clients=4), model)
