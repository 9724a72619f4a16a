"""Write the reference pages from the code: ``python docs/generate.py``. A test holds that they are up to date."""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import click
import pyarrow as pa
from pydantic import BaseModel

import fedsim
from fedsim.bundled.references import of_part, references
from fedsim.cli import COMMANDS, cli
from fedsim.cli.describe import describe
from fedsim.cli.options import whole_help
from fedsim.composition.rules.finished import documentation
from fedsim.parts.catalog import CATALOG
from fedsim.parts.component import Component, Parameters
from fedsim.parts.parameters import alternatives, without_markup
from fedsim.runs.schema import METRICS, OPTIONAL, TABLES
from fedsim.scenario.description import Parameter, parameters, prose
from fedsim.scenario.model import CheckpointModels, Scenario
from fedsim.scenario.training import Training
from fedsim.vocabulary.metrics import METRICS as METRIC_DEFINITIONS

REFERENCE = Path(__file__).parent / "reference"
NOTICE = "<!-- Written by docs/generate.py; change the code's docstrings instead. -->\n"

INDEX = "<!-- The index is written by docs/generate.py. -->\n"

INTRODUCTION = """\
A scenario is one YAML file. Durations are numbers of seconds or text such as `90s`, `15min`, `2h`, `7d`; sizes are
bytes or `25MB`, `4KiB`; rates are bits per second or `20Mbps`. Paths are relative to the scenario file. `fedsim
scenario show FILE` prints every default; `fedsim scenario schema` prints a JSON Schema, with which editors complete
and check. Any value can be set on the command line by its dotted path: `-s training.optimizer.lr=0.05`.

A *part* (a method, a data set, ...) is written `{name: dirichlet, alpha: 0.3}`: its name, then its own parameters;
without parameters, the name alone is enough. `name: my_file.py:MyClass` is your own part, in a file beside the
scenario. If a part has a default, its name may be left out.
"""

RULES = """\
A rule warns about a setting that is legal but probably not intended, before a run or at its end. Its warning ends with
its name: `[slow-clients]`. To silence a rule, write `ignore: [slow-clients]` in the scenario, or give `--ignore
slow-clients` on the command line; neither changes a result. `fedsim describe rules` prints this list. Mistakes that
make a run impossible are errors, not warnings, and cannot be ignored.
"""

KINDS = {
    "dataset": "Data sets (`task.dataset`)",
    "partition": "Partitions (`task.partition`)",
    "model": "Models (`task.model`)",
    "optimizer": "Optimizers (`training.optimizer`)",
    "lr_schedule": "Learning-rate schedules (`training.lr_schedule`)",
    "compute": "Compute models (`devices.compute`)",
    "availability": "Availability (`devices.availability`)",
    "network": "Networks (`devices.network`)",
    "transport": "Transports (`devices.network.transport`)",
    "exchange": "Exchanges (`server.exchange`)",
    "compression": "Compression (`server.compression.up`, `server.compression.down`)",
    "submodels": "Submodels (`server.submodels`)",
    "selection": "Selections (`server.selection`)",
    "schedule": "Schedules (`server.schedule`)",
    "metric": "Metrics (`evaluation.metrics`)",
    "logging": "Trackers (`logging`)",
    "importer": "Trace importers (`fedsim traces import`)",
}


