"""A model of the user's with frozen parameters, and a scenario that trains it."""

from typing import Any

from tests.composition.worlds import digits

USERS = """
import torch
from torch import nn

class Adapted(nn.Module):
    '''A frozen layer of 64 x 32 + 32 numbers with an adapter of 2 x 64 + 32 x 2, and a layer of 32 x 10 + 10.'''

    def __init__(self, classes):
        super().__init__()
        self.base = nn.Linear(64, 32).requires_grad_(False)
        self.register_buffer("scaling", torch.tensor(2.0))
        self.a = nn.Parameter(torch.randn(2, 64) / 8)
        self.b = nn.Parameter(torch.zeros(32, 2))
        self.last = nn.Linear(32, classes)

    def forward(self, x):
        x = x.flatten(1)
        return self.last(torch.relu(self.base(x) + x @ self.a.T @ self.b.T * self.scaling))
"""


def scenario(**changes: Any) -> dict[str, Any]:
    task = digits()["task"] | {"model": {"name": "own.py:Adapted"}}
    server = {"selection": {"name": "scripted", "rounds": [[0], [0, 1], [1]]}}
    world = {
        "task": task,
        "stop": {"rounds": 3},
        "server": server,
        "evaluation": {"every_rounds": 9},
    }
    return digits(**(world | changes))
