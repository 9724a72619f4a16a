"""``fedsim init`` writes projects that run, and bundled scenarios and traces work from any folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import fedsim
from fedsim import bundled
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario
from tests.docs.pages import blocks, commands, exit_code, working_in


@pytest.mark.parametrize("name", bundled.templates())
def test_the_commands_of_a_templates_readme_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "flower":
        pytest.importorskip("flwr", reason='needs Flower: pip install "fedsim-des[flower]"')
    if name == "lora":
        pytest.importorskip("peft", reason="needs the extra transformers")
        if "FEDSIM_DATA" not in os.environ:
            pytest.skip("needs Shakespeare's plays in $FEDSIM_DATA")
    assert exit_code(f"fedsim init {tmp_path} --template {name}") == 0
    scenario = YAML(typ="safe", pure=True).load((tmp_path / "scenario.yaml").read_text())
    monkeypatch.setenv("COLUMNS", "100")
    with working_in(tmp_path):
        for block in blocks(tmp_path / "README.md"):
            for command in commands(block):
                text = command.text.partition("  #")[0]
                if text.startswith("python "):
                    file = text.split()[1]
                    monkeypatch.setattr(sys, "argv", [file, "2"])  # steps of training, if it trains
                    monkeypatch.syspath_prepend(str(tmp_path))
                    exec(Path(file).read_text(), {"__name__": "__main__"})
                elif text.startswith("fedsim watch"):
                    continue  # It follows what another terminal runs.
                elif text.startswith("fedsim sweep"):
                    path = Path("scenario.yaml")
                    short = {**scenario, "stop": {"rounds": 2}}
                    YAML(typ="safe", pure=True).dump(short, path)
                    assert exit_code(text, "-j", "1") == 0
                else:
                    runs = text.startswith(("fedsim run", "fedsim flower"))
                    short_run = ("-s", "stop.rounds=2") if runs else ()
                    if runs and name == "lora":
                        few = ("-s", "training.local_steps=2", "-s", "task.dataset.stride=400")
                        short_run = (*short_run, *few)
                    assert exit_code(text, *short_run) == 0, text


def test_no_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("mine")
    assert exit_code(f"fedsim init {tmp_path}") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["scenario.yaml"]
    assert (tmp_path / "scenario.yaml").read_text() == "mine"


def test_an_unknown_template_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'sweep'"):
        bundled.template_files("sweeps")


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


def test_an_earlier_name_of_a_bundled_scenario_is_accepted_with_a_note(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert load_scenario("partial_personalisation").scenario.name == "partial-personalization"
    assert "is now named 'partial_personalization'" in caplog.text


def test_bundled_scenarios_are_scenarios() -> None:
    known = bundled.scenarios()
    assert "quickstart" in known
    assert "papers/fedsum/trace_small" in known
    assert not any(name.endswith("reference") for name in known)


def test_the_comment_of_a_template_names_the_file_it_is_in() -> None:
    for name in bundled.templates():
        assert b"scenarios/" not in bundled.template_files(name)["scenario.yaml"]


@pytest.mark.parametrize("trace", ["phones_week", "builtin:phone_week", "builtin:phones_week_"])
def test_a_built_in_trace_is_suggested(trace: str, tmp_path: Path) -> None:
    with working_in(tmp_path), pytest.raises(UserError) as caught:
        fedsim.run("quickstart", "out", overrides=[f"devices.trace={trace}"])
    hint = str(caught.value.hint)
    assert "did you mean 'builtin:phones_week'? built in: builtin:desktops_week, " in hint


def test_unknown_scenarios_and_traces_are_refused_with_what_there_is(tmp_path: Path) -> None:
    with working_in(tmp_path):
        with pytest.raises(UserError, match="did you mean 'quickstart'"):
            load_scenario("quickstrat")
        with pytest.raises(UserError, match="is built in: quickstart"):
            load_scenario("scenarios/quickstart.yaml")
        assert exit_code("fedsim traces inspect builtin:phones_weak") == 2
        assert exit_code("fedsim traces validate builtin:phones_week") == 0
