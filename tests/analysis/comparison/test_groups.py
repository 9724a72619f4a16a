"""Names of groups, on scenarios made by hand."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.analysis.comparison import compare
from fedsim.analysis.comparison.cautions import cautions
from fedsim.analysis.comparison.facts import COSTS, SPENT, RunFacts
from fedsim.analysis.comparison.groups import group_runs
from fedsim.files.checksums import file_sha256
from tests.composition.worlds import digits

NAN = math.nan


def facts(
    scenario: dict[str, Any],
    seed: int = 0,
    folder: str = "run",
    times: tuple[float, ...] = (),
    accuracy: tuple[float, ...] = (),
) -> RunFacts:
    progress = {"time_s": np.array(times), "accuracy": np.array(accuracy)}
    for name in (*list(COSTS)[1:], "client_updates"):
        progress[name] = progress["time_s"] * 2
    return RunFacts(
        digest=folder,
        path=Path("/runs") / folder,
        scenario={"name": folder, "seed": seed, **scenario},
        seed=seed,
        progress=progress,
        metrics=("accuracy",) if accuracy else (),
        figures=dict.fromkeys(SPENT, 0.0),
        spent_s={},
        client_accuracy=np.zeros(0),
        lorenz=np.zeros(0),
    )


def server(method: str, **more: Any) -> dict[str, Any]:
    return {"server": {"method": {"name": method, **more}}}


def scheduled(**parameters: Any) -> dict[str, Any]:
    return {"server": {"schedule": {"name": "sync", **parameters}}}


@pytest.mark.parametrize(
    ("scenarios", "expected"),
    [
        ([server("fedavg"), server("fedprox", mu=0.1)], ["fedavg", "fedprox"]),
        (
            [server("fedavg"), server("fedprox", mu=0.1), server("fedprox", mu=1.0)],
            ["fedavg", "fedprox, mu=0.1", "fedprox, mu=1"],
        ),
        (
            [server("fedavg", deadline=None), server("fedavg", deadline=60.0)],
            ["deadline=none", "deadline=60"],
        ),
        (
            [{"training": {"optimizer": {"name": "sgd", "lr": lr}}} for lr in (0.1, 0.01)],
            ["lr=0.1", "lr=0.01"],
        ),
        (
            [{"devices": {"trace": f"/data/{name}"}} for name in ("phones", "labs")],
            ["trace=phones", "trace=labs"],
        ),
        ([server("my.py:First"), server("my.py:Second")], ["First", "Second"]),
        (
            [server("fedavg", deadline=None), server("fedavg", deadline=8.0), server("mifa")],
            ["fedavg", "fedavg, deadline=8", "mifa"],
        ),
        # Durations, sizes and rates of built-in parts have a unit that divides them.
        (
            [scheduled(deadline=value) for value in (240.0, 90.0, 0.5)],
            ["deadline=4min", "deadline=90s", "deadline=0.5s"],
        ),
        (
            [{"devices": {"network": {"name": "static", "down": down}}} for down in (2e7, 5e5)],
            ["down=20Mbps", "down=500kbps"],
        ),
        (
            [{"evaluation": {"every": every}} for every in (3600.0, 86400.0)],
            ["every=1h", "every=1d"],
        ),
        # A factor of 1 is no compression.
        (
            [
                {"server": {"compression": {"up": {"name": "factor", "factor": 1.0}}}},
                {"server": {"compression": {"up": {"name": "topk", "share": 0.1}}}},
            ],
            ["uncompressed", "topk"],
        ),
        (
            [
                {"server": {"compression": {"up": {"name": "factor", "factor": factor}}}}
                for factor in (1.0, 0.5)
            ],
            ["factor=1", "factor=0.5"],
        ),
        # Runs that differ in everything are called by their method.
        (
            [
                {"devices": {"compute": {"name": speed}}, **server(method)}
                for speed, method in (("trace", "fedavg"), ("lognormal", "ditto"))
            ],
            ["fedavg", "ditto"],
        ),
        # A key that is null here and a whole part there: each says what it has.
        (
            [{"training": {"limited": limited}} for limited in (None, {"share": 0.5, "most": 2})],
            ["limited=none", "limited.share=0.5"],
        ),
        (
            [
                {"training": {"limited": limited}}
                for limited in ({"share": 0.5, "most": 2}, {"share": 0.5, "most": 3}, None)
            ],
            ["limited.most=2", "limited.most=3", "limited=none"],
        ),
        (
            [{"stop": {"target": target}} for target in ({"accuracy": 0.9}, {"loss": 0.1}, None)],
            ["target.accuracy=0.9", "target.loss=0.1", "target=none"],
        ),
        # ... but what is switched off need not be said beside something else.
        (
            [server("fedavg", limited=None), server("fedprox", limited={"share": 0.5})],
            ["fedavg", "fedprox"],
        ),
        # Keys of one name are told apart by what they are in.
        (
            [
                {"server": {"a": {"x": a}, "b": {"x": b}}}
                for a, b in ((1, 1), (1, 2), (2, 1), (2, 2))
            ],
            ["a.x=1, b.x=1", "a.x=1, b.x=2", "a.x=2, b.x=1", "a.x=2, b.x=2"],
        ),
    ],
)
def test_labels_say_what_differs_in_the_fewest_words(
    scenarios: list[dict[str, Any]], expected: list[str]
) -> None:
    runs = [facts(scenario, 0, f"run{number}") for number, scenario in enumerate(scenarios)]
    assert [group.label for group in group_runs(runs).groups] == expected


def crossed(method: str, alpha: float) -> dict[str, Any]:
    return {**server(method), "task": {"partition": {"alpha": alpha}}}


def limited(method: str, limits: Any) -> dict[str, Any]:
    return {**server(method), "training": {"limited": limits}}


GRID = [crossed(method, alpha) for method in ("fedavg", "mifa") for alpha in (0.1, 1.0)]


@pytest.mark.parametrize(
    ("scenarios", "options", "expected"),
    [
        # What is crossed with the server section is a setting.
        (GRID, {}, ["alpha=0.1: fedavg", "alpha=0.1: mifa", "alpha=1: fedavg", "alpha=1: mifa"]),
        # A setting that is nothing in some runs has a name.
        (
            [
                limited(method, of)
                for method in ("a", "b")
                for of in (None, {"share": 1, "most": 2})
            ],
            {},
            ["limited=none: a", "limited=none: b", "limited.share=1: a", "limited.share=1: b"],
        ),
        # What is tuned for each variant belongs to it.
        ([crossed("fedavg", 0.1), crossed("mifa", 1.0)], {}, [": fedavg", ": mifa"]),
        # A failed run does not change the names.
        (
            [GRID[0], GRID[2], GRID[1]],
            {"others": [{"seed": 0, **GRID[3]}]},
            ["alpha=0.1: fedavg", "alpha=0.1: mifa", "alpha=1: fedavg"],
        ),
        # Runs of one scenario and seed are not averaged.
        ([server("fedavg")] * 2, {}, [": run0", ": run1"]),
        # Other names can be given.
        (
            GRID,
            {"renamed": {"mifa": "MIFA", "alpha=1": "mild"}},
            ["alpha=0.1: fedavg", "alpha=0.1: MIFA", "mild: fedavg", "mild: MIFA"],
        ),
    ],
)
def test_settings_and_variants(
    scenarios: list[dict[str, Any]], options: dict[str, Any], expected: list[str]
) -> None:
    runs = [facts(scenario, 0, f"run{number}") for number, scenario in enumerate(scenarios)]
    groups = group_runs(runs, **options).groups
    assert [f"{group.setting}: {group.label}" for group in groups] == expected
    assert [len(group.runs) for group in groups] == [1] * len(expected)


def test_names_that_a_sweep_gives_are_used() -> None:
    made = [
        replace(facts(crossed(method, alpha), seed, f"{name}{alpha}{seed}"), variant=name)
        for name, method in (("slow", "fedavg"), ("fast", "fedbuff"))
        for alpha in (0.1, 1.0)
        for seed in (0, 1)
    ]
    by_setting = [(group.setting, group.label) for group in group_runs(made).groups]
    assert [label for _, label in by_setting] == ["slow", "fast", "slow", "fast"]
    assert len({setting for setting, _ in by_setting}) == 2
    # Values of a grid that name no setting follow the name.
    grid = [
        replace(facts(server("fedprox", mu=mu), 0, f"run{mu}"), variant="mine") for mu in (0.1, 1.0)
    ]
    assert [group.label for group in group_runs(grid).groups] == ["mine, mu=0.1", "mine, mu=1"]


def test_runs_that_differ_in_seed_and_name_alone_are_one_group() -> None:
    grouping = group_runs([facts(server("fedavg"), seed, f"run{seed}") for seed in (2, 0, 1)])
    (group,) = grouping.groups
    assert (group.setting, group.label, grouping.differing) == ("", "fedavg", ())
    assert [run.seed for run in group.runs] == [0, 1, 2]


def test_keys_that_differ_are_those_of_the_compared_runs() -> None:
    runs = [facts(crossed(method, 0.1), 0, method) for method in ("fedavg", "mifa")]
    grouping = group_runs(runs, others=[{"seed": 0, "stop": {"rounds": 3}, **crossed("mifa", 1.0)}])
    assert grouping.differing == ("server.method.name",)
    assert [set(group.values) for group in grouping.groups] == [{"server.method.name"}] * 2


def _of_code(path: Path, version: int) -> dict[str, Any]:
    code = "from fedsim.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    name = ''\n"
    path.with_suffix(".py").write_text(code + "    x = 1\n" * version)
    world = digits(stop={"rounds": 1})
    world["server"]["method"] = {"name": f"{path.with_suffix('.py')}:Mine"}
    return world


def _of_data(path: Path, version: int) -> dict[str, Any]:
    rows = np.arange(96)
    x = np.stack([rows, rows % 5], 1).astype(np.float32)
    np.savez(path, x=x, y=rows % (2 + version), is_test=rows % 4 == 0)
    world = digits(stop={"rounds": 1})
    world["task"]["dataset"] = {"name": "npz", "path": str(path)}
    return world


@pytest.mark.parametrize(
    ("world", "differing"),
    [(_of_code, "server.method.code"), (_of_data, "task.dataset.path_digest")],
)
def test_copies_of_a_users_file_are_one_variant_and_its_versions_are_not(
    world: Any, differing: str, tmp_path: Path
) -> None:
    """Two copies in two folders with two seeds, and another version of the same name."""
    runs = []
    for number, version in enumerate((0, 0, 1)):
        (tmp_path / str(number)).mkdir()
        scenario = world(tmp_path / str(number) / "mine.npz", version)
        runs.append(fedsim.run({**scenario, "seed": number}, tmp_path / f"run{number}").path)
    copies, versions = compare(runs[:2]), compare(runs)
    assert [len(group.runs) for group in copies.groups] == [2]
    assert (copies.grouping.differing, cautions(copies)) == ((), [])
    assert [len(group.runs) for group in versions.groups] == [2, 1]
    assert versions.grouping.differing == (differing,)
    if world is _of_data:
        assert "different data: task.dataset.path_digest" in cautions(versions)[0]
        data = tmp_path / "0" / "mine.npz"
        assert fedsim.load(runs[0]).info["data_files"] == {str(data): file_sha256(data)}


@pytest.mark.parametrize(("keys", "labels"), [(19, ["a", "b"]), (20, ["fp", "big"])])
def test_scenarios_that_share_little_have_their_own_names(keys: int, labels: list[str]) -> None:
    """Besides the method, ``keys`` keys differ."""
    runs = [
        facts(
            {**server(method), "devices": {f"key{n}": n * sign for n in range(1, keys + 1)}},
            seed,
            name,
        )
        for method, name, sign in (("a", "fp", 1), ("b", "big", -1))
        for seed in (0, 1)
    ]
    grouping = group_runs(runs)
    assert [group.label.partition(",")[0] for group in grouping.groups] == labels
    assert len(grouping.differing) == keys + 1


def test_unrelated_groups_of_one_name_are_named_by_their_values() -> None:
    runs = [
        facts({**server(method), "devices": {f"key{n}": n * sign for n in range(1, 30)}}, 0, "x")
        for method, sign in (("a", 1), ("b", -1))
    ]
    assert [group.label.partition(",")[0] for group in group_runs(runs).groups] == ["a", "b"]
