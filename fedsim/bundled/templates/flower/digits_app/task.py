"""The model, the data, training and testing."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn


def make_model() -> nn.Module:
    """A small network for images of 8 x 8 pixels."""
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def load_data(partition: int | None = None, partitions: int = 1) -> tuple[Tensor, Tensor]:
    """The images of a partition, sorted so that it has few of the digits; the test images if ``partition`` is None."""
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    if partition is None:
        return x[1500:], y[1500:]
    order = y[:1500].argsort(stable=True)
    # Two shards of the sorted images each.
    shards = order.tensor_split(2 * partitions)
    rows = torch.cat([shards[partition], shards[-1 - partition]])
    return x[rows], y[rows]


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int, learning_rate: float) -> float:
    """Train with SGD on mini-batches of 8; returns the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(8):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
    return loss.item()


def test(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Loss and accuracy."""
    with torch.no_grad():
        output = model(x)
    loss = nn.functional.cross_entropy(output, y)
    return loss.item(), (output.argmax(1) == y).float().mean().item()
