"""The training section."""

from __future__ import annotations

import pytest

from fedsim.scenario.training import Augmentation


def test_nothing_to_do_is_refused() -> None:
    with pytest.raises(ValueError, match="crop_padding, flip"):
        Augmentation()
