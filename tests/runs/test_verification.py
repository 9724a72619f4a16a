"""Every flipped bit is noticed, by ``fedsim verify`` and by the reader of the file."""

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import fedsim
from fedsim.cli import cli
from fedsim.errors import UserError
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.listing import DAMAGED, listed
from fedsim.runs.verification import verify_folder
from fedsim.traces.synthesis import Synthesis, synthesize
from tests.composition.worlds import digits

FLIPS = 2


def test_a_bundle_is_intact_damaged_or_not_verifiable(tmp_path: Path) -> None:
    bundle = tmp_path / "b"
    synthesize(Synthesis(population="always", devices=3)).write(bundle)
    code, rows = verify(bundle)
    assert (code, rows[0]["state"], rows[0]["files"]) == (0, "intact", len(list(bundle.iterdir())))
    for file in sorted(bundle.iterdir()):
        content = file.read_bytes()
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        file.write_bytes(changed)
        assert verify_folder(bundle).state == "damaged", file.name
        file.write_bytes(content)
    table = bundle / "network.parquet"
    content = table.read_bytes()
    table.unlink()
    code, rows = verify(bundle)
    assert (code, rows[0]["state"]) == (2, "damaged")
    assert "network.parquet" in rows[0]["problems"][0]
    table.write_bytes(content)
    manifest = json.loads((bundle / "manifest.json").read_text())
    del manifest["manifest_sha256"]
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    code, rows = verify(bundle)
    assert (code, rows[0]["state"]) == (0, "not verifiable")
    (bundle / "manifest.json").unlink()
    (bundle / "manifest.json").mkdir()
    code, rows = verify(bundle)
    assert (code, rows[0]["state"]) == (2, "damaged")
    assert "manifest.json: the manifest cannot be read" in rows[0]["problems"][0]


def verify(*folders: Path) -> tuple[int, Any]:
    result = CliRunner().invoke(cli, ["verify", *map(str, folders), "--json"])
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verification") / "run"
    network = {"name": "static", "down": "20Mbps", "up": "5Mbps"}
    server = {"edges": {"count": 2, "network": network}}
    fedsim.run(digits(stop={"rounds": 3}, server=server), path)
    return path


def read_everything(path: Path) -> None:
    run = fedsim.load(path)
    names = "dispatches aggregations metrics clients online presence pauses critical partition"
    names += " edge_dispatches edge_aggregations edges"
    assert all(getattr(run, name) is not None for name in names.split())
    assert run.scenario
    assert run.model()


def test_a_run_as_written_is_intact_and_its_page_does_not_count(complete: Path) -> None:
    read_everything(complete)
    assert verify(complete)[0] == 0
    RunFolder(complete).update_info(**{"": 1})  # An entry without a meaning.
    (complete / "report.html").write_text("rewritten")
    (complete / "notes.txt").write_text("mine")
    code, rows = verify(complete)
    assert (code, rows[0]["state"], rows[0]["path"]) == (0, "intact", str(complete))
    assert rows[0]["files"] == len(list(complete.iterdir())) - 3  # the page, the notes, the lock


def flipped(content: bytes, draw: random.Random) -> bytes:
    """The content with one bit flipped, but not one that JSON ignores, as in 1e-05 and 1E-05."""
    while True:
        changed = bytearray(content)
        changed[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        try:
            if json.loads(changed) != json.loads(content):
                return bytes(changed)
        except ValueError:
            return bytes(changed)


def test_every_flipped_bit_and_every_missing_file_is_noticed(
    complete: Path, tmp_path: Path
) -> None:
    draw = random.Random(1)
    names = sorted(
        path.name
        for path in complete.iterdir()
        if path.name not in ("report.html", "facts.json", "notes.txt", ".lock")
    )
    assert len(names) == 15
    for name in names:
        path = tmp_path / "run"
        content = (complete / name).read_bytes()
        for flip in range(FLIPS + 1):
            shutil.copytree(complete, path)
            if flip == FLIPS:
                (path / name).unlink()
            else:
                (path / name).write_bytes(flipped(content, draw))
            assert verify_folder(path).state == "damaged", (name, flip)
            for use in (read_everything, fedsim.resume):
                with pytest.raises(UserError):
                    use(path)
            shutil.rmtree(path)
    assert verify(Path(shutil.copytree(complete, path, ignore=lambda *_: ["run.json"])))[0] == 2


@pytest.fixture
def path(complete: Path, tmp_path: Path) -> Path:
    """A copy of the run."""
    return Path(shutil.copytree(complete, tmp_path / "run"))


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        ("much", "the environment variable FEDSIM_MAX_UNPACKED: 'much'"),
        ("1KiB", ".parquet: unpacks to more than"),
    ],
)
def test_a_wrong_limit_of_memory_is_not_damage(
    complete: Path, monkeypatch: pytest.MonkeyPatch, limit: str, problem: str
) -> None:
    monkeypatch.setenv("FEDSIM_MAX_UNPACKED", limit)
    result = CliRunner().invoke(cli, ["verify", str(complete)])
    assert (result.exit_code, "damaged" in result.output) == (2, False)
    assert "not verifiable" in result.output or limit == "much"
    assert problem in result.output


