"""The facts of a run."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.analysis.comparison import compare
from fedsim.analysis.comparison.facts import keep_facts, read_facts
from fedsim.errors import UserError
from fedsim.runs import RunFolder
from fedsim.runs.folder import Status
from fedsim.runs.records import FACTS
from fedsim.runs.verification import verify_folder
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import GROUPS, folders, parquet
from tests.composition.worlds import digits


def test_the_last_bit_is_a_difference(sweep: Sweep, tmp_path: Path) -> None:
    run = folders(sweep, *GROUPS[0])[0]
    shutil.copytree(run, tmp_path / "copy")
    assert compare([run, tmp_path / "copy"]).no_difference
    metrics = parquet(tmp_path / "copy", "metrics")
    metrics.loc[4, "loss"] = np.nextafter(metrics.loc[4, "loss"], 9)
    metrics.to_parquet(tmp_path / "copy" / "metrics.parquet")
    RunFolder(tmp_path / "copy").close(Status.COMPLETE)
    assert not compare([run, tmp_path / "copy"]).no_difference


def test_the_kept_facts_are_those_of_the_tables(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = {"name": "static", "down": "20Mbps", "up": "5Mbps"}
    edges = {"edges": {"count": 2, "network": network}}
    fedsim.run(digits(stop={"rounds": 2}, server=edges), tmp_path / "edges")
    fedsim.run(digits(stop={"rounds": 2}), tmp_path / "timing", timing_only=True)
    for name in ("lossy", "diverged"):
        shutil.copytree(folders(sweep, *GROUPS[1])[0], tmp_path / name)
    # A loss that is not finite, evaluations without a metric, and a metric that is never defined.
    metrics = parquet(tmp_path / "diverged", "metrics").assign(other=1.0, undefined=np.nan)
    metrics.loc[len(metrics) - 1, "loss"] = np.inf
    metrics.loc[0, "other"] = np.nan
    metrics.to_parquet(tmp_path / "diverged" / "metrics.parquet")
    last = {"loss": None, "undefined": None, "accuracy": float(metrics["accuracy"].iloc[-1])}
    RunFolder(tmp_path / "diverged").close(Status.COMPLETE, metrics=last)
    for name in ("edges", "timing", "lossy", "diverged"):
        (tmp_path / name / "facts.json").unlink(missing_ok=True)
        measured = vars(read_facts(fedsim.load(tmp_path / name), {}))
        keep_facts(fedsim.load(tmp_path / name))
        with monkeypatch.context() as patched:
            patched.setattr("fedsim.analysis.comparison.facts._measured", None)
            kept = vars(read_facts(fedsim.load(tmp_path / name), {}))
        np.testing.assert_equal(kept, measured)


def test_facts_of_other_results_are_not_used_and_damage_is_named(
    sweep: Sweep, tmp_path: Path
) -> None:
    path = shutil.copytree(folders(sweep, *GROUPS[0])[0], tmp_path / "run")
    facts = path / "facts.json"
    keep_facts(fedsim.load(path))
    RunFolder(path).update_info(wall_s=7.0)
    assert read_facts(fedsim.load(path), {}).figures["wall_s"] == 7.0
    keep_facts(fedsim.load(path))
    FACTS.write(path, {"run": FACTS.read(path)["run"]})  # of an earlier version
    assert read_facts(fedsim.load(path), {}).figures["wall_s"] == 7.0
    keep_facts(fedsim.load(path))
    assert verify_folder(path).state == "intact"
    facts.write_text(facts.read_text().replace("accuracy", "accurate"))
    assert verify_folder(path).state == "damaged"
    with pytest.raises(UserError, match=r"rm .*facts\.json"):
        compare([path])
    facts.unlink()
    facts.mkdir()
    with pytest.raises(UserError, match=r"rm -r .*facts\.json"):
        compare([path])
    facts.rmdir()
    keep_facts(fedsim.load(path))
    (path / "metrics.parquet").write_bytes(b"")
    with pytest.raises(UserError, match="has changed since fedsim"):
        compare([path])


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("progress", {}),
        ("progress", {"time_s": ["@"]}),
        ("progress", 3),
        ("figures", {}),
        ("figures", None),
        ("client_accuracy", [[0.1]]),
        ("unknown", 1),
        ("diverged_s", "soon"),
        ("spent_s", {}),
        ("spent_s", {"compute": "@"}),
        ("lorenz", []),
        ("lost", ["unheard_of"]),
        ("metrics", ["unheard_of"]),
    ],
)
def test_kept_facts_that_cannot_be_are_refused_whatever_their_checksum(
    entry: str, value: Any, sweep: Sweep, tmp_path: Path
) -> None:
    path = shutil.copytree(folders(sweep, *GROUPS[0])[0], tmp_path / "run")
    keep_facts(fedsim.load(path))
    record = FACTS.read(path)
    facts = {**json.loads(record["facts"]), entry: value}
    FACTS.write(path, {**record, "facts": json.dumps(facts)})
    with pytest.raises(UserError, match=r"rm .*facts\.json"):
        compare([path])


def test_a_deployment_is_compared_with_its_simulation(sweep: Sweep, tmp_path: Path) -> None:
    """By the clock, whose time is not called simulated."""
    run = folders(sweep, *GROUPS[0])[0]
    shutil.copytree(run, tmp_path / "deployed")
    RunFolder(tmp_path / "deployed").update_info(clock="wall")
    comparison = compare([run, tmp_path / "deployed"])
    assert {group.label for group in comparison.groups} == {"clock=simulated", "clock=wall"}
    comparison.write(tmp_path / "pages")
    assert "simulated time" not in (tmp_path / "pages" / "compare.html").read_text()
