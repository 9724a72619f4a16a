"""What grows with the number of clients is built and read once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.runs.folder import Status
from fedsim.runs.tables import read_parquet
from fedsim.simulation.simulation import Simulation
from tests.composition.worlds import quadratic


def test_what_grows_with_the_clients_is_built_once_and_not_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten million clients each time plane takes seconds to build, and so would each reading of their table."""
    built, read = [], []

    def counting_server(*args: Any, **more: Any) -> Simulation:
        built.append(args)
        return Simulation(*args, **more)

    def counting_read(path: Path) -> Any:
        read.append(path.name)
        return read_parquet(path)

    monkeypatch.setattr("fedsim.composition.assembly.Simulation", counting_server)
    monkeypatch.setattr("fedsim.runs.run.read_parquet", counting_read)
    run = fedsim.run(quadratic([[0, 1]]), tmp_path / "run")
    assert run.status is Status.COMPLETE
    assert len(built) == 1
    assert "clients.parquet" not in read
