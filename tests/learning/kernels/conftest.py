"""Fixtures of the kernels' tests."""

import pytest

from fedsim.learning.kernels import LinearStackKernel


@pytest.fixture(params=[False, True], ids=["together", "client by client"])
def client_by_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """How stacks of linear layers take plain steps, whatever the size of the model."""
    monkeypatch.setattr(LinearStackKernel, "client_by_client", request.param)
    return bool(request.param)
