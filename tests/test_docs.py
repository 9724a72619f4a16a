"""The documentation tells the truth: generated pages are up to date, examples load."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario


@pytest.fixture(scope="module")
def generated(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference pages as a fresh process writes them: click remembers the help options of commands it has run."""
    folder = tmp_path_factory.mktemp("reference")
    command = [sys.executable, str(checkout / "docs" / "generate.py"), str(folder)]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.parametrize(
    "name", ["scenario.md", "methods.md", "commands.md", "python.md", "tables.md"]
)
def test_reference_pages_are_up_to_date(checkout: Path, generated: Path, name: str) -> None:
    committed = (checkout / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert committed == (generated / name).read_text(encoding="utf-8"), (
        "run: python docs/generate.py"
    )


def test_the_reference_of_python_names_what_the_pages_import(checkout: Path) -> None:
    docs = checkout / "docs"
    named = re.findall(
        r"`(fedsim[\w.]+)`", (docs / "reference" / "python.md").read_text(encoding="utf-8")
    )
    for page in docs.glob("**/*.md"):
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(r"^from (fedsim[\w.]*) import (.+)$", text, re.MULTILINE):
            for name in names.split(", "):
                assert any(
                    path.startswith(f"{module}.") and path.endswith(f".{name}") for path in named
                ), f"{page.name} imports {module}.{name}"


def test_the_scenario_of_the_guide_loads_and_its_error_is_the_one_shown(
    checkout: Path, tmp_path: Path
) -> None:
    text = (checkout / "docs" / "scenarios.md").read_text(encoding="utf-8")
    example = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)[0]
    path = tmp_path / "four-phones.yaml"
    path.write_text(example)
    assert load_scenario(path).scenario.name == "four-phones"
    path.write_text(example.replace("local_steps", "local_step"))
    with pytest.raises(UserError) as caught:
        load_scenario(path)
    shown = re.findall(r"```text\nerror: (.*?)\n```", text, flags=re.DOTALL)[0]
    assert str(caught.value).replace(f"{tmp_path}/", "") == shown
