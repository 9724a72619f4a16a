"""The import rule: who may import whom, and which library stays out of which plane."""

import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import networkx as nx

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


def loaded_after_importing(library: str, *packages: str) -> list[str]:
    """Packages all of whose modules, imported one after the other in a new process, left ``library`` loaded."""
    folder = Path(fedsim.__file__).parent
    modules = {
        package: [
            f"fedsim.{package}",
            *(
                module.name
                for module in pkgutil.walk_packages([str(folder / package)], f"fedsim.{package}.")
                if not module.name.endswith("__main__")
            ),
        ]
        for package in packages
    }
    code = (
        "import importlib, sys\n"
        f"for package, names in {modules!r}.items():\n"
        "    for name in names: importlib.import_module(name)\n"
        f"    if {library!r} in sys.modules: print(package)"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()


def test_the_contracts_are_kept(checkout: Path) -> None:
    result = lint(checkout)
    assert result.returncode == 0, result.stdout


def test_the_contracts_notice_a_breach(checkout: Path, tmp_path: Path) -> None:
    """One breach of each; a function's own import counts too."""
    shutil.copy(checkout / "pyproject.toml", tmp_path)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(checkout / "fedsim", tmp_path / "fedsim", ignore=ignored)
    for module, line in (
        ("traces/__init__.py", "import torch"),
        ("methods/base.py", "import simpy"),
        ("units.py", "import fedsim.scenario"),
    ):
        with (tmp_path / "fedsim" / module).open("a") as file:
            file.write(f"\n\ndef _breach() -> None:\n    {line}\n")
    result = lint(tmp_path)
    assert result.returncode == 1
    broken = [text for text in result.stdout.splitlines() if "BROKEN" in text]
    names = ("Each layer imports only", "time plane never imports", "learning plane never imports")
    assert all(name in text for name, text in zip(names, broken, strict=True))


def test_importing_the_time_plane_loads_no_torch() -> None:
    packages = (*TIME_PLANE, "scenario", "vocabulary", "randomness", "cli")
    assert loaded_after_importing("torch", *packages) == []


def test_importing_the_learning_plane_loads_no_simpy() -> None:
    assert loaded_after_importing("simpy", *LEARNING_PLANE) == []


def test_imports_have_no_circle() -> None:
    """Those inside functions count, those for annotations alone do not."""
    imports = grimp.build_graph("fedsim", exclude_type_checking_imports=True, cache_dir=None)
    graph = nx.DiGraph(
        (module, imported)
        for module in imports.modules
        for imported in imports.find_modules_directly_imported_by(module)
    )
    assert [sorted(circle) for circle in nx.simple_cycles(graph)] == []
