"""Reading the log of a real run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fedsim.calibration.log import read_log
from fedsim.errors import UserError


def test_timestamps_and_numbers_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("client,start,end\na,100,103.5\nb,101,102\n")
    (tmp_path / "b.csv").write_text(
        "client,start,end\na,2026-01-01T00:00:00Z,2026-01-01T00:00:03.500Z\n"
        "b,2026-01-01T01:00:01+01:00,2026-01-01T00:00:02Z\n"
    )
    one, other = (
        read_log(tmp_path / name)[["client", "start_s", "end_s"]] for name in ("a.csv", "b.csv")
    )
    pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,start\na,1\n", "no column end"),
        ("client,start,end\na,2,1\n", "ends before it starts"),
        ("client,start,end\na,1,soon\n", "not times"),
        ("client,start,end\na,1,\n", "no dispatch of the log ended"),
    ],
)
def test_mistakes_in_a_log(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        read_log(tmp_path / "log.csv")
