"""The table of clients, against sums made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsim.analysis.run import load_run
from fedsim.runs import RunFolder, RunWriter, Status
from fedsim.runs.clients import clients_table
from fedsim.runs.phases import phases
from fedsim.vocabulary.outcomes import Outcome
from fedsim.vocabulary.timeline import Aggregate, Contribution
from tests.runs.written import columns_of

NAN = float("nan")


def test_seconds_of_three_clients_by_hand(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    writer = RunWriter(folder, clients=3, columns=columns_of)
    folder.write_info({"status": Status.COMPLETE, "simulated_s": 100.0})
    # Client 0: aggregated at 30 after 10 s of waiting; dispatched again at 50 and dropped at 58, in mid-compute.
    writer.append_dispatch(
        (0, 0, 0, 0, 0.0, 2.0, 15.0, 20.0, 5, 5, Outcome.AGGREGATED, 0, 1, 100, 60, 3.0, 0, 0, 20.0)
    )
    writer.append_dispatch(
        (2, 0, 1, 1, 50.0, 53.0, NAN, NAN, 5, 2, Outcome.DROPPED, -1, -1, 100, 0, 1.0, 1, 0, 58.0)
    )
    # Client 1: late; no waiting. Then arrived at 90, still in the buffer when the run ends at 100.
    writer.append_dispatch(
        (1, 1, 0, 0, 0.0, 4.0, 30.0, 45.0, 5, 5, Outcome.LATE, 1, -1, 100, 60, 3.0, 0, 0, 45.0)
    )
    writer.append_dispatch(
        (
            3,
            1,
            1,
            1,
            60.0,
            64.0,
            80.0,
            90.0,
            5,
            5,
            Outcome.UNFINISHED,
            0,
            -1,
            100,
            60,
            3.0,
            1,
            0,
            90.0,
        )
    )
    writer.append_aggregation(Aggregate(1, 30.0, 0, (Contribution(0, 0, 0),)))
    writer.finish()
    run = load_run(folder.path)
    table = clients_table(
        run.dispatches,
        phases(run.dispatches, run.aggregations, 100.0),
        duration_s=100.0,
        samples=np.array([7, 8, 9]),
        step_s=np.ones(3),
        down_bps=np.ones(3),
        up_bps=np.ones(3),
        # Client 0: offline from 25 to 30 and from 90 to 100. Client 1: from 85 to 95.
        online_fraction=np.array([0.85, 0.9, 0.25]),
        busy_offline_s=np.array([5.0, 10.0, 0.0]),
    ).to_pydict()
    assert table["dispatches"] == [2, 2, 0]
    assert table["aggregated"] == [1, 0, 0]
    assert table["steps"] == [7, 10, 0]
    assert table["bytes_down"] == [200, 200, 0]
    assert table["bytes_up"] == [60, 120, 0]
    assert table["energy_j"] == [4.0, 6.0, 0.0]
    assert table["download_s"] == [5.0, 8.0, 0.0]
    assert table["compute_s"] == [18.0, 42.0, 0.0]
    assert table["upload_s"] == [5.0, 25.0, 0.0]
    assert table["waiting_s"] == [10.0, 10.0, 0.0]
    # Client 0 is offline for 5 of the 10 s that its update waits; client 1 only in its upload and while it waits.
    assert table["offline_s"] == pytest.approx([10.0, 0.0, 75.0])
    assert table["idle_s"] == pytest.approx([52.0, 15.0, 25.0])
    assert np.isnan(table["last_accuracy"]).all()


def test_waiting_ends_with_the_next_dispatch(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    writer = RunWriter(folder, clients=1, columns=columns_of)
    folder.write_info({"status": Status.COMPLETE, "simulated_s": 100.0})
    writer.append_dispatch(
        (0, 0, 0, 0, 0.0, 1.0, 2.0, 3.0, 1, 1, Outcome.AGGREGATED, 0, 1, 1, 1, 0.0, 0, 0, 3.0)
    )
    writer.append_dispatch(
        (1, 0, 0, 0, 10.0, 11.0, 12.0, 13.0, 1, 1, Outcome.AGGREGATED, 0, 1, 1, 1, 0.0, 1, 0, 13.0)
    )
    writer.append_aggregation(Aggregate(1, 40.0, 0, (Contribution(0, 0, 0), Contribution(1, 0, 0))))
    writer.finish()
    run = load_run(folder.path)
    one = np.ones(1)
    table = clients_table(
        run.dispatches,
        phases(run.dispatches, run.aggregations, 100.0),
        duration_s=100.0,
        samples=np.ones(1, np.int64),
        step_s=one,
        down_bps=one,
        up_bps=one,
        online_fraction=one,
    )
    assert table["waiting_s"].to_pylist() == [7.0 + 27.0]
