"""The runs of a sweep and their names."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.errors import UserError, UserErrors
from fedsim.scenario.comparing import text
from fedsim.scenario.loading import load_scenario, load_scenario_dict
from fedsim.sweeps.plan import PlannedRun, name_words, plan_runs
from tests.sweeps.worlds import scenario, write


def plan(data: dict[str, Any]) -> list[PlannedRun]:
    return plan_runs(load_scenario_dict(data, Path.cwd()))


def test_every_combination_of_grid_rows_and_seeds() -> None:
    runs = plan(
        scenario(
            grid={"training.optimizer.lr": [0.1, 0.2], "training.local_steps": [1, 2]},
            zip={
                "server.method": [{"name": "fedavg"}, {"name": "fedavgm", "momentum": 0.5}],
                "server.failure_detection": ["never", 0],
            },
            seeds=[3, 4],
        )
    )
    combinations = [(*run.values.values(), run.seed) for run in runs]
    rows = [({"name": "fedavg"}, "never"), ({"name": "fedavgm", "momentum": 0.5}, 0)]
    expected = itertools.product([0.1, 0.2], [1, 2], rows, [3, 4])
    assert combinations == [(lr, steps, *row, seed) for lr, steps, row, seed in expected]
    assert runs[0].name == "lr0.1_local_steps1_fedavg_never_seed3"
    assert runs[3].name == "lr0.1_local_steps1_fedavgm-momentum0.5_failure_detection0_seed4"
    assert all(run.loaded.scenario.seed == run.seed for run in runs)
    assert all(run.loaded.scenario.sweep is None for run in runs)


@pytest.mark.parametrize("empty", [{"training": {}}, {"training": None}, {"stop": {}}, {}])
def test_an_empty_section_of_a_variant_sets_nothing(empty: dict[str, Any]) -> None:
    data = scenario(variants={"plain": empty})
    data["training"]["local_steps"] = 7
    (run,) = plan(data)
    assert run.loaded.scenario.training.local_steps == 7


def test_variants_have_names_and_set_keys_of_their_own() -> None:
    variants = {
        "plain": {},
        "fed buff": {
            "server": {"method": {"name": "fedbuff"}, "schedule": {"name": "buffered"}},
            "training": {"optimizer": {"lr": 0.3}},
        },
    }
    runs = plan(scenario(variants=variants, grid={"training.local_steps": [1, 2]}, seeds=[5]))
    assert [run.name for run in runs] == [
        "plain_local_steps1_seed5",
        "plain_local_steps2_seed5",
        "fed-buff_local_steps1_seed5",
        "fed-buff_local_steps2_seed5",
    ]
    assert runs[2].values == {"variant": "fed buff", "training.local_steps": 1}
    plain = {key: value for key, value in scenario().items() if key != "sweep"}
    overrides = ["training.local_steps=1", "server.method={name: fedbuff}", "seed=5"]
    overrides += ["server.schedule={name: buffered}", "training.optimizer.lr=0.3"]
    expected = load_scenario_dict(plain, Path.cwd(), overrides)
    assert runs[2].resolved() == expected.resolved()


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ({"server": {"schedule": {"name": "buffered", "bufer_size": 2}}}, "unknown key"),
        ({"seed": 3}, "'seed' cannot be varied"),
    ],
)
def test_an_invalid_variant_is_found_before_the_first_run(variant: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(scenario(variants={"fine": {}, "wrong": variant}))


SYNC = {"name": "sync", "deadline": "9s"}


LONG = {"name": "scripted", "rounds": [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1]]}


@pytest.mark.parametrize(
    ("path", "values", "words"),
    [
        # All of a part, while that is short and plain.
        ("server.method", [{"name": "fedprox", "mu": 0.1}], ["fedprox-mu0.1"]),
        # Of sections, what tells them apart: names of parts first.
        (
            "server",
            [
                {"method": {"name": "fedavg"}, "selection": LONG},
                {"method": {"name": "fedprox", "mu": 0.1}, "selection": LONG},
                {"method": {"name": "fedprox", "mu": 1}, "selection": LONG},
            ],
            ["fedavg", "fedprox-mu0.1", "fedprox-mu1"],
        ),
        (
            "server",
            [{"method": {"name": "fedavg"}, "schedule": s} for s in (SYNC, {"name": "async"})],
            ["sync", "async"],
        ),
        # The name of the part also where all have it, and alone where nothing else differs.
        (
            "devices.compute",
            [{"name": "values", "step": 1, "jitter": {"cv": cv}} for cv in (0.1, 0.2)],
            ["values-cv0.1", "values-cv0.2"],
        ),
        ("training.limited", [{"share": 0.5, "most": [1]}, None], ["limited"]),
        ("task.model.hidden", [[64, 32], [16]], ["hidden-64-32", "hidden-16"]),
        ("devices.trace", ["../traces/phones_week", "labs"], ["phones_week", "labs"]),
        ("server.method", [{"name": "my/own.py:Mine", "a": [1]}], ["Mine"]),
    ],
)
def test_what_is_swept_has_a_name_that_people_can_read(
    path: str, values: list[Any], words: list[str]
) -> None:
    names = name_words(path, path.rpartition(".")[2], values)
    assert [names[text(value)] for value in values if value is not None] == words


@pytest.mark.parametrize(
    "values",
    [
        ["../up/there", "..-up-there", "../up//there", ".", "..", "", "a b", "a-b"],
        [[[0]], [[1]], [0], [1]],
        [{"name": "x.py:Mine"}, {"name": "y.py:Mine"}],
        [{"name": "x.py:Mine", "a": [1]}, {"name": "y.py:mine", "a": [1]}],
        [{"x": {"y": 0.1}}, {"x": {"y": 0.1000000001}}],
    ],
)
def test_names_are_safe_and_tell_everything_apart(values: list[Any]) -> None:
    words = list(name_words("task.names", "names", values).values())
    assert len({word.casefold() for word in words}) == len(values)
    for word in words:
        assert re.fullmatch(r"[A-Za-z0-9+_-][A-Za-z0-9.+_-]{0,46}", word), word


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"grid": {"seed": [1, 2]}}, "'seed' cannot be varied"),
        ({"seeds": [1, 1]}, "contains the run seed1 twice"),
        ({"grid": {"training.optimizer.lr": [0.1, 0.10]}}, "twice"),
        ({"grid": {"training.optimizer.learning": [0.1]}}, "unknown key"),
        (
            {"grid": {"stop.rounds": [1], "stop": [{"rounds": 2}]}},
            "'stop.rounds' has no effect, because 'stop' replaces it",
        ),
        (
            {"variants": {"a": {"stop": {"rounds": 1}}}, "zip": {"stop.rounds": [1]}},
            "'stop.rounds' has no effect, because 'stop.rounds' replaces it",
        ),
        ({"variants": {f"v{n}": {f"k{n}": 1} for n in range(99)}}, "further mistakes are not"),
        ({"grid": {str(n): [0, 1] for n in range(9)}, "seeds": [*range(20)]}, "10,240 runs; at"),
    ],
)
def test_what_cannot_be_swept_is_refused(sweep: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(scenario(**sweep))


def test_an_override_of_the_seed_needs_a_sweep_without_seeds(tmp_path: Path) -> None:
    """Seeds of the section apply to all runs; the seed of the file, such as that of a resolved scenario, may differ."""
    path = write(tmp_path / "s.yaml", {**scenario(seeds=[0, 1]), "seed": 5})
    assert [run.seed for run in plan_runs(load_scenario(path))] == [0, 1]
    message = "^option -s seed=3: has no effect.*\n.* -s 'sweep.seeds=\\[3\\]'"
    with pytest.raises(UserError, match=message):
        plan_runs(load_scenario(path, overrides=["seed=3"]))
    (only,) = plan_runs(load_scenario(path, overrides=["sweep.seeds=[3]"]))
    assert only.seed == 3
    grid = scenario(grid={"training.local_steps": [1]})
    (only,) = plan_runs(load_scenario_dict(grid, tmp_path, overrides=["seed=3"]))
    assert only.seed == 3


def test_a_wrong_value_is_reported_once_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    data = scenario(grid={"training.optimizer.lr": [0.1, -1, -2]}, seeds=[0, 1, 2])
    write(path, data)
    with pytest.raises(UserErrors) as caught:
        plan_runs(fedsim.read_scenario(path))
    lines = path.read_text().splitlines()
    places = [error.where for error in caught.value.errors]
    expected = [number for number, line in enumerate(lines, 1) if line.strip() in ("- -1", "- -2")]
    assert [int(str(where).split(":")[-2]) for where in places] == expected
    assert len(expected) == 2
