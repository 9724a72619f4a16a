"""The device file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fedsim
from fedsim.errors import UserError
from tests.flower import apps


def test_wrong_use_gives_one_message(run_app: Callable[..., Any]) -> None:
    server, client = apps.strategy_server(), apps.torch_client()
    with pytest.raises(UserError, match=r"server\.method.*has no effect on a Flower app"):
        run_app(server, client, {"server": {"method": "fedavg"}})
    with pytest.raises(UserError, match="the task of a Flower app is 'flower'"):
        run_app(server, client, {"task": {"name": "timing", "clients": 3}})
    with pytest.raises(UserError, match="cannot send partial work"):
        run_app(
            server,
            client,
            {"devices": {"availability": {"name": "always", "on_disconnect": "send_partial"}}},
        )
    with pytest.raises(UserError, match="other processes cannot import"):
        run_app(server, client, {"task": {"clients": 2, "workers": {"name": "processes"}}})
    with pytest.raises(UserError, match=r"fedsim flower APP"):
        fedsim.run({"task": {"name": "flower"}, "stop": {"rounds": 1}})
    with pytest.raises(UserError, match="took no step of a PyTorch optimizer") as caught:
        run_app(apps.sklearn_server(), apps.sklearn_client())
    assert "devices.compute.unit=example" in str(caught.value)
