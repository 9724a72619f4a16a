"""What earlier versions of fedsim wrote is read, and what they began is finished or refused with their version."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

import fedsim
from fedsim.cli import cli
from fedsim.errors import UserError

VERSION = "0.1.0"
WRITTEN = Path(__file__).parent / "fixtures" / "v0_1_0"
RUNS = ("complete", "sweep/seed0", "sweep/seed1")


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A copy of what version 0.1.0 wrote."""
    return Path(shutil.copytree(WRITTEN, tmp_path / "older"))


def command(*words: object) -> Result:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


def test_no_file_names_a_folder_of_the_machine_that_wrote_it() -> None:
    texts = [path for path in WRITTEN.rglob("*") if path.suffix in (".yaml", ".json", ".csv")]
    assert len(texts) >= 10
    for path in texts:
        assert not re.search(r"[\"' ]/\w", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("name", RUNS)
def test_a_complete_run_is_loaded(name: str, older: Path) -> None:
    run = fedsim.load(older / name)
    assert run.status == "complete"
    assert run.info["versions"]["fedsim-des"] == VERSION
    assert len(run.dispatches) == run.info["dispatches"]
    assert run.dispatches["outcome"].value_counts()["aggregated"] > 0
    assert run.dispatches["cause"].isna().all()
    assert len(run.aggregations) == run.info["versions_made"]
    assert run.metrics["loss"].iloc[-1] == run.info["metrics"]["loss"]
    assert len(run.clients) == 4
    assert {tensor.numel() for tensor in run.model().values()} == {2}


def test_a_complete_run_is_reported_and_shown(older: Path) -> None:
    command("report", older / "complete")
    page = (older / "complete" / "report.html").read_text(encoding="utf-8")
    assert "fedcompass" in page.lower()
    shown = command("scenario", "show", older / "complete" / "scenario.yaml", "--json")
    method = json.loads(shown.stdout)["server"]["method"]
    assert method["name"] == "fedcompass"
    assert method.get("normalised", method.get("normalized")) is True


@pytest.mark.parametrize("form", ["csv", "perfetto"])
def test_a_complete_run_is_exported(form: str, older: Path) -> None:
    output = older / "exported"
    command("export", older / "complete", "--format", form, "-o", output)
    if form == "csv":
        rows = pd.read_csv(output / "dispatches.csv")
        assert len(rows) == len(fedsim.load(older / "complete").dispatches)
    else:
        assert json.loads(output.read_text(encoding="utf-8"))


def test_a_sweep_is_compared_and_gone_on_with(older: Path) -> None:
    compared = fedsim.compare([older / "sweep", older / "complete"], targets=["loss=2"])
    assert compared is not None
    command("compare", older / "sweep", "-o", older / "page")
    assert list((older / "page").glob("*.html"))
    before = fedsim.load(older / "sweep" / "seed0").info
    content = YAML(typ="safe", pure=True).load((older / "sweep" / "scenario.yaml").read_text())
    content["sweep"] = {**content.get("sweep", {}), "seeds": [0, 1, 2]}
    sweep = fedsim.sweep(content, older / "sweep", jobs=1)
    assert sweep.index["status"].tolist() == ["complete"] * 3
    assert fedsim.load(older / "sweep" / "seed0").info == before


def test_a_bundle_is_read(older: Path) -> None:
    assert "2 devices" in command("traces", "validate", older / "bundle").output
    command("traces", "inspect", older / "bundle")
    command("traces", "sample", older / "bundle", "-n", 2, "-o", older / "sampled")
    manifest = json.loads((older / "sampled" / "manifest.json").read_text(encoding="utf-8"))
    assert "CC0-1.0" in json.dumps(manifest)
    assert len(list((older / "sampled").glob("*.parquet"))) == 9


def test_an_interrupted_run_is_read(older: Path) -> None:
    run = fedsim.load(older / "interrupted")
    assert run.status == "interrupted"
    assert (older / "interrupted" / "checkpoint").is_dir()
    assert 0 < len(run.aggregations) < 20
    command("export", older / "interrupted", "--format", "csv", "-o", older / "exported")


def test_an_interrupted_run_is_finished_bit_for_bit_or_refused_by_version(older: Path) -> None:
    folder = older / "interrupted"
    content: dict[str, Any] = YAML(typ="safe", pure=True).load(
        (folder / "scenario.yaml").read_text(encoding="utf-8")
    )
    refusal = ""
    try:
        resumed = fedsim.resume(folder)
    except UserError as error:
        refusal = str(error)
    if refusal:
        assert VERSION in refusal
        return
    whole = fedsim.run(content, older / "whole")
    assert resumed.info["resumed"] == 1
    assert len(whole.aggregations) == 20
    for table in ("dispatches", "aggregations", "metrics"):
        pd.testing.assert_frame_equal(
            getattr(resumed, table), getattr(whole, table), check_exact=True
        )
    expected = whole.model()
    assert resumed.model().keys() == expected.keys()
    for name, tensor in resumed.model().items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("seed", None, "lacks the entry 'seed'"),
        ("rounds", None, "lacks the entry 'rounds'"),
        ("metrics", None, "lacks the entry 'metrics'"),
        ("status", "weird", "the entry 'status' is \"weird\""),
        ("simulated_s", "soon", "the entry 'simulated_s' is \"soon\""),
    ],
)
def test_a_changed_description_is_refused_by_name(
    entry: str, value: object, message: str, older: Path
) -> None:
    """No checksum protects what version 0.1.0 wrote."""
    info = json.loads((older / "complete" / "run.json").read_text())
    info[entry] = value
    if value is None:
        del info[entry]
    (older / "complete" / "run.json").write_text(json.dumps(info))
    result = CliRunner().invoke(cli, ["resume", str(older / "complete")])
    assert (result.exit_code, message in result.output) == (2, True), result.output
