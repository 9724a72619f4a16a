"""The import rule: who may import whom, and which library stays out of which plane."""

from __future__ import annotations

import ast
import os
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
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


def test_importing_the_time_plane_loads_no_torch() -> None:
    packages = (*TIME_PLANE, "scenario", "vocabulary", "randomness", "cli")
    assert loaded_after_importing("torch", *packages) == []


def test_importing_the_learning_plane_loads_no_simpy() -> None:
    assert loaded_after_importing("simpy", *LEARNING_PLANE) == []


def test_the_check_for_loaded_libraries_can_see_them() -> None:
    seen = loaded_after_importing("simpy", "scenario", "simulation", "scheduling")
    assert seen == ["simulation", "scheduling"]


def imports_of(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import, those inside functions too, but not those for annotations alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")):
            yield from imports_of(child)


def import_graph(folder: Path) -> nx.DiGraph:
    """Modules of the package ``folder``, and which imports which."""
    paths = {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in folder.rglob("*.py")
    }
    graph = nx.DiGraph()
    graph.add_nodes_from(paths)
    for module, path in paths.items():
        for statement in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(statement, ast.Import):
                names = [alias.name for alias in statement.names]
            else:
                assert statement.level == 0, f"{path}: imports are absolute"
                base = str(statement.module)
                # ``from package import name`` loads the module ``package.name``, if there is one.
                names = [
                    full if (full := f"{base}.{alias.name}") in paths else base
                    for alias in statement.names
                ]
            graph.add_edges_from((module, name) for name in names if name in paths)
    return graph


def circles(folder: Path) -> set[frozenset[str]]:
    """Modules that import each other in a circle."""
    graph = import_graph(folder)
    loops = {frozenset([module]) for module in graph if graph.has_edge(module, module)}
    components = map(frozenset, nx.strongly_connected_components(graph))
    return loops | {component for component in components if len(component) > 1}


def test_imports_have_no_circle(checkout: Path) -> None:
    assert [sorted(circle) for circle in circles(checkout / "fedsim")] == []


def test_circles_are_seen_inside_functions_and_not_for_types(tmp_path: Path) -> None:
    folder = tmp_path / "some"
    (folder / "sub").mkdir(parents=True)
    texts = {
        "__init__.py": "",
        "a.py": "from some import b\n",
        "b.py": "def late():\n    import some.a\n",
        "c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from some.d import D\n",
        "d.py": "from some.c import C\n",
        "sub/__init__.py": "from some.sub.e import E\n",
        "sub/e.py": "E = 1\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    assert circles(folder) == {frozenset({"some.a", "some.b"})}
