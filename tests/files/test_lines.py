"""Lines of a Flower server; those of nvidia-smi and tegrastats are in ``tests/calibration/test_power.py``."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedsim.calibration import calibrate

FLOWER = {
    "1.5": (
        "DEBUG flwr {} | server.py:222 | fit_round {n}: strategy sampled 2 clients (out of 2)",
        "DEBUG flwr {} | server.py:236 | fit_round {n} received 2 results and 0 failures",
    ),
    "1.20": (
        "{}Z \x1b[92mINFO \x1b[0m:      configure_train: Sampled 2 nodes (out of 2)",
        "{}Z \x1b[92mINFO \x1b[0m:      aggregate_train: Received 2 results and 0 failures",
    ),
}


@pytest.mark.parametrize(("sent", "arrived"), FLOWER.values(), ids=FLOWER)
def test_lines_of_a_flower_server_show_whole_rounds(
    sent: str, arrived: str, tmp_path: Path
) -> None:
    lines, at, durations = [], pd.Timestamp("2024-05-01T08:00:00.500"), [10, 12, 11, 13, 14, 12]
    mark = "," if "flwr" in sent else "."
    for number, seconds in enumerate(durations, start=1):
        for line, later in ((sent, 0), (arrived, seconds)):
            at += pd.Timedelta(seconds=later)
            text = at.strftime(f"%Y-%m-%d %H:%M:%S{mark}%f")[:-3]
            lines.append(line.format(text, n=number))
        lines.append(lines[-1].replace("fit", "evaluate").replace("train", "evaluate"))
        at += pd.Timedelta(seconds=3)
    (tmp_path / "server.log").write_text("\n".join(lines) + "\n")
    result = calibrate(tmp_path / "server.log", tmp_path / "bundle")
    assert result.estimates.step_s.mean.tolist() == pytest.approx([np.mean(durations)])
    assert result.estimates.rounds.gap_s == pytest.approx(3.0)
    assert any("slowest client" in flag for flag in result.flags)
    assert "begins again" not in str(result.flags)
    # The log of a second run follows, without the lines at its start.
    rows = [line for line in lines if "evaluate" not in line]
    for row in range(12):
        number = row // 2 % 3 + 1
        rows[row] = re.sub(r"fit_round \d", f"fit_round {number}", rows[row])
        if "fit_round" not in sent and row % 2 == 0:
            rows[row] = f"[ROUND {number}/3]\n{rows[row]}"
    (tmp_path / "server.log").write_text("\n".join(rows))
    flags = str(calibrate(tmp_path / "server.log", tmp_path / "again").flags)
    assert "Round 1 begins again 42 s after the first dispatch" in flags
