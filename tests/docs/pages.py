"""Fenced blocks of Markdown pages, and a working directory in which they can be run."""

import contextlib
import functools
import io
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from fedsim.cli import cli

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and what it holds."""

    page: str
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}, block {self.number} ({self.language})"


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the output shown below it; None where none is shown."""

    text: str
    output: str | None


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page that name a language."""
    text = path.read_text(encoding="utf-8")
    return [
        Block(path.name, number, *fence.groups())
        for number, fence in enumerate(_FENCE.finditer(text), start=1)
    ]


def commands(block: Block) -> list[Command]:
    """The commands of a console block: lines after a ``$`` with their output, or every line where there is no ``$``."""
    lines = block.text.splitlines()
    if not block.text.startswith("$ "):
        return [Command(line, None) for line in lines if line.strip()]
    listed: list[Command] = []
    for line in lines:
        if line.startswith("$ "):
            listed.append(Command(line[2:], ""))
        else:
            listed[-1] = replace(listed[-1], output=f"{listed[-1].output}{line}\n")
    return listed


def fedsim(command: str, *more: str) -> str:
    """Run a command line of fedsim in this process; what it wrote to standard output."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        exit_code(command, *more)
    return written.getvalue()


def exit_code(command: str, *more: str) -> int:
    """The exit code of a command line of fedsim."""
    program, *arguments = shlex.split(command, comments=True)
    assert program == "fedsim"
    return cli.exit_code([*arguments, *more], prog_name="fedsim")


def quick(scenario: Path, rounds: int = 3) -> dict[str, Any]:
    """A shipped scenario cut down to a few rounds of a few clients."""
    data: dict[str, Any] = YAML(typ="safe", pure=True).load(scenario.read_text(encoding="utf-8"))
    data["stop"] = {"rounds": rounds}
    data["task"]["clients"] = 5000 if data["task"].get("name") == "timing" else None
    return {
        **data,
        "task": {key: value for key, value in data["task"].items() if value is not None},
    }


def make_workshop(folder: Path, checkout: Path) -> None:
    """What a checkout holds for its user: traces, and scenarios cut down to a few rounds."""
    (folder / "traces").symlink_to(checkout / "traces")
    (folder / "scenarios").mkdir()
    for scenario in sorted((checkout / "scenarios").glob("*.yaml")):
        (folder / "scenarios" / scenario.name).write_text(_quick_text(scenario), encoding="utf-8")


@functools.cache
def _quick_text(scenario: Path) -> str:
    """The YAML of :func:`quick`; every page has a workshop, and the scenarios do not change meanwhile."""
    stream = io.StringIO()
    YAML(typ="safe", pure=True).dump(quick(scenario), stream)
    return stream.getvalue()


working_in = contextlib.chdir
