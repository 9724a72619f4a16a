"""``fedsim describe``: describe a part, built in or from a user's file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import BaseModel

from fedsim.bundled import references
from fedsim.cli import options
from fedsim.composition.rules.finished import documentation
from fedsim.errors import UserError, nearest, unknown
from fedsim.files import terminal
from fedsim.parts.catalog import CATALOG, kind_noun, summaries
from fedsim.parts.component import Component, import_path, is_user_reference, load_user_component
from fedsim.parts.parameters import alternatives, fields_by_key, without_markup
from fedsim.scenario.description import (
    Parameter,
    example,
    keys_elsewhere,
    parameters,
    prose,
    section_of,
)
from fedsim.scenario.model import Scenario
from fedsim.tasks.user import ModuleParameters
from fedsim.vocabulary.formatting import format_names

_NAMED = 6
_TRAFFIC = (
    "local_step_takes",
    "before_the_rounds",
    "sends_down",
    "sends_up",
    "server_keeps",
    "server_keeps_per_client",
    "client_keeps",
)
"""Entries about the traffic, memory and work of a method, in the order in which they are shown."""


@click.command(name="describe")
@click.argument(
    "part",
    default="",
    shell_complete=options.completing(
        lambda: sorted({name for kind in CATALOG.kinds.values() for name in kind.registry()}),
        files=True,
    ),
)
@click.option(
    "--kind",
    shell_complete=options.completing(lambda: CATALOG.kinds),
    help="Describe only the part of this kind, if several share a name.",
)
@click.option("--bibtex", is_flag=True, help="Write only the BibTeX entries of its papers.")
@options.user_code_option
@options.json_option
def command(part: str, kind: str | None, bibtex: bool, as_json: bool) -> None:
    """Describe PART, or list the kinds of parts if none is given.

    Shown are what it does, its parameters with defaults and units, its paper, and an example.

    PART is a name, such as fedavg, sync, dirichlet or sgd ('fedsim scenario list --all' names them all), or
    file.py:Class for a part of your own, whose file is imported. It may also be a section or a key of a scenario, such
    as stop or training.batch_size, or a kind of part, such as method, whose parts are then listed. 'fedsim describe
    rules' lists the rules that warn about a scenario or a run, each of which can be described by its name.
    """
    if not part:
        named = {one: sorted(CATALOG.kinds[one].registry()) for one in CATALOG.kinds}
        options.print_rows(
            {one: format_names(names, _NAMED) for one, names in named.items()}, as_json
        )
        if not as_json:
            click.echo("list all of a kind by its name: fedsim describe method", err=True)
        return
    if part == "rules":
        rules = documentation()
        options.print_rows(
            {
                name: without_markup(text.partition("\n\n")[0]).replace("\n", " ")
                for name, text in rules.items()
            },
            as_json,
        )
        if not as_json:
            click.echo("describe one of them by its name; silence it with --ignore RULE", err=True)
        return
    listed = next((one for one in CATALOG.kinds if part in (one, section_of(one))), None)
    if listed is not None and kind is None:
        options.print_rows(summaries(CATALOG.parts(listed)), as_json)
        if not as_json:
            inputs = "; what a module gets: fedsim describe inputs" if listed == "model" else ""
            click.echo(
                f"describe one of them by its name, or your own: file.py:ClassName{inputs}",
                err=True,
            )
        return
    described = describe(part, kind)
    if as_json:
        options.print_json(described)
    elif bibtex:
        if entries := [entry for one in described for entry in one["bibtex"]]:
            click.echo("\n\n".join(entries))
        for one in () if entries else described:
            click.echo(f"{one['name']} ({kind_noun(one['kind'])}) has no paper to cite", err=True)
    else:
        if described[1:]:
            nouns = format_names([kind_noun(each["kind"]) for each in described])
            click.echo(f"{len(described)} parts are named {part}: {nouns} (--kind shows one)\n")
        for index, one in enumerate(described):
            _print(one, first=index == 0)


def describe(part: str, kind: str | None = None) -> list[dict[str, Any]]:
    """Facts about the parts of this name, one entry per kind, or about a section or key of a scenario."""
    if kind is not None and kind not in CATALOG.kinds:
        raise unknown("kind of part", kind, CATALOG.kinds, "option --kind")
    kinds = [kind] if kind is not None else list(CATALOG.kinds)
    if is_user_reference(part):
        return [_of_user(part, kinds)]
    described = [
        _described(one, part, CATALOG.parts(one)[part])
        for one in kinds
        if part in CATALOG.parts(one)
    ]
    described += _choices(part, kinds)
    if not described and kind is None and part in documentation():
        text, how = documentation()[part], f"ignore: [{part}]"
        return [_facts("rule", part, "ignore", text, example=how)]
    return described or [_section(part, kinds)]


def _choices(name: str, kinds: list[str]) -> list[dict[str, Any]]:
    """Facts about the values of parameters that have this name, such as a star for the topology of a network.

    All values of a parameter if ``name`` is its key or its path.
    """
    choices: dict[type[BaseModel], dict[str, Any]] = {}
    for kind in kinds:
        for part, component in CATALOG.parts(kind).items():
            for key, info in fields_by_key(component.Params).items():
                path = f"{section_of(kind)}.{key}"
                for choice in alternatives(info.annotation):
                    named = getattr(choice, "model_fields", {}).get("name")
                    words = () if named is None else get_args(named.annotation)
                    if len(words) == 1 and name in (*words, key, path) and choice not in choices:
                        rows = (row for row in parameters(choice) if row.key != "name")
                        of = f"{key} of {part}"
                        choices[choice] = _facts(of, words[0], path, prose(choice), rows)
    return list(choices.values())


def _section(part: str, kinds: list[str]) -> dict[str, Any]:
    """Facts about a section or a key of a scenario."""
    every = list(parameters(Scenario)) if len(kinds) > 1 else []
    # A key of the user's own modules, which are not in the catalog.
    if "model" in kinds and part in ("inputs", "task.model.inputs"):
        every, part = list(parameters(ModuleParameters)), "inputs"
    for kind in kinds:
        key = part.removeprefix(f"{section_of(kind)}.").partition(".")[0]
        owners = [
            name
            for name, component in CATALOG.parts(kind).items()
            if part.startswith(f"{section_of(kind)}.") and key in fields_by_key(component.Params)
        ]
        if owners:
            raise UserError(
                f"'{key}' is a parameter of {format_names(owners)}",
                hint=f"describe it with: fedsim describe {owners[0]}",
            )
    rows = [row for row in every if f"{row.key}.".startswith(f"{part}.")]
    if not rows:
        known = [name for one in kinds for name in CATALOG.parts(one)]
        similar = keys_elsewhere(part) if every else ""
        similar = similar or nearest(part, [*known, *(row.key for row in every)])
        raise UserError(
            f"there is no {kind_noun(kinds[0]) if len(kinds) == 1 else 'part'} named '{part}'",
            hint=f"{similar}'fedsim scenario list --all' lists all parts; "
            "a part of your own is file.py:ClassName",
        )
    section = part.rpartition(".")[0] if part != "inputs" else section_of("model")
    kind = "section" if rows[1:] else "key"
    return _facts(kind, part, section, rows[0].meaning, rows[1:] or rows)


def _facts(
    kind: str,
    name: str,
    written_in: str,
    description: str,
    rows: Iterable[Parameter] = (),
    **of_part: Any,
) -> dict[str, Any]:
    """Facts; those that only a part has are absent from a section, a key, a choice or a rule."""
    described = {"kind": kind, "name": name, "written_in": written_in}
    described |= {"description": without_markup(description)}
    absent: dict[str, Any] = {"needs": [], "paper": "", "links": [], "bibtex": [], "example": ""}
    return {**described, "parameters": list(map(vars, rows)), **absent, **of_part}


def _of_user(part: str, kinds: list[str]) -> dict[str, Any]:
    bases = {kind: CATALOG.kinds[kind].base() for kind in kinds}
    base = bases[kinds[0]] if len(kinds) == 1 else object
    takes_functions = [kind for kind in kinds if CATALOG.kinds[kind].of_function]
    as_is = (lambda function: function) if takes_functions else None
    given = load_user_component(part, base, Path.cwd(), as_is)
    if isinstance(given, type):
        fitting = [kind for kind, base in bases.items() if issubclass(given, base)]
    else:
        # Without --kind, a function is assumed to be a metric, or else a model.
        fitting = takes_functions[::-1]
    for kind in fitting[:-1]:
        with contextlib.suppress(UserError):
            return _described(kind, part, CATALOG.adopt(kind, given))
    if not fitting:
        derive = f"derive it from {' or '.join(map(import_path, bases.values()))}"
        raise UserError("it is not a part of a scenario", where=part, hint=derive)
    return _described(fitting[-1], part, CATALOG.adopt(fitting[-1], given))


def _described(kind: str, name: str, component: type[Component]) -> dict[str, Any]:
    from fedsim.composition.needs import declared_needs

    papers = references.of_part(kind, name)
    titles = (f"{one.fields['title']} ({one.fields['year']})" for one in papers)
    return _facts(
        kind,
        name,
        section_of(kind),
        prose(component),
        parameters(component.Params),
        needs=declared_needs(component),
        paper=getattr(component, "paper", "") or re.sub(r"[{}]", "", "; ".join(titles)),
        links=[paper.link for paper in papers],
        bibtex=[paper.bibtex for paper in papers],
        example=example(kind, name, component.Params),
        **(_rules(component) if kind == "method" else {}),
    )


def _rules(method: Any) -> dict[str, Any]:
    traffic, reason = _traffic(method), method.only_synchronous
    return {
        "title": method.title or method.name,
        "schedules": sorted(
            name
            for name, schedule in CATALOG.parts("schedule").items()
            if (schedule.synchronous or not reason)
            and (schedule.begins_with_prologue or not traffic["before_the_rounds"])
        ),
        "not_asynchronous": reason
        and (reason if isinstance(reason, str) else "it needs a synchronous schedule"),
        "brings": [f"{kind} {part['name']}" for kind, part in method.companions.items()],
        "personal": method.personal,
        **traffic,
    }


def _traffic(method: Any) -> dict[str, Any]:
    import numpy as np
    import torch

    from fedsim.methods.base import MethodContext, Vector
    from fedsim.tasks.layout import Adapter, Layout

    needs = [key for key, info in method.Params.model_fields.items() if info.is_required()]
    if needs:
        return {**{key: [] for key in _TRAFFIC}, "known_with": needs}
    shapes = {"0.weight": (16, 8), "0.bias": (16,), "1.weight": (4, 16), "1.bias": (4,)}
    layout = Layout.of([(f"layers.{name}", shape) for name, shape in shapes.items()])
    if method.needs_adapters:
        layout = Layout.of(
            [("lora_A", (2, 8)), ("lora_B", (16, 2)), ("bias", (16,))],
            [("weight", (16, 8))] if method.merges else [],
            [Adapter("lora_A", "lora_B", "weight")],
        )
    clients = 4
    built = method(
        method.Params(),
        MethodContext(
            layout=layout,
            clients=clients,
            samples=np.full(clients, 10),
            learning_rate=lambda round_, time_s: 0.1,
            local_steps=np.full(clients, 5),
            tensors=lambda: (torch.float32, torch.device("cpu")),
            seed=0,
        ),
    )

    def sized(label: str, elements: int) -> str:
        if elements == layout.size:
            return f"{label} (P)"
        if elements > layout.size and elements % layout.size == 0:
            return f"{label} ({elements // layout.size} P)"
        share = elements / layout.size
        return f"{label} ({share:.0%} of P here)" if elements > 2 else f"{label} ({elements})"

    def sent(vector: Vector) -> str:
        bits = "" if vector.bits is None else f" at {vector.bits:g} bits per entry"
        share = "" if vector.share == 1 else f", {vector.share:.0%} of it"
        return sized(vector.name, vector.elements) + share + bits

    state = built.initial_state(torch.zeros(layout.size))
    prologue = built.prologue()
    passes, operations = built.compute_factor(), built.vector_operations()
    extra = built.extra_passes()
    kept: dict[str, list[str]] = {"server": [], "client": []}
    for key, memory in built.memories().items():
        keeper = "server" if memory.keeper == "server" else "client"
        kept[keeper].append(sized(key, memory.elements))
    before = [] if prologue is None else [("down", prologue.download), ("up", prologue.upload)]
    return {
        "local_step_takes": [
            *([] if passes == 1 else [f"{passes:g} forward and backward passes"]),
            *([f"{operations:g} more operations per parameter"] if operations else []),
            *([f"{extra:g} more pass per dispatch"] if extra else []),
        ],
        "before_the_rounds": [
            f"all clients: {sent(vector)} {way}" for way, vectors in before for vector in vectors
        ],
        "sends_down": [sent(vector) for vector in built.download()],
        "sends_up": [sent(vector) for vector in built.upload()],
        "server_keeps": [sized(key, value.numel()) for key, value in state.items()],
        "client_keeps": kept["client"],
        "server_keeps_per_client": kept["server"],
        "known_with": [],
    }


def _print(described: dict[str, Any], *, first: bool) -> None:
    if not first:
        click.echo()
    name = described["name"]
    terminal.secho(f"{name} ({kind_noun(described['kind'])})", bold=True)
    # That of a single key is printed with its type and default.
    if described["description"] and described["kind"] != "key":
        options.echo_text(described["description"])
    _print_section("needs", described["needs"])
    if described["kind"] != "rule":
        options.print_parameters(described["parameters"])
    bibtex = [f"BibTeX: fedsim describe {name} --bibtex"] if described["bibtex"] else []
    if described["paper"]:
        _print_section("paper", [described["paper"], *described["links"], *bibtex])
    _print_section("example", described["example"].splitlines())
    if described["kind"] == "method":
        terminal.secho("\nrules", bold=True)
        for key in ("schedules", "not_asynchronous", "brings", *_TRAFFIC):
            value = described[key]
            if text := ", ".join(value) if isinstance(value, list) else value:
                click.echo(f"  {key.replace('_', ' '):<24}{text}")
        if described["known_with"]:
            click.echo(f"  (not known without values for: {', '.join(described['known_with'])})")


def _print_section(title: str, lines: list[str]) -> None:
    if lines:
        terminal.secho(f"\n{title}", bold=True)
    for line in lines:
        click.echo(f"  {line}")
