"""A small convolutional network with batch normalization."""

import torch
from torch import nn


class Net(nn.Module):
    """Two convolutions and a linear layer; ``width`` comes from the scenario, the rest from the data."""

    def __init__(self, input_shape, classes, width=8):
        super().__init__()
        channels, height, columns = input_shape
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)  # its running statistics travel with the model
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Linear(width * (height // 2) * (columns // 2), classes)

    def forward(self, x):
        """Map images (n, *input_shape) to one number per class (n, classes)."""
        x = torch.relu(self.norm(self.first(x)))
        x = torch.max_pool2d(torch.relu(self.second(x)), 2)
        return self.last(x.flatten(1))
