"""Reading the log of a real run."""

import contextlib
import json
import math
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import fedsim
from fedsim.calibration.estimates import Assumptions, estimate
from fedsim.calibration.log import (
    COLUMNS,
    numbered,
    read_log,
    round_durations_s,
    rounds_of,
)
from fedsim.cli import cli
from fedsim.errors import UserError, UserErrors
from fedsim.network.transports.fluid import Fluid
from fedsim.parts.parameters import Parameters
from tests.composition.test_closing import simulate


def test_timestamps_of_a_parquet_file_are_instants(tmp_path: Path) -> None:
    start = pd.to_datetime(["2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"])
    table = {"client": ["a", "b"], "start": start, "end": [start[1], pd.NaT]}
    pd.DataFrame(table).to_parquet(tmp_path / "log.parquet")
    log = read_log(tmp_path / "log.parquet").dispatches
    assert list(log["start_s"]) == [0.0, 5.0]
    assert list(log["end_s"].dropna()) == [5.0]


def test_other_names_of_clients_are_said_not_to_count(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("client,client_id,start,end\nzed,0,0,10\nann,1,0,40\n")
    flag = "Clients are named by 'client', not by client_id."
    assert flag in read_log(tmp_path / "log.csv").flags


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        (
            "client;start;end;steps\na;0;60;1.000\n",
            "If the point in steps separates thousands, write",
        ),
        (
            "device,start,end\ncuda:0,0,9\ncuda:0,1,9\n",
            "begin before the previous one of their client",
        ),
        ("device,start,end,round\na,0,9,1\na,1,9,2\n", ""),
    ],
)
def test_what_may_be_meant_otherwise_is_said(text: str, flag: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text)
    assert any(flag in each for each in read_log(tmp_path / "log.csv").flags) or not flag
    assert flag or not any("begin before" in each for each in read_log(tmp_path / "log.csv").flags)


def test_every_file_of_an_archive_has_the_columns(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        archive.writestr("a.csv", "client,start,end\na,0,9\n")
        archive.writestr("b.csv", "client,start,finish\na,10,19\n")
    with pytest.raises(UserError, match="has no column 'end', but another file has it"):
        read_log(tmp_path / "log.zip")


def test_timestamps_and_numbers_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("client,start,end\na,100,103.5\nb,101,102\n")
    (tmp_path / "b.csv").write_text(
        "client,start,end\na,2026-01-01T00:00:00Z,2026-01-01T00:00:03.500Z\n"
        "b,2026-01-01T01:00:01+01:00,2026-01-01T00:00:02Z\n"
    )
    one, other = (
        read_log(tmp_path / name).dispatches[["client", "start_s", "end_s"]]
        for name in ("a.csv", "b.csv")
    )
    pd.testing.assert_frame_equal(one, other)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_log_may_come_through_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "log.csv")
    with ThreadPoolExecutor() as threads:
        threads.submit(pipe.write_text, "client,start,end\na,1,3\n")
        assert read_log(pipe).dispatches["end_s"].tolist() == [2]
        threads.submit(pipe.write_text, "client,start,end,round\na,1,3,0\n")
        assert fedsim.compare(pipe).facts[0].log == "log.csv"


def read(folder: Path, text: str) -> pd.DataFrame:
    """The dispatches of a log with this content."""
    (folder / "log.csv").write_text(text)
    return read_log(folder / "log.csv").dispatches


