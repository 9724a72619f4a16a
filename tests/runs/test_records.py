"""The records of folders: whatever their entries are, no command ends in a traceback."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsim.errors import UserError
from fedsim.files.checksums import stamped
from fedsim.runs.records import DECISION, FORECAST, RUN, SWEEP, environment, read_sweep
from tests.cli.invoking import PARABOLAS, invoke
from tests.sweeps.worlds import record as record_sweep

VALUES: tuple[Any, ...] = (None, "x", -1, True, [], [1], {}, {"a": 1}, 10**400, "\x1b[31m", [["a"]])
DAMAGED = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    (folder / "s.yaml").write_text(PARABOLAS)
    assert invoke("run", folder / "s.yaml", "-o", folder / "runs" / "run").exit_code == 0
    return folder / "runs" / "run"


def test_entries_of_any_type_end_in_no_traceback(run: Path) -> None:
    info = json.loads((run / RUN.file).read_text())
    del info["sha256"]
    chosen, refused = random.Random(3), 0
    commands = (("ls", run.parent), ("verify", run), ("watch", "--once", run), ("report", run))
    for number in range(DAMAGED):
        document = {**info, chosen.choice(list(info)): chosen.choice(VALUES)}
        (run / RUN.file).write_text(json.dumps(stamped(document)))
        result = invoke(*commands[number % len(commands)])
        assert result.exit_code in (0, 2), (document, result.output)
        assert "\x1b[31m" not in result.output
        refused += result.exit_code == 2
    assert refused > DAMAGED / 3
    RUN.write(run, info)


@pytest.mark.parametrize("record", [DECISION, FORECAST])
def test_a_folder_of_an_answer_is_verified_with_its_runs(
    run: Path, tmp_path: Path, record: Any
) -> None:
    shutil.copytree(run, tmp_path / "runs" / "a")
    scenario = json.loads((run / RUN.file).read_text())["files"]["scenario.yaml"]
    content = {"asked": {}, "batch": 1, "batches": 1, "spent_s": 1.0}
    content["complete"] = {"runs/a": scenario}
    (tmp_path / "old" / "runs").mkdir(parents=True)
    (tmp_path / "old" / "runs" / "mine.txt").write_text("not of this answer")
    record.write_listed(tmp_path, content, {"table.csv": "a,b\n"})
    (tmp_path / ".fedsim-tmp-killed" / "0").mkdir(parents=True)
    (tmp_path / ".fedsim-tmp-killed" / "0" / RUN.file).write_text("{")
    result = invoke("verify", tmp_path, "--json")
    assert result.exit_code == 0
    assert [row["state"] for row in json.loads(result.stdout)] == ["intact", "intact"]
    (tmp_path / "table.csv").write_text("a,c\n")
    assert invoke("verify", tmp_path).exit_code == 2
    record.write(tmp_path, content | {"files": {}, "complete": {"runs/a": "0" * 64}})
    assert "runs/a: is the run of another scenario" in invoke("verify", tmp_path).stdout
    shutil.rmtree(tmp_path / "runs" / "a")
    assert "runs/a/run.json: no such file, though" in invoke("verify", tmp_path).stdout


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": 3}, "Input should be a valid string"),
        ({"format": SWEEP.format + 1}, "update fedsim"),
        *(({"runs": name}, "is not the name of a folder") for name in ("..", "", "a/b", "a\\b")),
    ],
)
def test_what_is_not_the_record_of_a_sweep_is_refused(
    changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    record_sweep(tmp_path, "seed0")
    document = json.loads((tmp_path / SWEEP.file).read_text())
    assert read_sweep(tmp_path)["runs"] == document["runs"]
    del document["sha256"]
    if "runs" in changes:
        changes = {"runs": [{**document["runs"][0], "run": changes["runs"]}]}
    (tmp_path / SWEEP.file).write_text(json.dumps(stamped({**document, **changes})))
    with pytest.raises(UserError, match=problem):
        read_sweep(tmp_path)
    (tmp_path / SWEEP.file).unlink()
    with pytest.raises(UserError, match="not a sweep folder"):
        read_sweep(tmp_path)
    (tmp_path / SWEEP.file).mkdir()
    for command in ("verify", "compare", "watch"):
        assert f"{SWEEP.file}: cannot be read: not a" in invoke(command, tmp_path).output


@pytest.mark.parametrize(
    "changes",
    [
        {"simulated_s": 1e308},
        {"wall_s": -1.0},
        {"seed": 2**63},
        {"rounds": 2**60},
        {"files": None},
        {"": {"clients": 6, "excluded_clients": 4, "ineligible_clients": 3}},
    ],
)
def test_amounts_that_no_run_has_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    entries = changes.get("", changes)
    RUN.write(tmp_path, {"status": "complete", "files": {}, **entries})
    named = "its entries: " if "" in changes else f"the entry '{next(iter(changes))}"
    with pytest.raises(UserError, match=named):
        RUN.read(tmp_path)


def test_environment_names_what_results_depend_on() -> None:
    recorded = environment()
    assert recorded["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert recorded["hardware"]["cores"] == os.cpu_count()
    json.dumps(recorded)
