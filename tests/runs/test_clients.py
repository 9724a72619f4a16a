"""The table of clients, against sums made by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.analysis.run import load_run
from fedsim.runs import Run, RunFolder, RunWriter, Status
from fedsim.runs.clients import absences, clients_table
from fedsim.runs.phases import phases
from fedsim.runs.records import RUN
from fedsim.vocabulary.outcomes import Outcome
from fedsim.vocabulary.timeline import Aggregate, Contribution
from tests.runs.written import columns_of


def recorded(path: Path, *rows: str, aggregated: Aggregate, clients: int) -> Run:
    """A run of 100 s whose dispatches are given as the words of their rows."""
    folder = RunFolder(path)
    folder.path.mkdir()
    writer = RunWriter(folder, clients=clients, columns=columns_of)
    RUN.write(folder.path, {"status": Status.RUNNING, "files": {}, "simulated_s": 100.0})
    for row in rows:
        cells = (getattr(Outcome, cell, cell) for cell in row.split())
        writer.append_dispatch(
            tuple(float(cell) if "." in str(cell) or cell == "nan" else int(cell) for cell in cells)
        )
    writer.append_aggregation(aggregated)
    writer.finish()
    folder.close(Status.COMPLETE)
    return load_run(folder.path)


def table_of(run: Run, clients: int, **columns: Any) -> dict[str, list[Any]]:
    ones = np.ones(clients)
    rates = {"step_s": ones, "down_bps": ones, "up_bps": ones}
    spent = phases(run.dispatches, run.aggregations, 100.0)
    table = clients_table(run.dispatches, spent, duration_s=100.0, **rates, **columns)
    found: dict[str, list[Any]] = table.to_pydict()
    return found


def test_seconds_of_three_clients_by_hand(tmp_path: Path) -> None:
    """Client 0: aggregated at 30 after 10 s of waiting; dispatched again at 50 and dropped at 58, in mid-compute.
    Client 1: late; no waiting. Then arrived at 90, still in the buffer when the run ends at 100."""
    run = recorded(
        tmp_path / "run",
        "0 0 0 0 0. 2. 15. 20. 5 5 AGGREGATED 0 1 100 60 3. 0 0 20.",
        "2 0 1 1 50. 53. nan nan 5 2 DROPPED -1 -1 100 0 1. 1 0 58.",
        "1 1 0 0 0. 4. 30. 45. 5 5 LATE 1 -1 100 60 3. 0 0 45.",
        "3 1 1 1 60. 64. 80. 90. 5 5 UNFINISHED 0 -1 100 60 3. 1 0 90.",
        aggregated=Aggregate(1, 30.0, 0, (Contribution(0, 0, 0),)),
        clients=3,
    )
    table = table_of(
        run,
        3,
        samples=np.array([7, 8, 9]),
        # Client 0: offline from 25 to 30 and from 90 to 100. Client 1: from 85 to 95.
        online_fraction=np.array([0.85, 0.9, 0.25]),
        busy_offline_s=np.array([5.0, 10.0, 0.0]),
    )
    expected = {
        "dispatches": [2, 2, 0],
        "aggregated": [1, 0, 0],
        "steps": [7, 10, 0],
        "bytes_down": [200, 200, 0],
        "bytes_up": [60, 120, 0],
        "energy_j": [4.0, 6.0, 0.0],
        "download_s": [5.0, 8.0, 0.0],
        "compute_s": [18.0, 42.0, 0.0],
        "upload_s": [5.0, 25.0, 0.0],
        "waiting_s": [10.0, 10.0, 0.0],
        # Client 0 is offline for 5 of the 10 s that its update waits; client 1 in its upload and while it waits.
        "offline_s": [10.0, 0.0, 75.0],
        "idle_s": [52.0, 15.0, 25.0],
    }
    assert {name: pytest.approx(table[name]) for name in expected} == expected
    assert np.isnan(table["last_accuracy"]).all()


def test_waiting_ends_with_the_next_dispatch(tmp_path: Path) -> None:
    run = recorded(
        tmp_path / "run",
        "0 0 0 0 0. 1. 2. 3. 1 1 AGGREGATED 0 1 1 1 0. 0 0 3.",
        "1 0 0 0 10. 11. 12. 13. 1 1 AGGREGATED 0 1 1 1 0. 1 0 13.",
        aggregated=Aggregate(1, 40.0, 0, (Contribution(0, 0, 0), Contribution(1, 0, 0))),
        clients=1,
    )
    table = table_of(run, 1, samples=np.ones(1, np.int64), online_fraction=np.ones(1))
    assert table["waiting_s"] == [7.0 + 27.0]


def test_absences_continue_from_one_batch_of_server_updates_to_the_next() -> None:
    """Brute force: the oldest last contribution after each update, over batches with few clients."""
    random = np.random.default_rng(0)
    for clients in (1, 2, 4, 6) * 20:
        last_version, expected_last, version = *np.zeros((2, clients), np.int64), 0
        for _ in range(3):
            sizes = random.integers(0, 4, int(random.integers(1, 6)))
            versions = np.arange(version + 1, version + len(sizes) + 1)
            groups = [random.integers(0, clients, size) for size in sizes]
            expected = []
            for version, group in zip(versions, groups, strict=True):
                expected_last[group] = version
                expected.append(version - expected_last.min())
            delays = absences(last_version, versions, sizes, np.concatenate(groups))
            assert delays.tolist() == expected
            assert last_version.tolist() == expected_last.tolist()
