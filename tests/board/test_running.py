"""Running a board: a small suite of a quadratic task, in processes, interrupted and changed in the middle."""

import functools
from dataclasses import replace

import pandas as pd
import pytest

from fedsim.board import results
from fedsim.board.running import BOARD, ROWS, Rows, chosen_setting, run_board
from fedsim.errors import UserError


def test_a_board_tunes_measures_and_continues(tiny, tmp_path):
    counts = []

    def on_progress(*done):
        assert BOARD.is_in(tmp_path / "board"), "it can be watched from the beginning"
        counts.append(done)

    rows = run_board(tiny, tmp_path / "board", jobs=2, on_progress=on_progress)
    frame = rows.frame()
    fedavg = frame[frame["entry"] == "FedAvg"]
    # A step with the largest learning rate leaves 0.7 of the distance: 2 x 0.7^7 <= 0.2 after seven steps. Transfers
    # of 32 ns put the seventh version between the evaluations after 7 and 8 s.
    question, entry = tiny.scenarios["tiny"], tiny.entries["FedAvg"]
    assert chosen_setting(tiny, rows, question, entry) == 2
    measured = fedavg[fedavg["kind"] == "measured"]
    assert measured["time_s"].round(3).tolist() == [8.0, 8.0]
    assert measured["versions"].tolist() == [7, 7]
    assert measured["simulated_s"].tolist() == [30.0, 30.0]
    assert fedavg.loc[fedavg["kind"] == "slower", "time_s"].round(3).tolist() == [15.0, 15.0]
    # Personal methods need a model with a last layer.
    assert results.table(frame, question).refused.keys() == {"Strange"}
    assert counts[-1][1] == counts[-1][2]

    kept = Rows(tmp_path / "board", tiny)
    for cell in [cell for cell in kept._rows if cell.kind == "measured"]:
        del kept._rows[cell]
    kept.save()
    again = run_board(tiny, tmp_path / "board", jobs=1).frame()
    pd.testing.assert_frame_equal(
        again.drop(columns="wall_s"), frame.drop(columns="wall_s"), check_exact=True
    )


def test_a_changed_scenario_is_run_again(tiny, tmp_path):
    suite = replace(tiny, entries={"FedAvg": tiny.entries["FedAvg"]}, tuning_seeds=[100])
    run_board(suite, tmp_path / "board", jobs=1)
    file = suite.scenarios["tiny"].file
    file.write_text(file.read_text().replace("step: 1s", "step: 2s"))
    question = replace(suite.scenarios["tiny"])
    rows = run_board(replace(suite, scenarios={"tiny": question}), tmp_path / "board", jobs=1)
    frame = rows.frame()
    assert frame.loc[frame["kind"] == "measured", "time_s"].round(3).tolist() == [15.0, 15.0]


def test_every_flipped_bit_of_the_table_is_refused_and_a_killed_board_leaves_nothing(
    tiny, tmp_path
):
    folder = tmp_path / "board"
    suite = replace(tiny, entries={"FedAvg": tiny.entries["FedAvg"]}, tuning_seeds=[100], seeds=[0])
    run_board(suite, folder, jobs=1)
    (folder / ".fedsim-tmp-killed").mkdir()
    run_board(suite, folder, jobs=1)
    assert {path.name for path in folder.iterdir()} == {".lock", ROWS, BOARD.file}
    whole, record = pd.read_parquet(folder / ROWS), BOARD.read(folder)
    for frame, message in (
        (whole.assign(time_s=0.0), "values that no run has"),
        (whole.assign(lost=1.4), "values that no run has"),
        (whole.assign(updates=-1.0), "values that no run has"),
        (pd.concat([whole, whole]), "two rows of one run"),
    ):
        write = functools.partial(frame.to_parquet, index=False)
        BOARD.write_listed(folder, dict(record), {ROWS: write})
        with pytest.raises(UserError, match=message):
            Rows(folder, suite)
    BOARD.write_listed(folder, record, {ROWS: functools.partial(whole.to_parquet, index=False)})
    data = (folder / ROWS).read_bytes()
    for number in range(40):
        changed = bytearray(data)
        changed[number * len(data) // 40] ^= 1 << number % 8
        (folder / ROWS).write_bytes(changed)
        with pytest.raises(UserError, match="has changed since fedsim wrote it"):
            Rows(folder, suite)
