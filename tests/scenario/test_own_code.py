"""An exception in a user's own file is reported with its line there, as the user's."""

import linecache
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.errors import UserError
from tests.composition.interrupting import interrupted
from tests.composition.worlds import digits
from tests.methods.own_method import run_with

RULES = """\
from fedsim.scheduling.schedules.sync import Sync


class Mine(Sync):
    name = "mine"

    def run(self):
        yield from self.rounds()

    def rounds(self):
        yield from super().run()
"""
CHOICE = """\
from fedsim.scheduling.base import Selection


class First(Selection):
    name = "first"

    def draw(self, count):
        return self.first(count)

    def first(self, count):
        return self.available()[:cuont].tolist()
"""


def run_with_parts(folder: Path, rules: str, choice: str) -> str:
    """The output of a command that fails with these parts in the user's files; no file for an empty text."""
    options = []
    for section, name, text in (("schedule", "Mine", rules), ("selection", "First", choice)):
        (folder / f"{section}.py").write_text(text, encoding="utf-8")
        options += ["-s", f"server.{section}.name={section}.py:{name}"] if text else []
    result = run_with(folder, options=options)
    assert result.exit_code == 2
    assert "fedsim/cli" not in result.output
    return result.output


def test_an_exception_in_ones_own_file_is_no_defect_of_fedsim(tmp_path: Path) -> None:
    result = run_with(tmp_path, "trained.model - start", "trained.modle - start")
    assert result.exit_code == 2
    assert "has no attribute 'modle'" in result.stderr
    *_, error, advice = result.stderr.splitlines()
    assert error == f"error: {tmp_path}/mine.py:13: your own code failed with the error above"
    assert advice.startswith("after fixing the cause, run the same command again: fedsim")


IN_CHOICE, IN_RULES = (
    [(f"{name}.py", line) for line in ("8", "11")] for name in ("selection", "schedule")
)


@pytest.mark.parametrize(
    ("rules", "choice", "places"),
    [
        # Neither the schedule's file nor fedsim's functions between the two have anything to do with it.
        (RULES, CHOICE, IN_CHOICE),
        # The error is raised below the user's file.
        (RULES.replace("from super().run()", "self.server.call_at()"), "", IN_RULES),
        ("", CHOICE.replace("[:cuont]", "[: object()]"), IN_CHOICE),
    ],
)
def test_an_exception_is_shown_with_the_lines_of_ones_own_file_alone(
    tmp_path: Path, rules: str, choice: str, places: list[tuple[str, str]]
) -> None:
    output = run_with_parts(tmp_path, rules, choice)
    assert re.findall(r'File ".*/(\S+)", line (\d+), in', output) == places
    file, line = places[-1]
    assert f"error: {tmp_path}/{file}:{line}: your own code failed with the error above\n" in output


def test_a_sweep_tells_an_exception_in_ones_own_file_as_the_users(tmp_path: Path) -> None:
    result = run_with(tmp_path, "trained.model - start", "trained.modle - start", "sweep")
    assert result.exit_code == 2
    assert f"{tmp_path}/mine.py:13: AttributeError" in result.output + result.stderr


CELL = '''
class Doubled(FedAvg):
    """FedAvg that moves twice as far."""

    def aggregate(self, server, updates):
        made = super().aggregate(server, updates)
        return {**made, "model": server["model"] + 2 * (made["model"] - server["model"])}
'''


