"""Parts in every form in which a scenario may give them."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.parts.component import Component, Parameters
from fedsim.scenario.loading import load_part, load_scenario, load_scenario_dict
from tests.scenario.conftest import Mixing

pytestmark = pytest.mark.usefixtures("catalog")

TASK = {"dataset": "digits", "partition": "iid", "model": "mlp"}


class MyMixing(Mixing):
    """Parameters of a class in this module."""


class MyMethod(Component):
    """A method of a test."""

    Params = MyMixing

    def __init__(self, params: MyMixing) -> None:
        self.params = params


def scenario(tmp_path: Path, **server: Any) -> Any:
    data = {"task": TASK, "server": server, "stop": {"rounds": 1}}
    return load_scenario_dict(data, tmp_path).scenario


@pytest.mark.parametrize("written", ["fedbuff", {"name": "fedbuff"}])
def test_a_name_stands_for_a_part(tmp_path: Path, written: Any) -> None:
    server = scenario(tmp_path, method=written).server
    assert server.method.name == "fedbuff"
    assert server.schedule.name == "buffered"
    assert server.selection.name == "uniform"


def test_a_short_form_takes_parameters_from_outside(tmp_path: Path) -> None:
    data = {"task": TASK, "server": {"method": "fedavg"}, "stop": {"rounds": 1}}
    loaded = load_scenario_dict(data, tmp_path, ["server.method.alpha=2"])
    method = loaded.scenario.server.method
    assert (method.name, method.params.alpha) == ("fedavg", 2.0)


@pytest.mark.parametrize(
    ("given", "alpha"),
    [
        (MyMethod, 0.5),
        ({"name": MyMethod, "alpha": 3}, 3.0),
        (MyMethod(MyMixing(alpha=4.0)), 4.0),
    ],
)
def test_classes_and_instances_are_parts(tmp_path: Path, given: Any, alpha: float) -> None:
    method = scenario(tmp_path, method=given).server.method
    assert method.type is MyMethod
    assert method.params.alpha == alpha
    assert method.name == f"{Path(__file__).resolve()}:MyMethod"
    again = load_part("method", method.data(), tmp_path)
    assert again.params.alpha == alpha


def test_a_parameter_of_a_class_that_declares_none(tmp_path: Path) -> None:
    class Bare(MyMethod):
        Params = Parameters

    with pytest.raises(UserError, match=r"server\.method\.momentum: unknown key") as caught:
        scenario(tmp_path, method={"name": Bare, "momentum": 0.9})
    assert str(caught.value.hint).startswith("this part has no parameters; those of a class of")


NO_METHOD = "server.method: must be the name of a method, or a mapping of its name and parameters"


def test_a_class_that_ships_with_fedsim_keeps_its_name(tmp_path: Path) -> None:
    shipped = CATALOG.kinds["method"].registry()["fedbuff"]
    assert scenario(tmp_path, method=shipped).server.method.name == "fedbuff"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, f"{NO_METHOD}, not 3"),
        (MyMixing(alpha=2), f"{NO_METHOD}, not an object of type MyMixing\n  give a class"),
        (np.ones(2), f"{NO_METHOD}, not an object of type ndarray\n  give a class"),
        ({"name": 3}, "server.method.name: must be text, not 3"),
        (int, "server.method: int does not derive from Component\n  derive it from fedsim.parts"),
        ({"name": MyMethod, "alpha": 0}, "server.method.alpha: must be greater than 0"),
        ({"name": MyMethod, "beta": 0}, "server.method.beta: unknown key"),
        (
            "mine.py",
            "server.method: there is no method named 'mine.py'\n  name the class in the fi",
        ),
        ("fedavgg", "server.method: there is no method named 'fedavgg'\n  did you mean 'fedavg'?"),
    ],
)
def test_mistakes_in_parts(tmp_path: Path, given: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        scenario(tmp_path, method=given)
    assert str(caught.value).startswith(f"scenario: {message}")


def test_described_user_code_is_not_imported(tmp_path: Path) -> None:
    code = tmp_path / "untouched.py"
    code.write_text("raise AssertionError('imported')\n")
    file = tmp_path / "s.yaml"
    file.write_text(
        "task: {dataset: digits, partition: iid, model: mlp}\n"
        "server: {method: {name: untouched.py:Mine, mu: 0.5}}\nstop: {rounds: 1}\n"
    )
    described = load_scenario(file, user_code="describe").scenario
    method = described.server.method
    assert (method.component, method.params) == (None, None)
    assert method.user is not None
    assert method.user.file == code
    assert method.data() == {"name": f"{code}:Mine", "mu": 0.5}
    assert described.server.schedule.data() is None, "only the class knows its companions"
    assert described.server.selection.data() is None
    assert not [name for name in sys.modules if name.startswith("fedsim_user_untouched")]
    with pytest.raises(UserError, match=r"s.yaml:2:18: .*Mine was not imported"):
        _ = method.type
    with pytest.raises(UserError, match="imported"):
        load_scenario(file)


def test_a_path_may_begin_in_the_home_folder(tmp_path: Path) -> None:
    """That all other paths become absolute is tested with every part (tests/parts/test_catalog.py)."""
    written = {"name": "mnist", "file": "~/c.csv"}
    assert load_part("dataset", written, tmp_path).params.file == Path.home() / "c.csv"
