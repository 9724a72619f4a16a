from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fedsim.catalog import Catalog
from fedsim.errors import UserError, UserErrors
from fedsim.scenario.loading import LoadedScenario, load_scenario, load_scenario_dict

MINIMAL = """\
task:
  dataset: {name: digits}
  partition: {name: iid}
  model: {name: mlp}
stop: {rounds: 3}
"""


def load(tmp_path: Path, catalog: Catalog, text: str, *overrides: str) -> LoadedScenario:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return load_scenario(path, catalog, overrides)


def errors(tmp_path: Path, catalog: Catalog, text: str, *overrides: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        load(tmp_path, catalog, text, *overrides)
    found = caught.value
    all_of_them = found.errors if isinstance(found, UserErrors) else (found,)
    return [str(error).replace(f"{tmp_path}/", "") for error in all_of_them]


def test_every_default_is_written_out(tmp_path: Path, catalog: Catalog) -> None:
    resolved = load(tmp_path, catalog, MINIMAL).resolved()
    assert resolved["server"]["method"] == {
        "name": "fedavg",
        "alpha": 0.5,
        "wait": None,
        "file": None,
        "lambda": 3,
    }
    assert resolved["server"]["schedule"] == {"name": "sync"}
    assert resolved["server"]["selection"] == {"name": "uniform"}
    assert resolved["devices"]["availability"] == {"name": "always"}
    assert resolved["devices"]["network"]["name"] == "static"
    assert resolved["training"]["optimizer"]["lr"] == 0.05
    assert resolved["task"]["name"] == "supervised"


def test_the_resolved_scenario_is_a_fixed_point_and_runs_from_anywhere(
    tmp_path: Path, catalog: Catalog
) -> None:
    text = MINIMAL.replace("{name: digits}", "{name: mnist, file: ../data, wait: 2min}")
    first = load(tmp_path, catalog, text + "devices: {trace: week}\n")
    elsewhere = tmp_path / "run"
    elsewhere.mkdir()
    again = load(elsewhere, catalog, first.resolved_yaml())
    assert again.scenario == first.scenario
    assert again.resolved_yaml() == first.resolved_yaml()
    assert first.scenario.devices.trace == tmp_path / "week"
    assert first.scenario.task.params.dataset.params.file == tmp_path.parent / "data"
    assert first.scenario.task.params.dataset.params.wait == 120.0


def test_a_trace_makes_availability_follow_it(tmp_path: Path, catalog: Catalog) -> None:
    def availability(text: str) -> str:
        return load(tmp_path, catalog, MINIMAL + text).scenario.devices.availability.name

    assert availability("") == "always"
    assert availability("devices: {trace: week}\n") == "trace"
    assert availability("devices: {trace: week, availability: {name: always}}\n") == "always"


def test_parts_may_leave_out_the_name_that_is_their_default(
    tmp_path: Path, catalog: Catalog
) -> None:
    text = MINIMAL + "devices: {compute: {alpha: 2}}\ntraining: {optimizer: {lr: 1e-3}}\n"
    scenario = load(tmp_path, catalog, text).scenario
    assert scenario.devices.compute.name == "trace"
    assert scenario.devices.compute.params.alpha == 2.0
    assert scenario.training.optimizer.name == "sgd"
    assert scenario.training.optimizer.params.lr == 0.001


def test_a_method_brings_its_schedule_unless_one_is_given(tmp_path: Path, catalog: Catalog) -> None:
    text = MINIMAL + "server: {method: {name: fedbuff}}\n"
    schedule = load(tmp_path, catalog, text).scenario.server.schedule
    assert (schedule.name, schedule.params.alpha) == ("buffered", 3.0)
    given = load(tmp_path, catalog, text, "server.schedule.name=sync").scenario.server.schedule
    assert given.name == "sync"


def test_a_section_whose_keys_are_commented_out_is_absent(tmp_path: Path, catalog: Catalog) -> None:
    text = MINIMAL + "training:\n  # local_steps: 3\ndevices:\nserver:\n"
    assert load(tmp_path, catalog, text).scenario == load(tmp_path, catalog, MINIMAL).scenario


def test_all_errors_of_a_file_are_reported_in_its_order(tmp_path: Path, catalog: Catalog) -> None:
    text = """\
nmae: x
seed: true
task:
  dataset: {name: digitz}
  partition: {name: dirichlet, alfa: 0.3, wait: 3 parsecs}
  model: 3
training: {optimizer: {name: sgf, lr: -1}, local_steps: 3.5, batch_size: .nan, device: gppu}
stop: {}
"""
    assert errors(tmp_path, catalog, text) == [
        "s.yaml:1:1: nmae: unknown key\n  did you mean 'name'? known keys: name, seed, task, training, devices, "
        "server, stop, evaluation, checkpoint_models, logging, sweep",
        "s.yaml:2:7: seed: must be an integer, not true",
        "s.yaml:4:19: task.dataset.name: there is no dataset named 'digitz'\n  did you mean 'digits'? known: digits, "
        "mnist, or file.py:ClassName",
        "s.yaml:5:32: task.partition.alfa: unknown key\n  did you mean 'alpha'? known keys: alpha, wait, file, lambda",
        "s.yaml:5:49: task.partition.wait: '3 parsecs' has no known unit of a duration: use one of ns, us, ms, s, min, "
        "h, d",
        "s.yaml:6:10: task.model: must be the name of a model, or a mapping of its name and parameters, not 3",
        "s.yaml:7:30: training.optimizer.name: there is no optimizer named 'sgf'\n  did you mean 'sgd'? known: "
        "adam, adamw, sgd, or file.py:ClassName",
        "s.yaml:7:57: training.local_steps: must be an integer, not 3.5",
        "s.yaml:7:74: training.batch_size: must be a finite number, not nan",
        "s.yaml:7:88: training.device: must be 'auto', 'cpu' or 'cuda', not 'gppu'",
        "s.yaml:8:7: stop: give at least one of simulated_time, rounds, dispatches and arrivals, so that the run ends",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "s.yaml: the scenario is empty"),
        ("# nothing\n", "s.yaml: the scenario is empty"),
        ("- a\n", "s.yaml: a scenario is a mapping of sections"),
        (
            MINIMAL.replace("{name: iid}", "{name: shards}"),
            "s.yaml:3:3: task.partition.size: is missing\n  How many.",
        ),
        (
            MINIMAL.replace("{name: iid}", "{}"),
            "s.yaml:3:3: task.partition.name: is missing",
        ),
        (
            "task: {name: quadratik}\nstop: {rounds: 1}\n",
            "s.yaml:1:14: task.name: there is no task named 'quadratik'\n  did you mean 'quadratic'? known: flower,",
        ),
        (
            MINIMAL + "server: {failure_detection: nevr}\n",
            "s.yaml:6:29: server.failure_detection: 'nevr' is not a duration: write a number and a unit, such as "
            "12min, 12h, 12d, or must be 'never'",
        ),
        (
            "task: {name: quadratic, curvatures: [[1, 2], [x, 3]]}\nstop: {rounds: 1}\n",
            "s.yaml:1:47: task.curvatures.1.0: must be a number, not 'x'",
        ),
        (
            MINIMAL + "training: {local_steps: 1, local_epochs: 2}\n",
            "s.yaml:6:11: training: give only one of local_steps",
        ),
        (
            MINIMAL + "name: has space\n",
            "s.yaml:6:7: name: 'has space' does not fit\n  Name of the run: letters",
        ),
        (
            MINIMAL + "name: ünïcode\n",
            "s.yaml:6:7: name: 'ünïcode' does not fit\n  Name of the run: letters a to z and A to Z, digits 0 to 9, ",
        ),
        (
            MINIMAL + "sweep: {zip: {seed: [1, 2], name: [a]}}\n",
            "s.yaml:6:8: sweep: the lists of zip must be of equal length; seed has 2, name has 1",
        ),
        (
            MINIMAL + "devices: {energy: {classes: {phone: {compute_w: 1, download_w: 1}}}}\n",
            "s.yaml:6:30: devices.energy.classes.phone.upload_w: is missing",
        ),
    ],
)
def test_one_error(tmp_path: Path, catalog: Catalog, text: str, expected: str) -> None:
    found = errors(tmp_path, catalog, text)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_a_part_of_the_users_own_is_found_beside_the_scenario(
    tmp_path: Path, catalog: Catalog
) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedsim.components import Component, Parameters\n\n"
        "class MineParams(Parameters):\n    alpha: float = 1.0\n\n"
        "class Mine(Component):\n    Params = MineParams\n"
    )
    text = MINIMAL.replace("{name: digits}", "{name: mine.py:Mine, alpha: 2}")
    loaded = load(tmp_path, catalog, text)
    dataset = loaded.scenario.task.params.dataset
    assert dataset.name == f"{tmp_path}/mine.py:Mine"
    assert dataset.type.__name__ == "Mine"
    assert dataset.params.alpha == 2.0
    assert dataset.where == f"{tmp_path}/s.yaml:2:12"
    assert dataset.user.file == tmp_path / "mine.py"
    assert dataset.user.digest == hashlib.sha256((tmp_path / "mine.py").read_bytes()).hexdigest()
    assert errors(tmp_path, catalog, text.replace("alpha", "alpa"))[0].startswith(
        "s.yaml:2:33: task.dataset.alpa: unknown key\n  did you mean 'alpha'?"
    )
    assert "it defines: Mine" in errors(tmp_path, catalog, text.replace(":Mine", ":Yours"))[0]
    assert "no such file" in errors(tmp_path, catalog, text.replace("mine.py", "yours.py"))[0]


