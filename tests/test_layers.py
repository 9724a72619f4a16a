"""The import rule: who may import whom, and which library stays out of which plane."""

from __future__ import annotations

import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedsim

TIME_PLANE = ("simulation", "scheduling", "devices", "network", "traces")
LEARNING_PLANE = ("learning", "methods", "tasks")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def loaded_after_importing(package: str, library: str) -> str:
    """Which modules of ``library`` are loaded once all modules of a package are imported in a new process."""
    names = [f"fedsim.{package}"]
    folder = Path(fedsim.__file__).parent / package
    if folder.is_dir():
        names += [
            module.name
            for module in pkgutil.walk_packages([str(folder)], prefix=f"fedsim.{package}.")
            if not module.name.endswith("__main__")
        ]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print({library!r} in sys.modules)"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_contracts_are_kept(checkout: Path) -> None:
    result = lint(checkout)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("traces/__init__.py", "import torch", "time plane never imports torch"),
        ("devices/__init__.py", "import fedsim.methods.base", "time plane never imports torch"),
        ("methods/base.py", "import simpy", "learning plane never imports simpy"),
        ("units.py", "import fedsim.scenario", "Each layer imports only"),
        ("traces/__init__.py", "import fedsim.runs", "Each layer imports only"),
    ],
)
def test_the_contracts_notice_a_breach(
    checkout: Path, tmp_path: Path, module: str, line: str, broken: str
) -> None:
    shutil.copy(checkout / "pyproject.toml", tmp_path)
    shutil.copytree(
        checkout / "fedsim", tmp_path / "fedsim", ignore=shutil.ignore_patterns("__pycache__")
    )
    path = tmp_path / "fedsim" / module
    # A function's own import counts too.
    path.write_text(f"{path.read_text()}\n\ndef _breach() -> None:\n    {line}\n")
    result = lint(tmp_path)
    assert result.returncode == 1
    assert [text for text in result.stdout.splitlines() if broken in text and "BROKEN" in text]


@pytest.mark.parametrize("package", [*TIME_PLANE, "scenario", "timeline", "randomness", "cli"])
def test_importing_the_time_plane_loads_no_torch(package: str) -> None:
    assert loaded_after_importing(package, "torch") == "False"


@pytest.mark.parametrize("package", LEARNING_PLANE)
def test_importing_the_learning_plane_loads_no_simpy(package: str) -> None:
    assert loaded_after_importing(package, "simpy") == "False"


def test_the_check_for_loaded_libraries_can_see_them() -> None:
    assert loaded_after_importing("learning.learner", "torch") == "True"
    assert loaded_after_importing("simulation", "simpy") == "True"