MISTAKES = [
    ("client,start\na,1\n", "no column end"),
    (
        "client,start,downloaded,computed,end,compute_s\na,0,1,4,5,3\nb,0,1,4,5,3.5\n",
        "log.csv:3: compute_s is 3.5 s, but it is 3 s",
    ),
    ("client,start,end\nb,1,2\na,2,1\na,3,1\n", r"log.csv:3: end is before .* \(2 such rows\)"),
    ("client,start,end\n", "log.csv: has no rows"),
    ("client,start,end,end_s\na,1,2,9\n", "log.csv: has the columns end and end_s"),
    ("client,start,end,End\na,1,2,9\n", "log.csv: has the columns 'end' and 'End'"),
    ("client,start,end\na,0,1e308\nb,-1e308,1\n", "log.csv:3: start is '-1e308'"),
    ("client,start,end\na,0,1\nb,1,17000000000\n", "log.csv:3: end is '17000000000'"),
    ("client,start,end\na,1,2\nb,1,2\na,1,2\n", "log.csv:4: repeats an earlier row"),
    ("client,start,end,steps\na,1,2,3\nb,1,2,-20\n", "log.csv:3: steps is -20"),
    (
        "client,start,downloaded,computed,end,steps\na,0,1,5,6,2\nb,0,1,5,6,0\n",
        "log.csv:3: steps is 0",
    ),
    ("client,start,end\na,1,soon\n", "log.csv:2: end is 'soon', which is not an instant"),
    ("client,start,end\na,1,2\nb,,4\n", "log.csv:3: start is empty"),
    ("client,start,end,round\na,1,2,0\nb,3,4,9e18\n", "log.csv:3: round is '9e18'"),
    ("client,start,end\na,1,2\nb,never,4\n", "log.csv:3: start is 'never'"),
    ("client,start,end\na,1,never\nb,1,soon\n", "log.csv:3: end is 'soon'"),
    ("client,start,end\na,Infinity,1\nb,2,3\n", "log.csv:2: start is 'Infinity'"),
    ("client,start,end\na,1,2\nb,2,soon\n", "log.csv:3: end is 'soon'\n  .* unknown or never"),
    ("client,start,end,compute_s\na,0,5,6\nb,0,5,7\n", "log.csv:3: .* are 7 s, but it is 5 s from"),
    ("client,start,end,compute_s,upload_s\na,0,9,5,6\n", "log.csv:2: .* are 11 s, but it is 9 s"),
    ("client,start,end,compute_s,steps\na,0,5,4,0\n", "steps is 0, but the client computed for 4"),
    ("client,start,end,compute_s\na,0,5,0\n", "compute_s is 0, but local steps take time"),
    ("client,start,end\na,1,\n", "no dispatch of the log ended"),
    ("client,start,end,steps\na,1,2,3\n\nb,1,2\n", "log.csv:4: has 3 cells"),
    ("clien;start;end\na;1;2\n", r"no column client\n  did you mean 'clien'\? it needs client"),
    ("client,start,end,outcome\na,1,2,\na,1,2,ok\n", "log.csv:3: unknown outcome 'ok'"),
    (
        "client,start,end,outcome\na,1,2,aggregated\na,3,,late\n",
        "log.csv:3: outcome is late, but it has no end",
    ),
    ("client,start,end,round\na,1,2,0\na,3,4,1.5\n", "log.csv:3: round is 1.5, but rounds are"),
    ("client,start,end,round\na,1,2,0\na,3,4,-1\n", "log.csv:3: round is -1, but rounds are"),
    ("client,start,end,steps\na,1,2,3\nb,1,2,50%\n", "log.csv:3: steps is '50%'"),
    ("client,start,end,bytes_up\na,1,2,3\nb,1,2,0:10:00\n", "log.csv:3: bytes_up is '0:10:00'"),
    ("client,start,end,ended\na,1,2,\nb,3,,1\n", "log.csv:3: ended is before start"),
    ("client,start,end,ended\na,1,2,\nb,3,5,4\n", "log.csv:3: ended is before end"),
    (
        "client,start,end,ended,outcome\na,1,2,,\nb,3,5,6,dropped\n",
        "log.csv:3: outcome is dropped, but it has an end",
    ),
    (
        "client,start,end\na,1712000000000,1712000001000\na,1712000002000,\nb,1712000000,1712000001000\n",
        "log.csv:4: start is '1712000000'",
    ),
    (
        "client,start,end,round\na,0.1234,8.5678,0\nb,0.1,9,0\na,0.12,8.57,0\n",
        "log.csv:4: overlaps another dispatch of a in round 0 .*\n  write one row",
    ),
    ("client,start,end,round\na,0,8.5,0\na,0,9,0\n", "log.csv:3: overlaps another dispatch"),
    (
        "client,start,end\n9.73569E+18,0,1\n",
        "log.csv:2: client is '9.73569E.18', which is rounded\n  export it again",
    ),
    (
        "client,start,end\na,1.71455E+09,1.71456E+09\n",
        "log.csv:2: start is .* which is rounded",
    ),
]


