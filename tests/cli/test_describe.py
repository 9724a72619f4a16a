"""``fedsim describe`` explains every part of every kind, with an example that a scenario accepts."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from fedsim.cli.describe import describe
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.loading import load_part
from tests.cli.invoking import assert_refused, invoke
from tests.docs.pages import exit_code, fedsim, working_in
from tests.lines import rows

PARTS = [(kind, name) for kind, entry in CATALOG.kinds.items() for name in entry.registry()]


@pytest.mark.parametrize(("kind", "name"), PARTS, ids=lambda value: value)
def test_every_part_is_described_and_its_example_is_accepted(
    kind: str, name: str, tmp_path: Path
) -> None:
    [described] = describe(name, kind)
    assert described["description"]
    assert all(parameter["meaning"] for parameter in described["parameters"])
    if kind == "importer":
        assert described["example"].startswith(f"fedsim traces import {name} FILE...")
        return
    value = YAML(typ="safe", pure=True).load(described["example"])
    for key in described["written_in"].split("."):
        value = value[key]
    [part] = value if isinstance(value, list) else [value]
    if kind == "task":
        assert part["name"] == name
    else:
        assert load_part(kind, part, tmp_path).name == name


def test_the_reference_of_a_part_is_printed_as_bibtex() -> None:
    assert invoke("describe", "fedprox", "--bibtex").stdout.startswith(
        "@inproceedings{li2020fedprox,"
    )
    without = invoke("describe", "sgd", "--bibtex")
    assert (without.stdout, without.stderr) == ("", "sgd (optimizer) has no paper to cite\n")


def test_a_name_of_several_kinds_is_described_for_each() -> None:
    kinds = [one["kind"] for one in json.loads(fedsim("fedsim describe trace --json"))]
    assert kinds == ["compute", "availability"]
    [one] = json.loads(fedsim("fedsim describe trace --kind availability --json"))
    assert one["kind"] == "availability"
    kinds = [one["kind"] for one in json.loads(fedsim("fedsim describe file --json"))]
    assert kinds == ["partition", "topology of shared"]


UNKNOWN = """
fedprix | did you mean 'fedprox'?
sync --kind shedule | did you mean 'schedule'?
training.batchsize | did you mean 'training.batch_size'?
training.lr | did you mean 'training.optimizer.lr'?
server.batch_size | did you mean 'evaluation.batch_size' or 'training.batch_size'?
server.schedule.deadline | 'deadline' is a parameter of sync | fedsim describe
"""


@pytest.mark.parametrize("row", rows(UNKNOWN), ids=" ".join)
def test_an_unknown_name_suggests_the_nearest(row: list[str]) -> None:
    assert_refused(invoke("describe", *row[0].split()), *row[1:])


@pytest.mark.parametrize(
    ("name", "section", "keys"),
    [
        ("checkpoint_models", "", ["checkpoint_models.every"]),
        ("training.batch_size", "training", ["training.batch_size"]),
        ("task.model.inputs", "task.model", ["inputs"]),
    ],
)
def test_sections_and_keys_of_a_scenario_are_described(
    name: str, section: str, keys: list[str]
) -> None:
    [described] = describe(name)
    assert described["description"]
    assert described["written_in"] == section
    assert [row["key"] for row in described["parameters"]] == keys
    assert f"{keys[0]}: " in invoke("describe", name).stdout


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(
        'open("ran", "w").close()\n'
        "from fedsim.scheduling.base import CohortParams, Selection\n"
        'class First(Selection):\n    """The first clients."""\n    Params = CohortParams\n'
        "    def draw(self, count):\n        return self.available()[:count].tolist()\n"
        "from fedsim.scheduling.schedules.sync import Sync\n"
        "from fedsim.units import Duration, Rate, Size\n"
        "class Plain(First): pass\n"
        "class SlowParams(Sync.Params):\n"
        "    nap: Duration = 90.0\n    cap: Rate = 2e6\n    packet: Size = 1500\n    most: Size = 2**31\n"
        'class Slow(Sync):\n    """Slow rounds."""\n    Params = SlowParams\n'
        'def top(outputs, labels, above=0.9):\n    """A share above ``above``."""\n    return 1.0\n'
        'def net(classes):\n    """A network."""\n'
    )
    return tmp_path


def test_a_part_of_the_users_is_described_after_its_file_was_named(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with working_in(mine):
        assert exit_code("fedsim describe mine.py:First") == 0
        printed = capsys.readouterr()
        assert "running the code in" in printed.err
        assert "First (selection)" in printed.out
        assert exit_code("fedsim describe mine.py:Plain") == 0
        assert "first clients" not in capsys.readouterr().out, "the description of another class"
        assert exit_code("fedsim describe mine.py:top") == 0
        of_function = capsys.readouterr().out
        assert "top (metric)\nA share above `above`.\n" in of_function
        assert "  above: number, default 0.9\n" in of_function
        assert exit_code("fedsim describe mine.py:net") == 0
        assert "net (model)" in capsys.readouterr().out, "no metric, by its arguments"
        assert exit_code("fedsim describe mine.py:Slow") == 0
        printed = capsys.readouterr()
    for words in ("pause: duration, default 0s", "nap: duration, default 90s"):
        assert words in printed.out, "the parameters of Sync.Params, and those of the file"
    assert 'name: "mine.py:Slow", nap: 90s, cap: 2Mbps' in printed.out, "its own come first"
    for words in ("rate, default 2Mbps", "size, default 1500B", "size, default 2GiB"):
        assert words in printed.out


@pytest.mark.parametrize(
    ("part", "message", "hint"),
    [
        ("own.py:Unfinished", "lacks aggregate", "define aggregate in the class"),
        ("own.py:Plain", "it is not a part of a scenario", "or fedsim.learning.metrics.Metric or "),
    ],
)
def test_a_class_that_is_not_a_complete_part_says_what_to_write(
    part: str, message: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(
        "from fedsim.methods.base import Method\nclass Plain: pass\nclass Unfinished(Method): pass\n"
    )
    with working_in(tmp_path):
        assert_refused(invoke("describe", part), message, hint)


@pytest.mark.parametrize("name", ["model", "task.model"])
def test_the_parts_of_a_kind_are_listed(name: str) -> None:
    result = invoke("describe", name)
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == sorted(
        CATALOG.parts("model")
    )
    assert "fedsim describe inputs" in result.stderr
    assert set(json.loads(invoke("describe", name, "--json").stdout)) == set(CATALOG.parts("model"))


NEEDS = """
fedawe | a synchronous schedule: clients wait for the model that contains their update
fednova | sgd: the distance that local steps cover along a gradient is known only for
compass | all clients all the time (no selection)
trace --kind availability | a trace bundle with the table availability (devices.trace)
shards | a data set with classes
"""


def test_what_a_part_needs_is_said() -> None:
    for part, need in rows(NEEDS):
        assert f"\n  {need}" in invoke("describe", *part.split()).stdout
    assert "\nneeds\n" not in invoke("describe", "flash").stdout


def test_without_a_part_the_kinds_are_listed() -> None:
    listed = json.loads(invoke("describe", "--json").stdout)
    assert list(listed) == list(CATALOG.kinds)
    assert listed["optimizer"] == "adam, adamw and sgd"


def test_methods_are_listed_and_described() -> None:
    assert "fedavg" in json.loads(invoke("describe", "method", "--json").output)
    (shown,) = json.loads(invoke("describe", "fedavg", "--json").output)
    assert shown["sends_down"] == ["model (P)"]
    assert shown["sends_up"] == ["delta (P)"]
    assert shown["client_keeps"] == []
    assert "sync" in shown["schedules"]
    assert "McMahan" in shown["paper"]
    keys = {parameter["key"] for parameter in shown["parameters"]}
    assert keys == {"weights", "server_lr", "partial"}
    assert "sends up" in invoke("describe", "fedavg").output
    (shown,) = json.loads(invoke("describe", "fedlga", "--json").output)
    assert shown["title"] == "FedLGA"
