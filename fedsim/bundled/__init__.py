"""What comes with fedsim besides code: traces, scenarios, documentation, project templates and references.

A wheel contains the folders ``traces``, ``scenarios`` and ``docs`` of the source tree beside this file; an editable
install, which has them at the top of the checkout, reads those. There is no second copy.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedsim.errors import UserError, nearest_or_all, similar, unknown

PREFIX = "builtin:"
"""Begins the path of a bundled trace: ``builtin:phones_week``."""
HERE = Path(__file__).resolve().parent
TEMPLATES = HERE / "templates"


def located(path: str) -> Path:
    """A bundled file or folder by its path in the source tree, such as ``docs`` or ``mkdocs.yml``."""
    packed = HERE / path
    return packed if packed.exists() else HERE.parent.parent / path


def traces() -> list[str]:
    """Names of the bundled traces."""
    return sorted(path.parent.name for path in located("traces").glob("*/manifest.json"))


def resolved(path: str | os.PathLike[str]) -> Path:
    """``path``, with ``builtin:NAME`` replaced by the folder of that trace."""
    text = os.fspath(path)
    return located("traces") / text.removeprefix(PREFIX) if text.startswith(PREFIX) else Path(path)


def written(path: Path) -> str:
    """A path as the user gave it: ``builtin:NAME`` for a folder (or a file in one) among the bundled traces."""
    root = located("traces")
    if path == root or not path.is_relative_to(root):
        return str(path)
    return f"{PREFIX}{path.relative_to(root).as_posix()}"


def portable(data: Any) -> Any:
    """Plain data in which the paths of bundled traces are :func:`written`: they hold in every installation."""
    if isinstance(data, dict):
        return {key: portable(item) for key, item in data.items()}
    if isinstance(data, list):
        return [portable(item) for item in data]
    return written(Path(data)) if isinstance(data, str) and os.path.isabs(data) else data


def suggested_trace(path: Path) -> str:
    """A hint for a trace bundle that does not exist: a built-in one with a similar name, or all of them."""
    known = {name: f"{PREFIX}{name}" for name in traces()}
    if meant := similar(path.name, known):
        return f"did you mean '{known[meant]}'?"
    return f"built in: {', '.join(known.values())} (fedsim traces inspect describes one)"


def scenarios() -> dict[str, Path]:
    """The bundled scenarios by name, such as ``quickstart`` or ``papers/fedsum/trace_small``."""
    root = located("scenarios")
    files = sorted(root.glob("*.yaml")) + sorted(root.glob("*/**/*.yaml"))
    return {
        path.relative_to(root).with_suffix("").as_posix(): path
        for path in files
        if path.stem != "reference"  # published results of a paper
    }


def scenario_location(path: Path) -> str:
    """How messages name a scenario file: a bundled one by its name."""
    names = [name for name, file in scenarios().items() if file == path]
    return f"built-in scenario {names[0]}" if names else str(path)


def scenario_file(path: Path) -> Path:
    """The file that ``fedsim run PATH`` means: a file of the user, else the bundled scenario of that name."""
    with_suffix = path.with_name(f"{path.name}.yaml") if path.name and not path.suffix else path
    for file in (path, with_suffix):
        if file.is_file():
            return file
    if path.is_absolute() or (path.exists() and path.as_posix() not in scenarios()):
        return path
    known = scenarios()
    name = path.with_suffix("").as_posix()
    if name not in known and not path.suffix and len(path.parts) == 1:
        raise UserError(
            f"there is no file and no built-in scenario named '{path}'",
            hint=nearest_or_all(
                name,
                known,
                f"built in: {', '.join(n for n in known if '/' not in n)}; "
                "fedsim init writes a scenario to start from",
            ),
        )
    return known.get(name, path)


def templates() -> dict[str, str]:
    """The templates of ``fedsim init``: name to the first sentence of their README."""
    return {
        readme.parent.name: readme.read_text(encoding="utf-8").split("\n\n")[1].replace("\n", " ")
        for readme in sorted(TEMPLATES.glob("*/README.md"))
    }


def template_files(name: str) -> dict[str, bytes]:
    """The files of a template by their relative path.

    A template without a ``scenario.yaml`` gets the bundled scenario of its name.
    """
    known = templates()
    if name not in known:
        raise unknown("template", name, known, "option --template")
    root = TEMPLATES / name
    files = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    if "scenario.yaml" not in files:
        scenario = scenarios()[name].read_bytes()
        here, there = f"fedsim run scenarios/{name}.yaml", "fedsim run scenario.yaml"
        files["scenario.yaml"] = scenario.replace(here.encode(), there.encode())
    return files
