"""Parameters of the variation of step times: contradictions are refused, and nothing varies by default."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pydantic import BaseModel, ValidationError

from fedsim.devices.compute.base import ComputeModel, ComputeParams, Perturbation, Stragglers
from tests.devices.compute.population import context, times


@pytest.mark.parametrize(
    ("model", "values", "message"),
    [
        (Stragglers, {"slowdown_min": 3, "slowdown_max": 2}, "slowdown_max is smaller"),
        (Perturbation, {"at": "2h", "until": "2h", "factor": 2}, "until must come after at"),
    ],
)
def test_spans_in_the_wrong_order_are_refused(
    model: type[BaseModel], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        model(**values)


def test_nothing_varies_by_default() -> None:
    steady = times("values", context(2), step=[1.0, 2.0])
    assert steady.constant_steps_ns() is not None
    varied = times("values", context(2), step=[1.0, 2.0], jitter={"cv": 0.1})
    assert varied.constant_steps_ns() is None


def test_a_model_that_does_not_redraw_cannot_be_asked_to() -> None:
    class Second(ComputeModel):
        name = "second"
        Params = ComputeParams

        def step_s(self) -> npt.NDArray[np.float64]:
            return np.ones(self.context.clients)

    with pytest.raises(TypeError, match="second does not redraw step times"):
        Second(ComputeParams(), context()).redrawn_step_s(0, 1)
