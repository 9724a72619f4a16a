"""A scenario from a file or from Python: its names, its parts and the places of its mistakes."""

import hashlib
from pathlib import Path

import pytest

from fedsim.errors import UserError, UserErrors
from fedsim.parts.catalog import CATALOG, Kind
from fedsim.scenario.loading import load_scenario, load_scenario_dict
from tests.scenario.minimal import MINIMAL, errors, load

pytestmark = pytest.mark.usefixtures("catalog")


def test_the_resolved_scenario_is_a_fixed_point_and_runs_from_anywhere(tmp_path: Path) -> None:
    text = MINIMAL.replace("{name: digits}", "{name: mnist, file: ../data, wait: 2min}")
    first = load(tmp_path, text + "devices: {trace: week}\n")
    elsewhere = tmp_path / "run"
    elsewhere.mkdir()
    again = load(elsewhere, first.resolved_yaml())
    assert again.scenario == first.scenario
    assert again.resolved_yaml() == first.resolved_yaml()
    assert first.scenario.devices.trace == tmp_path / "week"
    assert first.scenario.task.params.dataset.params.file == tmp_path.parent / "data"
    assert first.scenario.task.params.dataset.params.wait == 120.0


def test_a_part_of_the_users_own_is_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedsim.parts.component import Component, Parameters\n\n"
        "class MineParams(Parameters):\n    alpha: float = 1.0\n\n"
        "class Mine(Component):\n    Params = MineParams\n"
    )
    text = MINIMAL.replace("{name: digits}", "{name: mine.py:Mine, alpha: 2}")
    loaded = load(tmp_path, text)
    dataset = loaded.scenario.task.params.dataset
    assert dataset.name == f"{tmp_path}/mine.py:Mine"
    assert dataset.type.__name__ == "Mine"
    assert dataset.params.alpha == 2.0
    assert dataset.where == f"{tmp_path}/s.yaml:2:12"
    assert dataset.user.file == tmp_path / "mine.py"
    assert dataset.user.digest == hashlib.sha256((tmp_path / "mine.py").read_bytes()).hexdigest()
    assert errors(tmp_path, text.replace("alpha", "alpa"))[0].startswith(
        "s.yaml:2:33: task.dataset.alpa: unknown key\n  did you mean 'alpha'?"
    )
    assert "it defines: Mine" in errors(tmp_path, text.replace(":Mine", ":Yours"))[0]
    assert "no such file" in errors(tmp_path, text.replace("mine.py", "yours.py"))[0]


FILES = {"mine.v2.yaml": "mine.v2", "_my scénario (2).yaml": "my-scénario-2", "u\u0308.yaml": "ü"}


@pytest.mark.parametrize(("file", "name"), [*FILES.items(), ("?.yaml", "scenario")])
def test_a_scenario_without_a_name_has_that_of_its_file(
    file: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.write_text(MINIMAL)
    loaded = load_scenario(path)
    assert loaded.scenario.name == loaded.changed(["seed=3"]).scenario.name == name
    assert load_scenario(path, ["name=other"]).scenario.name == "other"


@pytest.mark.parametrize(
    ("name", "fix"), [("a b/c", "\n  write a-b-c"), ("-ü", "\n  write ü"), ("", ""), ("..", "")]
)
def test_a_name_can_be_that_of_a_folder(name: str, fix: str, tmp_path: Path) -> None:
    (message,) = errors(tmp_path, f"name: '{name}'\n{MINIMAL}")
    assert message.startswith(f"s.yaml:1:7: name: '{name}' is not a name of letters")
    assert message.endswith(f"underscores{fix}")


def test_a_scenario_from_python_is_left_unchanged(tmp_path: Path) -> None:
    def never() -> None:
        raise AssertionError("a timing task needs no data set")

    CATALOG.kinds["dataset"] = Kind(never, never)
    data = {"task": {"name": "timing", "clients": 3}, "stop": {"rounds": 1}}
    loaded = load_scenario_dict(data, tmp_path, ["task.clients=5"])
    assert loaded.scenario.task.params.clients == 5
    assert data["task"] == {"name": "timing", "clients": 3}
    with pytest.raises(UserError, match=r"^scenario: task.clients: is missing"):
        load_scenario_dict({**data, "task": {"name": "timing"}}, tmp_path)


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
    tmp_path: Path, where: str | None, located: str
) -> None:
    loaded = load(tmp_path, MINIMAL)
    for raised in (
        UserError("too few", where=where, hint="more"),
        UserErrors([UserError("too few", where=where, hint="more")]),
    ):
        with pytest.raises(UserError) as caught, loaded.locating_errors():
            raise raised
        assert str(caught.value).replace(f"{tmp_path}/", "") == f"{located}\n  more"
