"""Ordered dropout: every local step trains a part drawn at random."""

from __future__ import annotations

from pydantic import Field

from fedsim.learning.submodels.base import Rate, Submodels, SubmodelsParams


class FjordParams(SubmodelsParams):
    """Parameters of FjORD."""

    rates: tuple[Rate, ...] = Field(default=(1.0, 0.8, 0.6, 0.4, 0.2), min_length=1)
    """Widths p of which a step draws one; the largest first. A client's part is its largest."""


class Fjord(Submodels):
    """The first units of every hidden layer, as many as each local step draws (ordered dropout, FjORD).

    A client receives and sends the part of its limit. Each of its local steps trains the first p K (rounded up) of the
    K units of every hidden layer, with p drawn uniformly from the rates up to the limit. Each entry of the model moves
    by the mean over the clients whose limit includes it. A local step takes the mean time of the widths that it may
    draw. Running statistics of batch normalization are those of HeteroFL; distillation from the largest to the drawn
    width, an option of the paper, is not included.
    """

    name = "fjord"
    paper = (
        "Horvath et al., FjORD: Fair and Accurate Federated Learning under Heterogeneous Targets with Ordered Dropout, "
        "NeurIPS 2021, Algorithm 1 and equation 1"
    )
    Params = FjordParams
    static_statistics = True
    nested = True
