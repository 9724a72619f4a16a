"""Drawing from a global generator is refused in parts that do not ship with fedsim; those that do are left alone."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from fedsim.errors import UserError
from fedsim.global_generators import watched
from fedsim.learning.rates.constant import Constant
from fedsim.parameters import Parameters


class Part:
    def draws(self, library: str) -> float:
        if library == "random":
            return random.random()
        if library == "numpy":
            return float(np.random.rand())  # noqa: NPY002
        return float(torch.rand(()))

    def draws_its_own(self) -> float:
        return float(
            np.random.default_rng(1).random() + torch.rand((), generator=torch.Generator())
        )

    def fails(self) -> None:
        random.random()
        raise KeyError("mine")


@pytest.mark.parametrize("library", ["random", "numpy", "torch"])
def test_each_library_is_named(library: str) -> None:
    part = watched(Part(), "draws", hint="use a generator")
    with pytest.raises(UserError, match=rf"generator of {library}, so") as caught:
        part.draws(library)
    assert caught.value.where == f"{__file__}: Part.draws"
    assert caught.value.hint == "use a generator"


def test_other_generators_functions_and_errors_pass() -> None:
    part = watched(Part(), "draws_its_own", "fails", hint="")
    assert part.draws_its_own() == part.draws_its_own()
    assert 0 <= part.draws("random") < 1
    with pytest.raises(KeyError, match="mine"):
        part.fails()


def test_what_ships_with_fedsim_is_left_alone() -> None:
    part = Constant(Parameters())
    assert watched(part, "factor", hint="") is part
    assert vars(part).keys() == {"params"}