def notebook_class(source: str, name: str, monkeypatch: pytest.MonkeyPatch, **names: Any) -> Any:
    """A class as a notebook defines it: in ``__main__``, with its source in the line cache alone."""
    module = types.ModuleType("__main__")
    vars(module).update(names)
    linecache.cache["<cell>"] = (len(source), None, source.splitlines(keepends=True), "<cell>")
    exec(compile(source, "<cell>", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "__main__", module)
    return vars(module)[name]


def scenario(method: Any) -> dict[str, Any]:
    network = {"down": "1Mbps", "up": "1Mbps", "latency": 0}
    return {
        "task": {"name": "quadratic", "centers": [4.0, 4.0]},
        "training": {"optimizer": {"lr": 0.5}, "local_steps": 1, "dtype": "float64"},
        "devices": {"compute": {"name": "values", "step": "1s"}, "network": network},
        "server": {"method": method},
        "stop": {"rounds": 1},
    }


def test_a_class_of_a_notebook_runs_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedsim.methods.fedavg import FedAvg

    doubled = notebook_class(CELL, "Doubled", monkeypatch, FedAvg=FedAvg)
    run = fedsim.run(scenario(doubled), tmp_path / "run")
    assert run.metrics["loss"].tolist() == [8.0, 0.0], "half of the way, doubled"
    assert run.scenario["server"]["method"]["name"] == "python_parts/Doubled.py:Doubled"
    assert (run.path / "python_parts" / "Doubled.py").read_text().endswith(CELL.lstrip())
    interrupted(tmp_path / "again", scenario(doubled))
    again = fedsim.resume(tmp_path / "again")
    assert again.metrics["loss"].tolist() == [8.0, 0.0]


def test_a_class_that_cannot_be_imported_again_is_refused_politely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedsim.methods.fedavg import FedAvg

    doubled = notebook_class(CELL, "Doubled", monkeypatch, FedAvg=FedAvg)
    linecache.cache.pop("<cell>")
    interrupted(tmp_path / "run", scenario(doubled))
    user_code = fedsim.load(tmp_path / "run").info["user_code"]
    assert user_code == {"python_parts/Doubled.py:Doubled": None}, "there is no source to keep"
    with pytest.raises(UserError, match=r"(?s)defined in Python.*no such file.*put the class into"):
        fedsim.resume(tmp_path / "run")


def test_a_function_of_a_notebook_is_a_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def mean_size(outputs, labels, times=1.0):\n    return times * outputs.abs().mean().item()\n"
    mean_size = notebook_class(source, "mean_size", monkeypatch)
    mean_size.higher_is_better = False
    given = digits(stop={"rounds": 2}, sweep={"seeds": [3]})
    given["evaluation"] = {"every_rounds": 2, "metrics": [{"name": mean_size, "times": 2}]}
    (run,) = fedsim.sweep(given, tmp_path / "sweep", jobs=1).runs
    assert run.metrics["mean_size"].iloc[-1] > 0
    assert not run.metric_definition("mean_size").higher_is_better
    assert run.scenario["evaluation"]["metrics"] == [
        {"name": f"{tmp_path}/sweep/python_parts/mean_size.py:mean_size", "times": 2}
    ]
    assert len(fedsim.sweep(given, tmp_path / "sweep", jobs=1).runs) == 1  # The same run.


def test_functions_that_are_no_parts() -> None:
    for section, message in (
        ({"server": {"method": len}}, "must be the name of a method"),
        (
            {"server": {"method": scenario}},
            "scenario is a function, but the method must be a class",
        ),
        ({"evaluation": {"metrics": [lambda a, b: 1.0]}}, "a lambda has no name"),
    ):
        with pytest.raises(UserError, match=message):
            fedsim.read_scenario(digits(**section))


WITH_HELPERS = """
FACTOR = 2
NOT_NEEDED = object()

class ScaledParams(FedAvgParams):
    power: int = 1

def scale(params):
    return FACTOR**params.power

class Scaled(FedAvg):
    Params = ScaledParams
    def aggregate(self, server, updates):
        moved = super().aggregate(server, updates)["model"]
        return {"model": server["model"] + scale(self.params) * (moved - server["model"])}
"""


def test_what_a_class_of_a_notebook_needs_is_kept_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sweep, each run imports the file."""
    from fedsim.methods.fedavg import FedAvg, FedAvgParams

    names = {"FedAvg": FedAvg, "FedAvgParams": FedAvgParams}
    scaled = notebook_class(WITH_HELPERS, "Scaled", monkeypatch, **names)
    world = {**scenario({"name": scaled, "power": 1}), "sweep": {"seeds": [0]}}
    sweep = fedsim.sweep(world, tmp_path / "sweep", jobs=1)
    assert sweep.failures == {}
    [run] = sweep.runs
    assert run.metrics["loss"].tolist() == [8.0, 0.0], "half of the way, doubled"
    source = (sweep.path / "python_parts" / "Scaled.py").read_text()
    assert "FACTOR = 2\n" in source
    assert "NOT_NEEDED" not in source


def test_a_selection_is_built_with_the_seed_of_its_run(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from fedsim.scheduling.base import CohortParams, Selection\n"
        "class Fixed(Selection):\n"
        "    name, Params = 'fixed', CohortParams\n"
        "    def __init__(self, params, server):\n"
        "        super().__init__(params, server)\n"
        "        self.order = np.random.permutation(server.clients).tolist()\n"
        "    def draw(self, count):\n"
        "        return self.order[:count]\n",
        encoding="utf-8",
    )
    scenario = digits(stop={"rounds": 1})
    scenario["server"]["selection"] = {"name": f"{tmp_path}/mine.py:Fixed", "cohort": 3}
    for seed in (0, 5):
        run = fedsim.run({**scenario, "seed": seed}, tmp_path / f"{seed}", timing_only=True)
        expected = np.random.RandomState(seed).permutation(12)
        drawn = run.dispatches["client_id"].tolist()
        assert drawn == expected[: len(drawn)].tolist()
