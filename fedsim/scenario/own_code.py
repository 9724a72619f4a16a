"""Classes and functions passed to a scenario from Python: how a run folder refers to them and keeps their source."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import os
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedsim.files.durable import write_text
from fedsim.parts.component import Component, is_bundled, params_of

FOLDER = "python_parts"
"""Folder of a run for the source of classes without a file."""


def python_reference(given: Callable[..., Any]) -> tuple[str, Path | None]:
    """How a scenario names a class or function from Python, and its file.

    One of a module is named by the module's file. One of a notebook, a console or a script has no file that
    may be imported again (a script would run again), so the run folder keeps its source.
    """
    module = sys.modules.get(given.__module__)
    file = getattr(module, "__file__", None)
    if file and given.__module__ != "__main__" and "." not in given.__qualname__:
        return f"{Path(file).resolve()}:{given.__name__}", Path(file).resolve()
    return f"{FOLDER}/{given.__name__}.py:{given.__name__}", None


def as_data(value: Any) -> Any:
    """A value of a scenario as a file gives it: classes, functions and parts are named."""
    if isinstance(value, Mapping):
        return {key: as_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(item) for item in value]
    if isinstance(value, Component):
        given = params_of(value).model_dump(mode="json", by_alias=True)
        return {"name": as_data(type(value)), **given}
    if isinstance(value, type) or inspect.isfunction(value):
        name = getattr(value, "name", "")
        return name if name and is_bundled(value) else python_reference(value)[0]
    return value


def python_source(given: Callable[..., Any]) -> str | None:
    """Source of a class or function without a file, with what it needs; None if it cannot be read.

    It needs imports, and from a notebook or a script also the classes, functions and constants that it names.
    """
    imports, pieces = set[str](), dict[str, str]()
    if not _collect(given, imports, pieces):
        return None
    attributes = [
        f"{given.__name__}.{name} = {value!r}"
        for name, value in vars(given).items()
        if inspect.isfunction(given) and isinstance(value, bool | int | float | str)
    ]
    head = ["from __future__ import annotations\n", *sorted(imports), "\n"]
    return "\n".join([*head, *pieces.values(), *attributes])


def _collect(given: Callable[..., Any], imports: set[str], pieces: dict[str, str]) -> bool:
    """Add a class or function to ``pieces``, after those that it names; False if its source cannot be read."""
    source = _source(given)
    if source is None:
        return False
    pieces[given.__name__] = ""  # It may name itself, or something that names it.
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    for name, value in list(vars(sys.modules[given.__module__]).items()):
        if name not in names or name in pieces:
            continue
        origin = getattr(value, "__module__", "__main__")
        if inspect.ismodule(value):
            imports.add(f"import {value.__name__} as {name}")
        elif origin != "__main__" and hasattr(value, "__name__"):
            imports.add(f"from {origin} import {value.__name__} as {name}")
        elif isinstance(value, type) or inspect.isfunction(value):
            if value.__name__ not in pieces:
                _collect(value, imports, pieces)
            if value.__name__ != name:
                pieces[name] = f"{name} = {value.__name__}\n"
        else:
            # Python's text for numbers, text, and lists of them gives the value again.
            with contextlib.suppress(ValueError, SyntaxError, TypeError):
                if ast.literal_eval(repr(value)) == value:
                    pieces[name] = f"{name} = {value!r}\n"
    del pieces[given.__name__]
    pieces[given.__name__] = source
    return True


def write_sources(folder: Path, sources: Mapping[str, str]) -> None:
    """Write sources of classes without a file into a folder, by their paths there."""
    for name, source in sources.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_text(folder / name, source)


def _source(given: Callable[..., Any]) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(given))
    except (OSError, TypeError):
        pass
    # Before Python 3.13, only the functions of a class know the cell of a notebook that defined them. One without
    # functions of its own is in the last cell that defines a class of this name.
    functions = filter(inspect.isfunction, vars(given).values())
    cells = [name for name in list(linecache.cache)[::-1] if not os.path.exists(name)]
    for cell in [*(function.__code__.co_filename for function in functions), *cells]:
        lines = linecache.getlines(cell)
        try:
            tree = ast.parse("".join(lines))
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == given.__name__:
                first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
                return textwrap.dedent("".join(lines[first - 1 : node.end_lineno]))
    return None