def scenario_page() -> str:
    """The reference of every key of a scenario."""
    lines = [
        NOTICE,
        "# Scenario reference\n",
        f"{INTRODUCTION}\n",
        "## Top level\n",
        *_table(Scenario, only=lambda key: "." not in key),
    ]
    for section in ("devices", "server", "stop", "evaluation", "sweep"):
        info = Scenario.model_fields[section]
        model = alternatives(info.annotation)[0]
        lines += [f"## `{section}`\n", f"{_prose(model)}\n", *_table(model)]
        if section == "devices":
            lines += _parts("compute", "availability", "network")
            topologies = CATALOG.parts("network")["shared"].Params.model_fields["topology"]
            lines += ["### Topologies (`devices.network.topology`)\n"]
            lines += _choices("####", "", topologies.annotation)
            lines += _parts("transport")
        if section == "server":
            lines += ["Methods have a [page of their own](methods.md).\n"]
            lines += _parts("exchange", "compression", "submodels", "selection", "schedule")
        if section == "evaluation":
            lines += _parts("metric")
    tasks: list[str] = ["## `task`\n"]
    for name, task in sorted(CATALOG.parts("task").items()):
        params = task.Params
        tasks += [f"### `task: {{name: {name}}}`\n", f"{_prose(params)}\n", *_table(params)]
    tasks += _parts("dataset", "partition", "model")
    training = ["## `training`\n", f"{_prose(Training)}\n", *_table(Training)]
    training += _parts("optimizer", "lr_schedule")
    training += _choices("###", "workers", Training.model_fields["workers"].annotation)
    place = lines.index("## `devices`\n")
    models = [
        "## `checkpoint_models`\n",
        f"{_prose(CheckpointModels)}\n",
        *_table(CheckpointModels),
    ]
    models += ["## `logging`\n", *_parts("logging")]
    return _join([*lines[:place], *tasks, *training, *lines[place:], *models, *_parts("importer")])


def methods_page() -> str:
    """The reference of every method."""
    lines = [
        NOTICE,
        "# Methods\n",
        "What each method sends, keeps and needs. P is the length of the model's parameter vector. "
        "`fedsim describe NAME` prints the same.\n",
    ]
    lines += _weights_table()
    for name, method in sorted(CATALOG.parts("method").items()):
        (described,) = describe(name, "method")
        lines += [
            f"## {described['title']}\n",
            f"`method: {{name: {name}}}`\n",
            f"{_prose(method)}\n",
        ]
        rows = [
            ("A local step takes", ", ".join(described["local_step_takes"])),
            ("Before the rounds", ", ".join(described["before_the_rounds"])),
            ("Sends down", ", ".join(described["sends_down"])),
            ("Sends up", ", ".join(described["sends_up"])),
            ("The server keeps", ", ".join(described["server_keeps"])),
            ("The server keeps for each client", ", ".join(described["server_keeps_per_client"])),
            ("Each client keeps", ", ".join(described["client_keeps"])),
            ("Known only with its parameters", ", ".join(described["known_with"])),
            ("Schedules", ", ".join(described["schedules"])),
            ("Not asynchronous", described["not_asynchronous"]),
            ("Companion parts, unless others are given", ", ".join(described["brings"])),
            ("Paper", described["paper"]),
            ("Read it", ", ".join(f"<{one.link}>" for one in of_part("method", name))),
        ]
        lines += ["| property | value |", "|---|---|"]
        lines += [f"| {label} | {_cell(text)} |" for label, text in rows if text]
        lines += ["", *_table(method.Params)]
    return _join(lines)


def papers_page() -> str:
    """The BibTeX entries of all papers, by part."""
    lines = [
        NOTICE.replace("the code's docstrings", "fedsim/bundled/references.bib"),
        "# Bibliography\n",
        "What to cite for a part. `fedsim describe PART --bibtex` prints the entries of one.\n",
    ]
    for one in references():
        title = re.sub(r"[{}]", "", one.fields["title"])
        parts = ", ".join(
            f"`{name}` ({kind.replace('_', ' ')})"
            for kind, name in (part.split("/") for part in one.parts)
        )
        lines += [f"## {title}\n", f"For {parts}. <{one.link}>\n", f"```text\n{one.bibtex}\n```\n"]
    return _join(lines)


def _weights_table() -> list[str]:
    """Default weights of clients' updates, by method."""
    names: dict[str, list[str]] = {}
    for name, method in sorted(CATALOG.parts("method").items()):
        field = method.Params.model_fields.get("weights")
        names.setdefault("always equal" if field is None else str(field.default), []).append(
            f"`{name}`"
        )
    meanings = {
        "samples": "by training samples, unless `weights: uniform` is set",
        "uniform": "equal, unless `weights: samples` is set",
        "always equal": "always equal: the method has no parameter `weights`",
    }
    return [
        "## Default weights\n",
        "Methods differ in how much a client counts, each as in its paper. Where clients hold unequal numbers of "
        "samples this changes the objective, so set `weights` to compare the rules alone; `fedsim compare` warns if "
        "variants differ in it.\n",
        "| weights of the updates | methods |",
        "|---|---|",
        *(f"| {text} | {', '.join(names[kind])} |" for kind, text in meanings.items()),
        "",
    ]


