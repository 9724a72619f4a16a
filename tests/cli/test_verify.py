"""``fedsim verify`` on the command line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner

import fedsim
from fedsim.cli import cli
from fedsim.errors import UserError
from fedsim.sweeps import Sweep
from tests.sweeps.worlds import (
    scenario,
)


@pytest.mark.parametrize("name", ["sweep.json", "scenario.yaml", "index.parquet"])
def test_every_flipped_bit_of_a_sweep_is_noticed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep"
    fedsim.sweep(scenario(seeds=[0]), path, jobs=1)
    assert CliRunner().invoke(cli, ["verify", str(path)]).exit_code == 0
    content = (path / name).read_bytes()
    places = random.Random(0).sample(range(len(content)), 8)
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        (path / name).write_bytes(changed)
        result = CliRunner().invoke(cli, ["verify", str(path)])
        assert result.exit_code == 2, (place, result.output)
        if name == "index.parquet":
            with pytest.raises(UserError, match="changed since fedsim wrote it"):
                _ = Sweep(path).index


def test_damaged_files_are_counted_among_all(tmp_path: Path) -> None:
    run = fedsim.run({**scenario(seeds=[0]), "sweep": None}, tmp_path / "run")
    table = run.path / "dispatches.parquet"
    table.write_bytes(table.read_bytes()[:100])
    result = CliRunner().invoke(cli, ["verify", str(run.path)])
    assert ": damaged (1 of " in result.output.splitlines()[0]
