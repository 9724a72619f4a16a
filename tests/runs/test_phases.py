"""How dispatches spent their time, for four rows worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from fedsim.runs.phases import phases, rows_by_client
from fedsim.vocabulary.outcomes import OUTCOME_LABELS

NAN, INF = np.nan, np.inf


def dispatches() -> pd.DataFrame:
    """Aggregated at 10 s; dropped while it computed; waiting when the run ends; overtaken by its client's next one."""
    outcomes = ["aggregated", "dropped", "unfinished", "unfinished"]
    return pd.DataFrame(
        {
            "dispatch_id": [0, 1, 2, 3],
            "client_id": [0, 1, 1, 2],
            "dispatched_s": [0.0, 0.0, 8.0, 9.0],
            "downloaded_s": [1.0, 2.0, 9.0, NAN],
            "computed_s": [4.0, NAN, 11.0, NAN],
            "arrived_s": [6.0, NAN, 14.0, NAN],
            "ended_s": [6.0, 5.0, 14.0, 20.0],
            "aggregated_version": pd.array([1, None, None, None], dtype="Int64"),
            "outcome": pd.Categorical(outcomes, categories=list(OUTCOME_LABELS)),
            "download_s": [1.0, 2.0, 1.0, 4.0],
            "compute_s": [1.5, 3.0, 2.0, 0.0],
            "upload_s": [2.0, 0.0, 0.25, 0.0],
        }
    )


def test_phases_end_with_the_dispatch_and_waiting_with_the_aggregation_or_the_run() -> None:
    aggregations = pd.DataFrame({"version": [1], "time_s": [10.0]})
    spent = phases(dispatches(), aggregations, 20.0)
    parts = ["download_s", "compute_s", "upload_s", "paused_s", "waiting_s"]
    assert spent.columns.tolist() == parts
    assert spent.to_numpy().tolist() == [
        [1.0, 1.5, 2.0, 1.5, 4.0],
        [2.0, 3.0, 0.0, 0.0, 0.0],
        [1.0, 2.0, 0.25, 2.75, 6.0],
        [4.0, 0.0, 0.0, 7.0, 0.0],
    ]


def test_rounding_is_not_taken_for_a_pause() -> None:
    """Four months into a run, instants have no whole nanoseconds any more."""
    rows = dispatches().iloc[:1].assign(download_s=0.1, compute_s=0.2, upload_s=0.3)
    start = 1.1e7
    for name, since in (("dispatched", 0.0), ("downloaded", 0.1), ("computed", 0.3)):
        rows[f"{name}_s"] = start + since
    rows["arrived_s"] = rows["ended_s"] = start + 0.1 + 0.2 + 0.3 + 1e-8
    spent = phases(rows, pd.DataFrame({"version": [1], "time_s": [start + 1]}), start + 2)
    assert spent["paused_s"].tolist() == [0.0]


@pytest.mark.parametrize("ids", [[0, 1, 2, 3, 4, 5], [3, 1, 5, 0, 4, 2], [0, 1, 1, 3, 4, 5]])
@pytest.mark.parametrize("far", [2, 1 << 61])
def test_rows_by_client_are_in_order_of_client_then_dispatch(ids: list[int], far: int) -> None:
    clients = [far, 0, -1, far, 0, far]
    order, is_followed = rows_by_client(pd.Series(clients), np.array(ids))
    expected = sorted(range(6), key=lambda row: (clients[row], ids[row]))
    assert order.tolist() == expected
    ordered = [clients[row] for row in expected]
    assert is_followed.tolist() == [
        a == b for a, b in zip(ordered, [*ordered[1:], None], strict=True)
    ]