def test_a_client_may_be_dispatched_again_in_a_round(tmp_path: Path) -> None:
    """After its update arrived, within a resolution too, or before the server notices that it was lost."""
    rows = "a,5,9,,3\na,0,5,,3\na,5,5,,3\nb,0,,60,3\nb,20,40,,3\nb,20,,,3\nc,0,7,,3\nc,2,9,,4\n"
    assert len(read(tmp_path, f"client,start,end,ended,round\n{rows}")) == 8
    assert len(read(tmp_path, "client,start,end\na,0,1.5E+01\na,2.5E+01,4.2E+03\n")) == 2


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_mistakes_in_a_log(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path, text)


def test_all_kinds_of_impossible_rows_are_reported(tmp_path: Path) -> None:
    header = "client,start,downloaded,computed,end,steps,bytes_down,compute_s,outcome\n"
    rows = "a,0,1,5,6,-20,7,,\nb,0,1,5,6,0,7,,\nc,0,1,5,6,3,-5,,\nd,0,1,5,6,3,7,9,\ne,0,1,5,6,3,7,,ok\nf,3,,,2,,,,\n"
    with pytest.raises(UserErrors) as caught:
        read(tmp_path, header + rows)
    lines = [str(error.where).rpartition(":")[2] for error in caught.value.errors]
    assert lines == ["7", "2", "4", "3", "5", "6"]
    assert all(error.hint for error in caught.value.errors)


@pytest.mark.parametrize("word", ["never", "Infinity", "inf"])
def test_an_end_that_never_was_is_unknown_wherever_it_stands(tmp_path: Path, word: str) -> None:
    header = "client,start,end,round\n"
    for rows in (f"a,0,{word},0\nb,1,7,0\n", f"b,0,7,0\na,1,{word},0\n"):
        assert read(tmp_path, header + rows)["end_s"].isna().sum() == 1


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such log\n  give a table"):
        read_log(tmp_path / "nope.csv")


@pytest.mark.parametrize("first", ["2024-03-30T20:00:00Z", "2024-03-30T21:00:00+01:00"])
def test_timestamps_some_of_which_have_an_offset_are_refused(tmp_path: Path, first: str) -> None:
    with pytest.raises(UserError, match=r"log.csv:3: end is .* has no offset from UTC"):
        read(tmp_path, f"client,start,end\na,{first},\nb,{first},2024-03-30T20:00:05\n")


def test_seconds_of_work_are_those_given_or_those_between_the_instants(tmp_path: Path) -> None:
    header = "client,start,downloaded,computed,end,compute_s\n"
    log = read(tmp_path, header + "a,0,1,40,42,10\na,50,51,61,63,\na,70,71,,,4\na,80,,,100,15\n")
    assert log["download_s"].tolist()[:3] == [1, 1, 1]
    assert log["compute_s"].tolist()[:2] == [10, 10]
    # Local steps that were not finished do not show how long they take.
    assert math.isnan(log["compute_s"].iloc[2])
    # Those of a dispatch that arrived were, even if it is unknown when.
    assert log["compute_s"].iloc[3] == 15


def test_pauses_of_a_run_are_not_taken_for_slow_steps_or_links(tmp_path: Path) -> None:
    """Ten steps of 1 s, 1 MB down at 8 Mbit/s; interrupted for 26 s in the middle of the steps."""
    run = simulate(tmp_path, "pause", [(0, 4), (30, 60)])
    log = read_log(run.path).dispatches
    assert log[["download_s", "compute_s", "upload_s"]].to_numpy().tolist() == [[1, 10, 2]]
    estimates = estimate(numbered(log, ["0"]), ["0"], Assumptions(Fluid(Parameters()), np.zeros(1)))
    assert estimates.step_s.mean.tolist() == pytest.approx([1.0])
    assert [rates.mean.item() for rates in estimates.rates_bps] == pytest.approx([8e6, 4e6])


