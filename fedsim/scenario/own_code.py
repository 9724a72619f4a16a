"""Classes passed to a scenario from Python: how a run folder refers to them and keeps their source."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from pathlib import Path

FOLDER = "python_parts"
"""Folder of a run that holds the source of classes without a file."""


def python_reference(given: type) -> tuple[str, Path | None]:
    """How a scenario names a class from Python, and its file.

    A class of a module is named by the module's file. A class of a notebook, a console or a script has no file that
    may be imported again (a script would run again), so the run folder keeps its source.
    """
    module = sys.modules.get(given.__module__)
    file = getattr(module, "__file__", None)
    if file and given.__module__ != "__main__" and "." not in given.__qualname__:
        return f"{Path(file).resolve()}:{given.__name__}", Path(file).resolve()
    return f"{FOLDER}/{given.__name__}.py:{given.__name__}", None


def python_source(given: type) -> str | None:
    """Source of a class without a file, with the imports it needs; None if it cannot be read."""
    try:
        source = textwrap.dedent(inspect.getsource(given))
    except (OSError, TypeError):
        return None
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    imports = []
    for name, value in vars(sys.modules[given.__module__]).items():
        origin = getattr(value, "__module__", "__main__")
        if name in names and inspect.ismodule(value):
            imports.append(f"import {value.__name__} as {name}")
        elif name in names and origin != "__main__" and hasattr(value, "__name__"):
            imports.append(f"from {origin} import {value.__name__} as {name}")
    return "\n".join(["from __future__ import annotations\n", *sorted(imports), "\n", source])
