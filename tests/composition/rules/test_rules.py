"""The tables of rules: names, documentation, and how rules are ignored."""

from pathlib import Path

import pytest

from fedsim.api import read_scenario
from fedsim.composition.build import check_scenario as check
from fedsim.composition.rules.finished import documentation
from fedsim.errors import UserError
from tests.cli.invoking import assert_refused, invoke

SCENARIO = """\
task: {name: timing, clients: 3}
devices:
  compute: {name: values, step: 1s}
  network: {down: 1Mbps, up: 1Mbps, latency: 40}
stop: {rounds: 1}
"""


@pytest.fixture
def far(tmp_path: Path) -> Path:
    (tmp_path / "far.yaml").write_text(SCENARIO)
    return tmp_path / "far.yaml"


def test_every_rule_has_a_sentence_and_a_name_of_words() -> None:
    for name, text in documentation().items():
        assert text.partition("\n")[0].endswith("."), name
        assert name == name.lower()
        assert "_" not in name


def test_a_warning_ends_with_its_rule_and_has_the_place_in_the_file(far: Path) -> None:
    (warning,) = check(read_scenario(far))
    assert str(warning).startswith(f"{far}:4:12: devices.network: the latency of 3 of 3 clients")
    assert str(warning).splitlines()[0].endswith(" [long-latency]")


def test_a_rule_is_ignored_by_the_scenario_or_the_command(far: Path, tmp_path: Path) -> None:
    assert "long-latency" in invoke("scenario", "check", far).stdout
    ignored = invoke("scenario", "check", far, "--ignore", "long-latency")
    assert "long-latency" not in ignored.stdout
    run = invoke("run", far, "-o", tmp_path / "run", "--ignore", "long-latency")
    assert "long-latency" not in run.stderr
    assert "ignore: [long-latency]" in (tmp_path / "run" / "scenario.yaml").read_text()
    far.write_text(SCENARIO + "ignore: [long-latency]\n")
    assert check(read_scenario(far)) == []
    # The option adds to the list of the scenario.
    both = read_scenario(far).ignoring(["short-run", "long-latency"])
    assert both.scenario.ignore == ["long-latency", "short-run"]


def test_an_unknown_rule_is_refused_where_it_is_named(far: Path) -> None:
    assert_refused(
        invoke("scenario", "check", far, "--ignore", "long_latency"),
        "option --ignore",
        "there is no rule 'long_latency'",
        "did you mean 'long-latency'?",
    )
    far.write_text(SCENARIO + "ignore: [long-latency, nothing]\n")
    with pytest.raises(UserError, match=r"far.yaml:6:\d+: ignore.1: there is no rule 'nothing'"):
        check(read_scenario(far))


def test_rules_are_listed_and_described() -> None:
    listed = invoke("describe", "rules").stdout
    assert [line.split()[0] for line in listed.splitlines()] == list(documentation())
    described = invoke("describe", "slow-clients").stdout
    assert described.startswith("slow-clients (rule)\nMore than a tenth of the clients")
    assert "ignore: [slow-clients]" in described
