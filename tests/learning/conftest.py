"""Fixtures of the tests of learning."""

from collections.abc import Iterator

import pytest

from tests.learning.imitation_cuda import imitated_cuda


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An imitated device on which every step is recorded when it is first seen."""
    monkeypatch.setattr("fedsim.learning.kernels.replay._SIGHTINGS", 0)
    with imitated_cuda(monkeypatch):
        yield
