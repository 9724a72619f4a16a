"""The training section."""

import re
from typing import Any

import pytest

from fedsim.api import read_scenario
from fedsim.errors import UserError

A_NAME = "threads, devices or distributed, or a mapping with this name, not"


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"augmentation": {"flip": False}}, "give crop_padding, flip: true, or both"),
        ({"threads": 10**9}, "must be less than or equal to 1024"),
        ({"workers": 4}, f"{A_NAME} 4\n  for a number of threads, set"),
        ({"workers": "thread"}, f"{A_NAME} 'thread'"),
        ({"workers": "devices", "device": "cpu"}, "devices are CUDA devices"),
        ({"workers": {"name": "devices"}, "device": "cpu"}, "devices are CUDA devices"),
        ({"workers": {"name": "distributed"}, "executor": "plain"}, "one client at a time"),
    ],
)
def test_what_cannot_be_is_refused(training: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        read_scenario({"stop": {"rounds": 1}, "training": training})