def test_parts_are_looked_up_only_when_named(tmp_path: Path, catalog: Catalog) -> None:
    def never() -> None:
        raise AssertionError("a timing task needs no data set")

    catalog.kinds["dataset"] = type(catalog.kinds["dataset"])(never, never)
    text = "task: {name: timing, clients: 3}\nstop: {rounds: 1}\n"
    assert load(tmp_path, catalog, text).scenario.task.params.clients == 3


def test_a_scenario_from_python_is_left_unchanged(tmp_path: Path, catalog: Catalog) -> None:
    data = {"task": {"name": "timing", "clients": 3}, "stop": {"rounds": 1}}
    loaded = load_scenario_dict(data, tmp_path, catalog, ["task.clients=5"])
    assert loaded.scenario.task.params.clients == 5
    assert data == {"task": {"name": "timing", "clients": 3}, "stop": {"rounds": 1}}
    with pytest.raises(UserError, match=r"^scenario: task.clients: is missing"):
        load_scenario_dict({"task": {"name": "timing"}, "stop": {"rounds": 1}}, tmp_path, catalog)


@pytest.mark.parametrize(
    ("where", "located"),
    [
        ("stop.rounds", "s.yaml:5:16: stop.rounds: too few"),
        ("task.model", "s.yaml:4:10: task.model: too few"),
        ("server.schedule", "s.yaml: server.schedule: too few"),
        ("bundle week", "bundle week: too few"),
        (None, "too few"),
    ],
)
def test_errors_found_while_building_a_run_get_their_place(
    tmp_path: Path, catalog: Catalog, where: str | None, located: str
) -> None:
    loaded = load(tmp_path, catalog, MINIMAL)
    for raised in (
        UserError("too few", where=where, hint="more"),
        UserErrors([UserError("too few", where=where, hint="more")]),
    ):
        with pytest.raises(UserError) as caught, loaded.locating_errors():
            raise raised
        assert str(caught.value).replace(f"{tmp_path}/", "") == f"{located}\n  more"