@pytest.mark.parametrize("outcome", ["dropped", "cut", "unfinished"])
def test_the_end_of_a_dispatch_that_did_not_arrive_is_no_arrival(
    tmp_path: Path, outcome: str
) -> None:
    rows = f"a,0,2,aggregated\na,3,5,{outcome}\na,9,11,late\n"
    log = read(tmp_path, f"client,start,end,outcome\n{rows}")
    assert list(log["end_s"].notna()) == [True, False, True]
    assert list(log["ended_s"].dropna()) == [5.0]


def test_an_update_that_arrived_before_the_run_ended_is_complete(tmp_path: Path) -> None:
    log = read(tmp_path, "client,start,end,ended,outcome\na,0,2,4,unfinished\n")
    assert list(log["end_s"]) == [2.0]


def _log(*rows: tuple[float, int, float, float, str | None]) -> pd.DataFrame:
    """Dispatches from (round, client, start, end, outcome)."""
    return pd.DataFrame(rows, columns=["round", "client", "start_s", "end_s", "outcome"])


# Rounds of 4, 6, 5 and 3 s, followed by 2, 3, 7 and an unknown time.
ROUNDS = _log(
    (0, 0, 0.0, 1.0, "aggregated"),
    (0, 1, 0.0, 4.0, "aggregated"),
    (1, 0, 6.0, 12.0, "aggregated"),
    (2, 1, 15.0, 20.0, "discarded"),
    (3, 0, 27.0, 30.0, "aggregated"),
)


def test_time_between_rounds() -> None:
    assert round_durations_s(ROUNDS).to_dict() == {0: 6.0, 1: 9.0, 2: 12.0}
    found = rounds_of(ROUNDS)
    assert found.gaps_s == (2.0, 3.0, 7.0)
    error_s = math.sqrt(math.pi / 2) * np.std([2, 3, 7], ddof=1) / math.sqrt(3)
    assert (found.timeout_s, found.gap_s) == (None, 3.0)
    assert found.gap_error_s == pytest.approx(error_s)
    assert rounds_of(ROUNDS, last=1).gaps_s == (2.0, 3.0)
    # Waiting for clients lengthens it.
    assert rounds_of(ROUNDS, always_online=False).gap_s == 2.0


@pytest.mark.parametrize("outcome", ["dropped", "unfinished", "late", None])
def test_rounds_that_wait_for_something_else_show_none(outcome: str | None) -> None:
    # The round ends with its deadline, 8 s after its start, or with an arrival that is missing in the log.
    end_s = 9.0 if outcome == "late" else math.nan
    found = rounds_of(
        _log(
            (0, 0, 0.0, 1.0, "aggregated"),
            (0, 1, 0.0, end_s, outcome),
            (1, 0, 8.0, 9.0, "aggregated"),
        )
    )
    assert math.isnan(found.gap_s)
    assert found.gaps_s == ()
    assert found.timeout_s == (8.0 if outcome == "late" else None)


def test_a_round_that_lasts_until_the_timeout_shows_none() -> None:
    found = rounds_of(
        _log(
            (0, 0, 0.0, 20.0, "late"),
            (1, 0, 10.0, 12.0, "aggregated"),
            # Replies until just before the timeout of 8 s, then 2 s for the server.
            (2, 0, 14.0, 21.99, "aggregated"),
            (3, 0, 24.0, 25.0, "aggregated"),
        )
    )
    assert found.gaps_s == (2.0,)
    assert found.timeout_s == 8.0


