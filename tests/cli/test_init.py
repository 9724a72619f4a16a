"""``fedsim init`` writes projects that run, and bundled scenarios and traces work from any folder."""

import os
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from fedsim import bundled
from fedsim.errors import UserError
from tests.composition.test_run import file_size_limit
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


@pytest.mark.parametrize("name", ["pyproject.toml", "digits_app"])
def test_nothing_is_written_through_a_link(name: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / name).symlink_to(tmp_path / "elsewhere" / name.rpartition(".")[0])
    assert exit_code(f"fedsim init {tmp_path / 'project'} --template flower") == 2
    assert not [*(tmp_path / "elsewhere").iterdir()]
    assert len([*(tmp_path / "project").iterdir()]) == 1


@pytest.mark.parametrize("folder", ["new/deep", "."])
def test_a_project_that_cannot_be_written_leaves_nothing(folder: str, tmp_path: Path) -> None:
    """The disk takes two files and a part of the third; what was there before stays."""
    (tmp_path / "mine").write_text("mine")
    with file_size_limit(1100):
        assert exit_code(f"fedsim init {tmp_path / folder} --template flower") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert exit_code(f"fedsim init {tmp_path / folder} --template flower") == 0


def test_an_unknown_template_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'sweep'"):
        bundled.template_files("sweeps")
