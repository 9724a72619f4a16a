"""The training section."""

from __future__ import annotations

import pytest

from fedsim.api import read_scenario
from fedsim.errors import UserError
from fedsim.scenario.training import Augmentation


def test_nothing_to_do_is_refused() -> None:
    with pytest.raises(ValueError, match="crop_padding, flip"):
        Augmentation()


@pytest.mark.parametrize("workers", [4, "threads"])
def test_a_number_or_a_word_for_workers_is_refused_with_what_to_write(workers: int | str) -> None:
    with pytest.raises(UserError) as caught:
        read_scenario({"stop": {"rounds": 1}, "training": {"workers": workers}})
    assert f"mapping with the name threads, devices or ray, not {workers!r}" in str(caught.value)
    assert "{name: threads}; for a number of threads, set training.threads" in str(caught.value)