@pytest.mark.usefixtures("with_reports")
def test_a_run_whose_page_is_missing_gets_it_by_resuming(path: Path) -> None:
    (path / "report.html").unlink()
    fedsim.resume(path)
    assert (path / "report.html").stat().st_size > 10_000
    (path / "facts.json").write_text("")
    with pytest.raises(UserError, match=r"facts\.json: cannot be read"):
        fedsim.resume(path)


@pytest.mark.parametrize("name", ["run.json", "metrics.parquet", "scenario.yaml"])
def test_a_link_to_a_device_in_place_of_a_file_is_refused(path: Path, name: str) -> None:
    """Reading /dev/zero would never end."""
    (path / name).unlink()
    (path / name).symlink_to("/dev/zero")
    (problem,) = verify_folder(path).problems
    expected = str(path / name), "cannot be read: not a regular file"
    assert (problem.where, problem.message) == expected
    with pytest.raises(UserError, match="not a regular file"):
        read_everything(path)


@pytest.mark.parametrize(
    ("entry", "table"),
    [
        ("dispatches", "dispatches"),
        ("versions_made", "aggregations"),
        ("rounds", "aggregations"),
        ("simulated_s", "clients"),
    ],
)
def test_counts_that_disagree_with_the_tables_are_damage(
    path: Path, entry: str, table: str
) -> None:
    folder = RunFolder(path)
    folder.update_info(**{entry: folder.read_info()[entry] // 2})
    if entry != "rounds":  # A round may close without a server update.
        (problem,) = verify_folder(path).problems
        assert str(problem.where).endswith(f"{table}.parquet")
        said = f"rows, but run.json has {entry}: ", "do not add up to the simulated_s of run.json"
        assert said[entry == "simulated_s"] in problem.message
    with pytest.raises(UserError, match=rf"{table}\.parquet"):
        getattr(fedsim.load(path), table)


@pytest.mark.parametrize(
    ("changes", "file"),
    [
        ({"name": "other"}, "scenario.yaml"),
        ({"seed": 999}, "scenario.yaml"),
        ({"tags": ["other"]}, "scenario.yaml"),
        ({"target": {"accuracy": 0.99}}, "scenario.yaml"),
        ({"metrics": {"loss": 0.0}}, "metrics.parquet"),
        ({"metrics": {"unmeasured": 1.0}}, "metrics.parquet"),
    ],
)
def test_run_json_that_disagrees_with_the_scenario_or_the_metrics_is_damage(
    path: Path, changes: dict[str, Any], file: str
) -> None:
    RunFolder(path).update_info(**changes)
    (problem,) = verify_folder(path).problems
    assert str(problem.where).endswith(file)
    run = fedsim.load(path)
    with pytest.raises(UserError, match=re.escape(file)):
        _ = run.metrics, run.scenario
    is_of_scenario = file == "scenario.yaml"
    assert listed(path)[0].statuses == {DAMAGED if is_of_scenario else "complete": 1}


def test_a_file_of_a_complete_run_without_a_checksum_is_damage(path: Path) -> None:
    files = RunFolder(path).read_info()["files"]
    del files["metrics.parquet"]
    RunFolder(path).update_info(files=files)
    (problem,) = verify_folder(path).problems
    assert problem.message == "is not listed in run.json"


def test_a_run_whose_tables_contradict_each_other_is_damage(path: Path) -> None:
    file = path / "dispatches.parquet"
    table = pd.read_parquet(file)
    table.loc[0, "energy_j"] += 1e6
    pq.write_table(pa.Table.from_pandas(table, pq.read_schema(file)), file)
    RunFolder(path).close(Status.COMPLETE)
    (problem,) = verify_folder(path).problems
    assert "energy_j" in problem.message
