"""``fedsim decide``: what it prints."""

import json
from pathlib import Path

from tests.decisions.test_deciding import METRIC, OVER, world
from tests.sweeps.worlds import command, write


def test_the_command_prints_the_answer(tmp_path: Path) -> None:
    file = write(tmp_path / "sites.yaml", world())
    over = [word for path, values in OVER.items() for word in ("--over", f"{path}={values}")]
    call = ["decide", file, *over, "--metric", METRIC, "-j", 1, "-o", tmp_path / "d"]
    done = command(*call, "--settings", 8, "--seeds", 2)
    assert done.exit_code == 0, done.output
    assert "best of 8 settings" in " ".join(done.stdout.split())
    document = json.loads(command(*call, "--settings", 8, "--seeds", 2, "--json").stdout)
    assert document["tried"] == 8
    assert Path(document["best"]).exists()
    assert [row["missed"] for row in document["finalists"]] == [0] * len(document["finalists"])
