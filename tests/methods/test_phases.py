"""Two phases of local work on paper, and the cost of local rules in simulated time."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fedsim
from fedsim.methods.personal import phase_steps, run_phase
from tests.devices.worlds import LINKS, STEPS, timing

pytestmark = pytest.mark.usefixtures("without_reports")


@pytest.mark.parametrize(
    ("first", "second", "assigned", "done", "expected"),
    [
        (1, 1, 10, 10, (10, 10)),
        (1, 1, 10, 5, (10, 0)),  # the time of 10 steps is the first phase
        (1, 1, 10, 7, (10, 4)),
        (10, 1, 10, 5, (55, 0)),  # FedRep: 100 steps on the head, 10 on the representation
        (10, 1, 10, 9, (99, 0)),
        (1, 0.5, 3, 3, (3, 2)),  # Ditto: rounded up
        (1, 0.5, 3, 2, (3, 0)),
        (1, 0.5, 4, 3, (4, 0)),
        (1, 2, 4, 2, (4, 2)),
        (0.5, 0, 3, 3, (2, 0)),
        (1, 1, 10, 0, (0, 0)),
    ],
)
def test_a_client_that_stops_midway_has_done_its_first_phase_first(
    first: float, second: float, assigned: int, done: int, expected: tuple[int, int]
) -> None:
    cohort: Any = SimpleNamespace(steps=np.array([done]), steps_assigned=np.array([assigned]))
    steps = phase_steps(cohort, first, second)
    assert (int(steps[0][0]), int(steps[1][0])) == expected


def test_a_phase_is_trained_in_any_order_of_steps() -> None:
    """The trainer wants the most steps first; rows come back in the order of the cohort."""
    seen: dict[str, Any] = {}

    class Adds:
        def run(self, cohort: Any, start: torch.Tensor, *, steps: Any, rule: Any) -> Any:
            seen.update(clients=cohort.clients.tolist(), steps=steps.tolist(), rule=rule)
            model = start + torch.as_tensor(steps).unsqueeze(1)
            return Result(model=model, loss=model[:, 0] * 10)

    from fedsim.methods.base import Cohort, Trained

    def Result(**fields: Any) -> Trained:
        return Trained(mean_gradient=None, **fields)

    none = np.zeros(3, np.int64)
    cohort = Cohort(
        np.array([7, 8, 9]), none, none, none, none, none, torch.ones(3), none, none, {}, {}
    )
    start = torch.tensor([[100.0], [200.0], [300.0]])
    trained = run_phase(
        Adds(), cohort, start, np.array([1, 0, 5]), rule=lambda rows: start[rows, 0].tolist()
    )  # type: ignore[arg-type]
    assert (seen["clients"], seen["steps"]) == ([9, 7, 8], [5, 1, 0])
    assert seen["rule"] == [300, 100, 200]
    assert trained.model.tolist() == [[101.0], [200.0], [305.0]]
    assert trained.loss.tolist() == [1010.0, 2000.0, 3050.0]
    nothing = run_phase(Adds(), replace(cohort), start, none)  # type: ignore[arg-type]
    assert nothing.model.tolist() == start.tolist()


def test_vector_work_is_counted_against_the_operations_of_a_pass(tmp_path: Any) -> None:
    """1,000 parameters, 16 samples of 9,375 operations: 3,000 operations on 150,000."""
    scenario = timing({"compute": STEPS, "network": LINKS}, clients=1)
    scenario["task"]["flops_per_sample"] = 9375
    scenario["server"]["method"] = {"name": "fedprox", "mu": 0.1}
    row = fedsim.run(scenario, tmp_path / "run").dispatches.iloc[0]
    assert row.computed_s - row.downloaded_s == pytest.approx(5 * 1.02, abs=1e-8)
