"""Tables written while a run is in progress: what is written is what is read, whenever the writing stops."""

import math
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedsim.analysis.run import load_run
from fedsim.errors import UserError
from fedsim.runs import RunWriter, Status
from fedsim.runs.schema import DISPATCHES, MESSAGES, TABLES
from fedsim.vocabulary.outcomes import Outcome
from fedsim.vocabulary.timeline import Aggregate, Contribution
from tests.runs.synthetic_runs import build_run
from tests.runs.written import columns_of, started

NAN = math.nan
FIRST = (0, 4, 0, 0, 1.5, 2.25, 3.0, 4.0, 9, 9, Outcome.AGGREGATED, 0, 1, 80, 40, 0.5, 0, 2, 4.0)
SECOND = (1, 5, 0, 0, 1.5, 2.25, NAN, NAN, 9, 3, Outcome.DROPPED, -1, -1, 80, 0, 0.25, 0, 0, 2.75)


def test_rows_read_back_from_stream_and_parquet_alike(tmp_path: Path) -> None:
    folder, writer = started(tmp_path / "run")
    writer.append_dispatch(SECOND)
    writer.append_dispatch(FIRST)
    contributions = (Contribution(0, 4, 0),)
    writer.append_aggregation(Aggregate(1, 4.0, 0, contributions, {"online": 6.0}))
    writer.append_aggregation(Aggregate(2, 5.0, 1, ()))
    writer.append_metrics(0.0, 0, 0, {"accuracy": 0.1, "loss": 2.3})
    writer.append_metrics(4.0, 1, 0, {"accuracy": 0.5, "client_accuracy": 0.6})
    writer.flush()
    streamed = load_run(folder.path)
    names = [field.name for field in DISPATCHES.schema]
    assert list(streamed.dispatches) == names
    first = streamed.dispatches.iloc[0]
    for name, expected in zip(names, FIRST, strict=False):
        assert first[name] == ("aggregated" if name == "outcome" else expected), name
    second = streamed.dispatches.iloc[1]
    assert (second["outcome"], second["cause"]) == ("dropped", "offline")
    assert streamed.dispatches["cause"].isna().tolist() == [True, False]
    assert second["staleness"] is pd.NA
    assert second["aggregated_version"] is pd.NA
    assert math.isnan(second["computed_s"])
    assert streamed.aggregations["contributor_ids"].map(list).tolist() == [[0], []]
    assert streamed.aggregations["attributes"].tolist() == [{"online": 6.0}, {}]
    assert streamed.aggregations["staleness_max"].isna().tolist() == [False, True]
    assert list(streamed.metrics)[3:] == ["accuracy", "loss", "client_accuracy"]
    assert streamed.simulated_s == 5.0

    writer.finish()
    assert not list(folder.path.glob("*.arrows"))
    finished = load_run(folder.path)
    for table in ("dispatches", "aggregations", "metrics"):
        pd.testing.assert_frame_equal(getattr(streamed, table), getattr(finished, table))


def test_delay_is_that_of_the_client_absent_for_longest(tmp_path: Path) -> None:
    # The log oracle of the FedSUM card, section 3.
    _, writer = started(tmp_path / "run", clients=3)
    for version, active in enumerate([[0], [1], [0, 1], [2], [0], [1, 2]], start=1):
        contributions = tuple(Contribution(10 * version + c, c, 0) for c in active)
        writer.append_aggregation(Aggregate(version, float(version), version - 1, contributions))
    writer.finish()
    assert load_run(tmp_path / "run").aggregations["delay_max"].tolist() == [1, 2, 3, 1, 2, 1]


def test_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        build_run(tmp_path / name, clients=10, hours=4, cohort=5)
    for name in (table.name for table in TABLES if table is not MESSAGES):
        if not name.startswith("edge"):
            one, two = (tmp_path / folder / f"{name}.parquet" for folder in ("one", "two"))
            assert one.read_bytes() == two.read_bytes()


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[2])
from tests.runs.test_writer import FIRST
from tests.runs.written import started
from fedsim.vocabulary.timeline import Aggregate
folder, writer = started(sys.argv[1])
number = 0
while True:
    writer.append_dispatch((number, *FIRST[1:]))
    number += 1
    if number == 100_000:
        writer.append_aggregation(Aggregate(1, 4.0, 0, ()))
        writer.append_metrics(4.0, 1, 0, {"accuracy": 0.5})
        writer.flush()
        print("ready", flush=True)
"""


def test_killed_run_is_readable_up_to_its_last_flush(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run"), str(Path(__file__).parents[2])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    run = load_run(tmp_path / "run")
    assert run.status is Status.INTERRUPTED
    assert len(run.dispatches) >= 100_000
    assert (run.dispatches["dispatch_id"] == np.arange(len(run.dispatches))).all()
    assert run.metrics["accuracy"].tolist() == [0.5]
    assert len(run.aggregations) == 1


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.999])
def test_stream_cut_anywhere_gives_its_whole_batches(tmp_path: Path, share: float) -> None:
    folder, writer = started(tmp_path / "run")
    for number in range(40):
        writer.append_dispatch((number, *FIRST[1:]))
        writer.flush()
    writer.close()
    stream = folder.stream("dispatches")
    content = stream.read_bytes()
    stream.write_bytes(content[: int(share * len(content))])
    dispatch_ids = load_run(folder.path).dispatches["dispatch_id"].tolist()
    assert dispatch_ids == list(range(len(dispatch_ids)))
    assert share * 40 - 5 <= len(dispatch_ids) <= 40
    middle = content.index(b"\xff\xff\xff\xff", len(content) // 2) + 8
    stream.write_bytes(content[:middle] + bytes(8) + content[middle + 8 :])
    with pytest.raises(UserError, match=r"dispatches\.arrows: cannot be read"):
        _ = load_run(folder.path).dispatches


def test_resume_writes_the_tables_anew_and_keeps_the_rest(tmp_path: Path) -> None:
    folder, writer = started(tmp_path / "run")
    writer.append_dispatch(FIRST)
    writer.close()
    with closing(RunWriter(folder, clients=6, columns=columns_of)) as writer:
        writer.append_dispatch(SECOND)
        writer.finish()
    assert load_run(folder.path).dispatches["dispatch_id"].tolist() == [1]