def test_a_log_without_rounds_shows_nothing() -> None:
    found = rounds_of(_log((math.nan, 0, 0.0, 1.0, None), (math.nan, 0, 2.0, 3.0, None)))
    assert (found.timeout_s, found.gaps_s) == (None, ())
    assert math.isnan(found.gap_s)


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("a,1,2,-1\nb,2,1,1\nc,1,3,2\nd,3,1,-4\n", [2, 5, 3, 5]),
        (",1,2,1\nb,x,1,few\nc,,3,2\nd,3,4,3\n", [2, 3, 3, 4]),
        ("a,1,2,1\na,1,2,1\na,1,2,1\n", [3, 4]),
        # Of many that are wrong in the same way, the first ones.
        ("".join(f"a,{n},{n - 1},1\n" for n in range(500)), [*range(2, 22)]),
        ("a,1,x,1\n" * 500, [*range(2, 22)]),
    ],
)
def test_a_check_names_every_wrong_cell_once(tmp_path: Path, rows: str, lines: list[int]) -> None:
    log = tmp_path / "log.csv"
    log.write_text(f"client,start,end,steps\n{rows}")
    result = CliRunner().invoke(cli, ["calibrate", str(log), "--check"])
    assert result.exit_code == 2
    assert result.stderr.count(f"error: {log}:") == len(lines)
    with pytest.raises(UserErrors) as caught:
        read_log(log, every_row=True)
    named = [str(each).removeprefix(f"{log}:").partition(":")[0] for each in caught.value.errors]
    assert sorted(map(int, named)) == sorted(lines)
    assert "number of ," not in str(caught.value)
    assert ("(and 480 more such rows)" in result.stderr) == (len(lines) == 20)
    assert list(tmp_path.iterdir()) == [log]


def test_a_check_of_a_log_without_mistakes_counts_it(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("client,start,end\nc,1,3.123\n")
    result = CliRunner().invoke(cli, ["calibrate", str(log), "--check"])
    assert (result.exit_code, result.output) == (0, "dispatches: 1, clients: 1\n")
    assert CliRunner().invoke(cli, ["calibrate", str(log)]).exit_code == 2
    assert list(tmp_path.iterdir()) == [log]


_ROW = {"client": "a", "start": 0.0, "end": 2.5, "round": 1, "outcome": "late"}


@pytest.mark.parametrize(
    ("change", "is_valid"),
    [
        ({}, True),
        ({"client": 7, "start": "2026-01-31T12:00:00Z", "end": "2026-01-31T12:00:01.5Z"}, True),
        ({"downloaded": 0.5, "computed": 1.5, "ended": None, "steps": 3, "bytes_up": 4}, True),
        ({"outcome": None, "round": None, "compute_s": 0.5, "unknown": {"nested": 1}}, True),
        ({"client": ""}, False),
        ({"client": None}, False),
        ({"start": None}, False),
        ({"steps": -1}, False),
        ({"steps": True}, False),
        ({"bytes_up": "1 MB"}, False),
        ({"outcome": "lost"}, False),
        ({"upload_s": -0.5}, False),
    ],
)
def test_the_schema_accepts_what_is_read(
    tmp_path: Path, change: dict[str, Any], is_valid: bool
) -> None:
    schema = json.loads(CliRunner().invoke(cli, ["calibrate", "--schema"]).output)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    assert ", ".join(schema["properties"]) == COLUMNS
    (tmp_path / "log.jsonl").write_text(json.dumps(_ROW | change) + "\n")
    with contextlib.nullcontext() if is_valid else pytest.raises(UserError):
        read_log(tmp_path / "log.jsonl")
    assert validator.is_valid(_ROW | change) == is_valid
    for name in schema["required"]:
        assert not validator.is_valid({key: _ROW[key] for key in _ROW if key != name})


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("client", pa.array([b"\xff\xfe"] * 3).dictionary_encode(), "client cannot be read"),
        ("client", pa.array([b"\xff\xfe"] * 3), "client cannot be read"),
        (
            "start",
            pa.array([0, 1, 2], pa.timestamp("us", "Europe/\u202eX")),
            "start cannot be read",
        ),
        ("steps", pa.array([[1], [2], [3]]), "'steps' has lists or objects"),
        ("steps", pa.array([{"n": 1}] * 3), "'steps' has lists or objects"),
        ("round", None, "has the column 'end' twice"),
    ],
)
def test_columns_that_arrow_cannot_convert_are_refused(
    tmp_path: Path, column: str, values: Any, message: str
) -> None:
    columns: dict[str, Any] = {"client": ["a", "b", "c"], "start": [0.0, 1, 2], "end": [1.0, 2, 3]}
    if column == "start":
        columns["end"] = pa.array([1, 2, 3], pa.timestamp("us", "UTC"))
    table = pa.table({**columns, column: columns["end"] if values is None else values})
    if values is None:
        table = table.rename_columns(["client", "start", "end", "end"])
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(UserError, match=message):
        read_log(tmp_path / "log.parquet")