def commands_page() -> str:
    """The reference of every command."""
    lines = [
        NOTICE,
        "# Commands\n",
        "Exit codes: 0 done, 2 a mistake in the input, 1 a bug in fedsim, 130 interrupted, "
        "128 + n ended by signal n.\n",
    ]
    with click.Context(cli, info_name="fedsim", **cli.context_settings) as context:
        for name in COMMANDS:
            command = cli.get_command(context, name)
            if command is not None:
                lines += _command(command, f"fedsim {name}", context)
    return _join(lines)


def tables_page() -> str:
    """The columns of every table of a run folder."""
    lines = [
        NOTICE,
        "# Tables of a run\n",
        "Every table is a Parquet file of [the run folder](../runs.md), and a pandas DataFrame in Python: "
        "`run.dispatches` for `dispatches`. Absent times are NaN, other absent values are null. Simulated times begin "
        "at the start of the run.\n",
    ]
    for table in TABLES:
        lines += [
            f"## `{table.name}`\n",
            f"{table.schema.metadata[b'description'].decode()}\n",
            *("| column | type | unit | meaning |", "|---|---|---|---|"),
        ]
        for field in table.schema:
            if table is METRICS and field.name == "values":
                lines.append(
                    "| one per metric | number | see below | its value; NaN if not measured |"
                )
                continue
            unit, meaning = (field.metadata[key].decode() for key in (b"unit", b"description"))
            lines.append(f"| `{field.name}` | {_type(field.type)} | {unit} | {_cell(meaning)} |")
        lines.append("")
        if table is METRICS:
            lines += _metrics()
    lines += [
        "## Columns of some runs\n",
        "`dispatches` and `clients`, and `messages` of Flower apps, have these columns in runs that the last "
        "column names.\n",
        *("| column | type | unit | meaning |", "|---|---|---|---|"),
    ]
    for field in OPTIONAL:
        unit, meaning = (field.metadata[key].decode() for key in (b"unit", b"description"))
        lines.append(f"| `{field.name}` | {_type(field.type)} | {unit} | {_cell(meaning)} |")
    return _join(lines)


def rules_page() -> str:
    """The reference of the rules that warn about a scenario or a run."""
    lines = [NOTICE, "# Rules\n", f"{RULES}\n"]
    for name, text in documentation().items():
        lines += [f"## `{name}`\n", f"{_plain(text)}\n"]
    return _join(lines)


