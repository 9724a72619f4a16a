"""Scenarios, templates and traces that come with fedsim."""

from pathlib import Path

import pytest

import fedsim
from fedsim import bundled
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario
from fedsim.traces.bundle import TraceBundle
from tests.docs.pages import exit_code, working_in


def test_a_bundled_scenario_runs_by_name_from_any_folder(tmp_path: Path) -> None:
    with working_in(tmp_path):
        assert exit_code("fedsim run quickstart -s stop.rounds=1") == 0
        assert (tmp_path / "runs" / "quickstart-seed0" / "report.html").exists()


@pytest.mark.parametrize("file", ["quickstart", "quickstart.yaml"])
def test_a_file_of_the_user_wins_over_a_bundled_scenario(file: str, tmp_path: Path) -> None:
    text = bundled.scenarios()["quickstart"].read_text().replace("name: quickstart", "name: mine")
    (tmp_path / file).write_text(text)
    with working_in(tmp_path):
        assert load_scenario("quickstart").scenario.name == "mine"


def test_a_folder_does_not_hide_a_bundled_scenario(tmp_path: Path) -> None:
    (tmp_path / "quickstart").mkdir()
    with working_in(tmp_path):
        assert load_scenario("quickstart").scenario.name == "quickstart"


def test_bundled_scenarios_are_scenarios() -> None:
    known = bundled.scenarios()
    assert "quickstart" in known
    assert "papers/fedsum/trace_small" in known
    assert not any(name.endswith("reference") for name in known)


def test_the_comment_of_a_template_names_the_file_it_is_in() -> None:
    for name in bundled.templates():
        assert b"scenarios/" not in bundled.template_files(name)["scenario.yaml"]


ALL_TRACES = "built in: builtin:azure_vms, builtin:countries, builtin:desktops_week, "


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ("phones_week", "did you mean 'builtin:phones_week'?"),
        ("builtin:phone_week", "did you mean 'builtin:phones_week'?"),
        ("builtin:phones_week_", "did you mean 'builtin:phones_week'?"),
        ("mars", ALL_TRACES),
    ],
)
def test_a_built_in_trace_is_suggested(trace: str, expected: str, tmp_path: Path) -> None:
    with working_in(tmp_path), pytest.raises(UserError) as caught:
        fedsim.run("quickstart", "out", overrides=[f"devices.trace={trace}"])
    hint = str(caught.value.hint)
    assert hint.startswith(expected)
    assert ("fedsim traces inspect" in hint) == (expected == ALL_TRACES)


def test_unknown_scenarios_and_traces_are_refused_with_what_there_is(tmp_path: Path) -> None:
    with working_in(tmp_path):
        with pytest.raises(UserError, match="did you mean 'quickstart'"):
            load_scenario("quickstrat")
        with pytest.raises(UserError, match=r"^builtin:phones_weak: no such trace bundle\n"):
            TraceBundle.read(bundled.resolved("builtin:phones_weak"))
        assert exit_code("fedsim traces validate builtin:phones_week") == 0
