"""The sweeps under ``scenarios/papers``: in order, complete, and named as the papers' tables name them."""

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from fedsim.analysis.comparison.groups import Grouping, group_runs
from fedsim.analysis.comparison.reference import REFERENCE, Reference, read_reference
from fedsim.api import read_scenario
from fedsim.cli import cli
from fedsim.scenario.loading import LoadedScenario
from fedsim.sweeps.plan import PlannedRun, plan_runs

PAPERS = Path(__file__).resolve().parents[2] / "scenarios" / "papers"
SWEEPS = sorted(path for path in PAPERS.rglob("*.yaml") if path.name != REFERENCE)
REFERENCES = sorted(PAPERS.rglob(REFERENCE))


def named(path: Path) -> str:
    return str(path.relative_to(PAPERS))


def first_seed(loaded: LoadedScenario) -> str:
    """The setting that leaves only the first seed of a sweep."""
    sweep = loaded.scenario.sweep
    assert sweep is not None
    return f"sweep.seeds=[{sweep.seeds[0] if sweep.seeds else 0}]"


@functools.cache
def planned(path: Path) -> list[PlannedRun]:
    """The runs of the first seed."""
    loaded = read_scenario(path)
    return plan_runs(loaded.changed([first_seed(loaded)]))


@functools.cache
def grouped(path: Path) -> Grouping:
    """The groups that a comparison of the sweep would have, under the names of its folder's reference."""
    runs: list[Any] = [
        SimpleNamespace(scenario=run.resolved(), seed=run.seed, path=Path(run.name), variant="")
        for run in planned(path)
    ]
    reference_file = path.parent / REFERENCE
    reference = (
        read_reference(reference_file) if reference_file.is_file() else Reference(source="none")
    )
    return group_runs(runs, renamed=reference.labels, settings=reference.settings)


@pytest.mark.parametrize("path", SWEEPS, ids=named)
def test_every_sweep_is_in_order_and_expands(path: Path) -> None:
    # The runs of another seed have the same parts, traces and data.
    one_seed = ["-s", first_seed(read_scenario(path))]
    checked = CliRunner().invoke(cli, ["scenario", "check", str(path), *one_seed])
    assert checked.exit_code == 0, checked.output
    runs = planned(path)
    groups = grouped(path).groups
    assert len(runs) == len(groups) > 1
    assert len({(group.setting, group.label) for group in groups}) == len(groups)
    assert not any("#" in group.label for group in groups), "two variants have one name"


@pytest.mark.parametrize("path", REFERENCES, ids=named)
def test_what_a_reference_names_is_run(path: Path) -> None:
    reference = read_reference(path)
    sweeps = [sweep for sweep in SWEEPS if sweep.parent == path.parent]
    run = {
        (group.setting, group.label)
        for sweep in sweeps
        for group in grouped(sweep).groups
        if sweep.stem.endswith("_full")
    }
    labels = {label for _, label in run}
    for table in reference.tables:
        for setting, label, _ in table.cells():
            where = f"{table.title}: {label}"
            assert (label in labels) if setting is None else ((setting, label) in run), where
    if reference.baseline is not None:
        assert reference.baseline in labels


@pytest.mark.parametrize("folder", [r.parent for r in REFERENCES], ids=named)
def test_every_paper_has_a_small_and_a_full_size(folder: Path) -> None:
    assert list(folder.glob("*_small.yaml"))
    assert list(folder.glob("*_full.yaml"))


def test_readme_tells_every_sweep() -> None:
    for path in SWEEPS:
        readme = next(p / "README.md" for p in path.parents if (p / "README.md").is_file())
        assert PAPERS in readme.parents, f"{named(path)} has no README"
        assert path.name in readme.read_text(encoding="utf-8"), (
            f"{named(path)} is not in its README"
        )


def test_the_smallest_sweep_runs_and_is_compared(tmp_path: Path) -> None:
    sweep = PAPERS / "fedsum" / "trace_small.yaml"
    methods = "[{name: fedsum}, {name: fedavg, weights: uniform}]"
    words = ["sweep", str(sweep), "-j", "1", "-o", str(tmp_path / "runs"), "--json"]
    words += ["-s", "stop={rounds: 2}", "-s", "evaluation={every_rounds: 1}"]
    words += ["-s", f"sweep={{seeds: [0], grid: {{server.method: {methods}}}}}"]
    ran = CliRunner().invoke(cli, words)
    assert ran.exit_code == 0, ran.output
    compared = CliRunner().invoke(cli, ["compare", str(tmp_path / "runs")])
    assert compared.exit_code == 0, compared.output
    assert "FedSUM" in compared.output
    assert "FedAvg" in compared.output


def test_patterns_of_participation_are_settings() -> None:
    grouping = grouped(PAPERS / "fedsum" / "patterns_small.yaml")
    assert grouping.settings == (
        "P1 (case 1)",
        "P2 (case 2)",
        "P3 (case 2)",
        "case 3",
        "case 4",
        "biased (H.8)",
    )
    variants = [group.label for group in grouping.of("case 3")]
    assert len(variants) == 9
    assert all([g.label for g in grouping.of(s)] == variants for s in grouping.settings)