def _type(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "whole number"
    if pa.types.is_floating(kind):
        return "number"
    if pa.types.is_list(kind):
        return "list of whole numbers"
    return "numbers by name" if pa.types.is_map(kind) else "text"


def _metrics() -> list[str]:
    """The columns of the metrics that fedsim measures."""
    return [
        "The metrics of fedsim's tasks; columns of your own metrics have the names of their functions or classes:\n",
        *("| column | unit | better |", "|---|---|---|"),
        *(
            f"| `{one.name}` | {'share, 0 to 1' if one.unit == 'share' else ''} "
            f"| {'higher' if one.higher_is_better else 'lower'} |"
            for one in METRIC_DEFINITIONS.values()
        ),
        "",
    ]


def pages() -> dict[Path, str]:
    """All pages by their file."""
    return {
        REFERENCE / "scenario.md": scenario_page(),
        REFERENCE / "methods.md": methods_page(),
        REFERENCE / "commands.md": commands_page(),
        REFERENCE / "tables.md": tables_page(),
        REFERENCE / "rules.md": rules_page(),
        REFERENCE / "papers.md": papers_page(),
        REFERENCE / "python.md": python_page(),
    }


def python_page() -> str:
    """The page of the Python interface, with an index of what its directives show, for who reads the Markdown."""
    text = (REFERENCE / "python.md").read_text(encoding="utf-8")
    begin, end = text.index(INDEX) + len(INDEX), text.index("\n## ")
    rows = ["| name | what it is |", "|---|---|"]
    for match in re.finditer(
        r"^::: (\S+)(?:\n +options:\n +members: \[(.*)\])?", text, re.MULTILINE
    ):
        for name, thing in _documented(match[1], match[2]):
            line = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")
            rows.append(f"| `{name}` | {_cell(without_markup(line))} |")
    return f"{text[:begin]}\n{_join(rows)}{text[end:]}"


def _documented(path: str, members: str | None) -> Iterator[tuple[str, object]]:
    """The objects that a directive shows: the object of this path, or the members of a module, by the shortest name."""
    thing = pkgutil.resolve_name(path)
    if not inspect.ismodule(thing):
        yield path, thing
        return
    own = [name for name, one in vars(thing).items() if getattr(one, "__module__", "") == path]
    for name in members.split(", ") if members else own:
        if not name.startswith("_"):
            short = hasattr(fedsim, name) and getattr(fedsim, name) is getattr(thing, name)
            yield f"{'fedsim' if short else path}.{name}", getattr(thing, name)


def _parts(*kinds: str) -> list[str]:
    lines: list[str] = []
    for kind in kinds:
        lines.append(f"### {KINDS[kind]}\n")
        for name, component in sorted(CATALOG.parts(kind).items()):
            lines += [f"#### `{name}`\n", f"{_prose(component)}\n", *_table(component.Params)]
    return lines


def _choices(level: str, key: str, annotation: object) -> list[str]:
    """The values of a parameter that have parameters of their own."""
    lines: list[str] = []
    for model in alternatives(annotation):
        name = get_args(model.model_fields["name"].annotation)[0]
        title = f"{key}: {{name: {name}}}" if key else name
        table = _table(model, only=lambda key: key != "name") or ["No parameters.\n"]
        lines += [f"{level} `{title}`\n", f"{_prose(model)}\n", *table]
    return lines


def _table(model: type[BaseModel], only: object = None) -> list[str]:
    keep = only if callable(only) else lambda key: True
    rows = [row for row in parameters(model) if keep(row.key)]
    if not rows:
        return ["No parameters.\n"] if issubclass(model, Parameters) else []
    return [
        "| key | takes | default | meaning |",
        "|---|---|---|---|",
        *(_row(row) for row in rows),
        "",
    ]


def _row(row: Parameter) -> str:
    default = (
        "**must be given**" if row.default is None else f"`{row.default}`" if row.default else ""
    )
    return f"| `{row.key}` | {_cell(row.kind)} | {default} | {_cell(row.meaning)} |"


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|").replace("\n", " ")


def _plain(text: str) -> str:
    """Text with a ``<`` escaped where Markdown would take it for the beginning of a tag; not in code and links."""
    parts = re.split(r"(`[^`]*`|<https://[^>]*>)", text)
    parts[::2] = [re.sub(r"<(?=[A-Za-z/!?])", "&lt;", part) for part in parts[::2]]
    return "".join(parts)


def _prose(thing: type[BaseModel] | type[Component]) -> str:
    """A docstring up to its Google-style sections, as Markdown."""
    return _plain(without_markup(prose(thing)))


def _command(command: click.Command, path: str, parent: click.Context) -> list[str]:
    context = click.Context(
        command, info_name=path.rpartition(" ")[2], parent=parent, terminal_width=100
    )
    if isinstance(command, click.Group):
        lines = [f"## `{path}`\n", f"{command.get_short_help_str(200)}\n"]
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            lines += _command(inner, f"{path} {name}", context)
        return lines
    level = "##" if path.count(" ") == 1 else "###"
    with context:
        text = whole_help(context)
    return [f"{level} `{path}`\n", f"```text\n{text}\n```\n"]


def _join(lines: Iterable[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    # Another folder than the reference's, for the test that compares the two.
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else REFERENCE
    folder.mkdir(exist_ok=True)
    for page, text in pages().items():
        (folder / page.name).write_text(text, encoding="utf-8")
