"""``fedsim verify`` on the command line."""

import json
from pathlib import Path

import fedsim
from fedsim.runs import Status
from tests.cli.invoking import assert_refused, invoke
from tests.sweeps.worlds import record, scenario


def test_damaged_files_are_counted_among_all(tmp_path: Path) -> None:
    run = fedsim.run({**scenario(seeds=[0]), "sweep": None}, tmp_path / "run")
    table = run.path / "dispatches.parquet"
    table.write_bytes(table.read_bytes()[:100])
    result = invoke("verify", run.path)
    assert ": damaged (1 of " in result.output.splitlines()[0]


def test_a_failed_run_is_named_with_its_error_and_the_next_command(tmp_path: Path) -> None:
    made = {**scenario(seeds=[0]), "sweep": None}
    run = fedsim.run(made, tmp_path / "run", overrides={"stop.rounds": 2})
    run.folder.update_info(status=Status.FAILED, error="RuntimeError: boom")
    again = f"fedsim run {run.path}/scenario.yaml -o {run.path}"
    first, second = invoke("verify", run.path).stdout.splitlines()
    assert first.startswith(f"{run.path}: failed (")
    assert first.endswith("): RuntimeError: boom")
    assert second == f"  after fixing the cause, run the scenario again: {again}"
    (verdict,) = json.loads(invoke("verify", run.path, "--json").stdout)
    assert (verdict["state"], verdict["error"]) == ("failed", "RuntimeError: boom")
    run.folder.update_info(status=Status.RUNNING, error=None)
    first, second = invoke("verify", run.path).stdout.splitlines()
    assert first.startswith(f"{run.path}: unfinished (")
    assert second == f"  continue with: fedsim resume {run.path}"
    (tmp_path / "sweep").mkdir()
    record(tmp_path / "sweep", "run")
    run.path.rename(tmp_path / "sweep" / "run")
    assert invoke("verify", tmp_path / "sweep").stdout.splitlines()[-1] == (
        "  repeat the command of the sweep"
    )


def test_the_command_of_a_bundle_is_shown_as_text(tmp_path: Path) -> None:
    """Somebody else may have written it, so it is quoted and not advised."""
    bundle = tmp_path / "desktops"
    invoke("traces", "synthesize", "desktop", "-n", 3, "--days", 1, "-o", bundle)
    (bundle / "compute.parquet").write_bytes(b"")
    hint = invoke("verify", bundle).stdout.splitlines()[-1]
    assert hint.partition("how it was created: ")[2].startswith("'fedsim traces synthesize desktop")


def test_other_folders_are_not_called_damaged(tmp_path: Path) -> None:
    invoke("board", "show", "-o", tmp_path / "board")
    for folder in (tmp_path / "board", tmp_path):
        assert_refused(invoke("verify", folder), "no files with checksums", "give the folder of")


def test_a_name_is_one_line(tmp_path: Path) -> None:
    made = {**scenario(seeds=[0]), "sweep": None}
    run = fedsim.run(made, tmp_path / "runs" / "a\nb", overrides={"stop.rounds": 2})
    assert len(invoke("verify", run.path).stdout.splitlines()) == 1
    assert invoke("watch", "--once", tmp_path / "runs").stdout.startswith("a\\nb: complete")
