"""Views of linear layers in the vector of a model."""

from __future__ import annotations

import torch

from fedsim.learning.kernels.linear_layers import layers_of, views
from fedsim.tasks.layout import Layout

LAYOUT = Layout.of(
    [("first.weight", (2, 3)), ("first.bias", (2,)), ("second.weight", (1, 2)), ("last", (4, 1))]
)


def test_weights_and_biases_are_where_the_layout_says() -> None:
    weights, biases = views(layers_of(LAYOUT), torch.arange(14.0))
    assert [weight.tolist() for weight in weights] == [
        [[0, 1, 2], [3, 4, 5]],
        [[8, 9]],
        [[10], [11], [12], [13]],
    ]
    assert [None if bias is None else bias.tolist() for bias in biases] == [[6, 7], None, None]


def test_a_stack_of_vectors_has_a_stack_of_views() -> None:
    flat = torch.zeros(5, 14)
    weights, biases = views(layers_of(LAYOUT), flat)
    assert [weight.shape for weight in weights] == [(5, 2, 3), (5, 1, 2), (5, 4, 1)]
    assert biases[0] is not None
    biases[0] += 1
    assert flat.sum(dim=0).tolist() == [0] * 6 + [5, 5] + [0] * 6
