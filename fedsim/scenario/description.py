"""Descriptions of parameters for the command line and the reference pages."""

from __future__ import annotations

import functools
import inspect
import json
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from fedsim.parts.parameters import alternatives, element_types, fields_by_key, without_markup
from fedsim.scenario.parts import OfKind
from fedsim.units import parse_duration_s, parse_rate_bps, parse_size_bytes
from fedsim.vocabulary.formatting import format_names

_UNITS = {parse_duration_s: "duration", parse_size_bytes: "size", parse_rate_bps: "rate"}
_BASES = {"duration": "seconds", "size": "bytes", "rate": "bits per second"}
_WORDS = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Path: "path",
    Any: "any value",
}
_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


@dataclass(frozen=True)
class Parameter:
    """One parameter.

    Attributes:
        key: its key in a scenario; dotted for a nested model.
        kind: what it accepts, in words.
        default: its default as YAML; None if it is required.
        meaning: its description.
    """

    key: str
    kind: str
    default: str | None
    meaning: str


def units_of_numbers(kinds: Iterable[str]) -> str:
    """A sentence on the units of plain numbers, for quantities among ``kinds``; empty if there are none."""
    words = set(re.findall(r"[a-z]+", " ".join(kinds)))
    units = [
        f"a {kind} is in {base}" for kind, base in _BASES.items() if words & {kind, f"{kind}s"}
    ]
    return f"Without a unit, {format_names(units)}." if units else ""


def parameters(model: type[BaseModel], prefix: str = "") -> Iterator[Parameter]:
    """The parameters of a model; those of a nested model follow the parameter that contains it."""
    for key, info in fields_by_key(model).items():
        meaning = " ".join(without_markup(info.description or "").split())
        kind = _kind(info.annotation, info.metadata)
        yield Parameter(f"{prefix}{key}", kind, _default(info, kind), meaning)
        models = [item for item in alternatives(info.annotation) if _is_model(item)]
        if len(models) == 1:
            yield from parameters(models[0], f"{prefix}{key}.")
        for annotation in alternatives(info.annotation):
            for inner, mark in zip(element_types(annotation), ("<i>", "<name>"), strict=True):
                for item in filter(
                    _is_model, [one for type_ in inner for one in alternatives(type_)]
                ):
                    yield from parameters(item, f"{prefix}{key}.{mark}.")


_SECTIONS = {
    "task": "task",
    "dataset": "task.dataset",
    "partition": "task.partition",
    "model": "task.model",
    "optimizer": "training.optimizer",
    "lr_schedule": "training.lr_schedule",
    "compute": "devices.compute",
    "availability": "devices.availability",
    "network": "devices.network",
    "transport": "devices.network.transport",
    "method": "server.method",
    "exchange": "server.exchange",
    "compression": "server.compression.up",
    "submodels": "server.submodels",
    "selection": "server.selection",
    "schedule": "server.schedule",
    "metric": "evaluation.metrics",
    "logging": "logging",
}
_UNIT_SIZES = {
    "duration": {"s": 1, "min": 60, "h": 3600, "d": 86400},
    "size": {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30},
    "rate": {"bps": 1, "kbps": 10**3, "Mbps": 10**6, "Gbps": 10**9},
}
_LISTED = ("metric", "logging")
_EXAMPLES = {
    "duration": "10s",
    "size": "64MB",
    "rate": "20Mbps",
    "whole": "10",
    "number": "0.5",
    "true": "true",
    "path": "my_file",
    "text": "text",
    "list": "[]",
    "mapping": "{}",
}


def section_of(kind: str) -> str:
    """The key of a scenario that takes parts of a kind; for importers, the command that takes them."""
    return _SECTIONS.get(kind, "fedsim traces import")


def known_keys() -> list[str]:
    """The dotted keys of scenarios and of the parameters of all bundled parts, sorted."""
    from fedsim.parts.catalog import CATALOG
    from fedsim.scenario.model import Scenario

    rows = list(parameters(Scenario))
    for kind in _SECTIONS.keys() - {*_LISTED} & CATALOG.kinds.keys():
        for component in CATALOG.parts(kind).values():
            rows += parameters(component.Params, f"{section_of(kind)}.")
    return sorted({row.key for row in rows if "<" not in row.key})


def keys_elsewhere(unknown: str) -> str:
    """``"did you mean 'a.x' or 'b.x'? "``, at most three keys that end as an unknown key does; empty if there is none.

    Keys of the section with which the unknown key begins come first.
    """
    last = unknown.rpartition(".")[2]
    keys = {key for key in known_keys() if key.rpartition(".")[2] == last}
    section = f"{unknown.partition('.')[0]}."
    nearest_first = sorted(keys, key=lambda key: (not key.startswith(section), key))
    names = " or ".join(f"'{key}'" for key in nearest_first[:3])
    return f"did you mean {names}? " if names else ""


def with_units(flat: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """A scenario by its dotted paths, whose durations, sizes and rates at ``paths`` are text such as ``4min``.

    The parameters of a user's part stay numbers, because its file is not read.
    """
    result = dict(flat)
    for path in paths:
        value = flat.get(path)
        if _is_number(value) and value:
            result[path] = _with_unit(value, _kind_of(path, flat))
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_unit(value: Any, kind: str) -> Any:
    """A number as text with its unit, such as ``4min``, if values of this kind have one."""
    words = kind.split()
    units = next((_UNIT_SIZES[word] for word in words if word in _UNIT_SIZES), {})
    exact = [unit for unit, size in units.items() if value and value % size == 0]
    unit = max(exact, key=lambda name: units[name], default=next(iter(units), ""))
    return f"{value / units[unit]:.12g}{unit}" if units else value


def _kind_of(path: str, flat: Mapping[str, Any]) -> str:
    """The values that the parameter at a path accepts, in words; ``unknown`` for parts that are not built in."""
    from fedsim.parts.catalog import CATALOG

    for kind, section in _SECTIONS.items():
        name = flat.get(f"{section}.name")
        if name and path.startswith(f"{section}.") and name in CATALOG.parts(kind):
            model: type[BaseModel] = CATALOG.find(kind, name, Path()).Params
            path = path.removeprefix(f"{section}.")
            break
    else:
        # Most keys that differ are those of parts, and this import is slow.
        from fedsim.scenario.model import Scenario as model
    return _kinds(model).get(path, "unknown")


@functools.cache
def _kinds(model: type[BaseModel]) -> dict[str, str]:
    return {row.key: row.kind for row in parameters(model)}


def example(kind: str, name: str, model: type[BaseModel]) -> str:
    """How a part is written, with the parameters that must be given and the first of the others.

    A part's own parameters come before those that it inherits.
    """
    rows = [row for row in parameters(model) if "." not in row.key]
    required = [row for row in rows if row.default is None]
    optional = [
        row
        for row in rows
        if row.default not in (None, "", "null", "[]", "{}")
        and not row.kind.startswith(("section", "one of"))
    ]
    # The level of the base that defines each field: 0 for those that the model defines itself.
    bases = [vars(base).get("__annotations__", {}) for base in model.__mro__]
    level = {
        info.alias or name: next((depth for depth, own in enumerate(bases) if name in own), 0)
        for name, info in model.model_fields.items()
    }
    optional.sort(key=lambda row: level[row.key])
    settings = {row.key: _example_value(row) for row in required}
    settings |= {
        row.key: json.dumps(row.default) if row.kind == "text" else str(row.default)
        for row in optional[:2]
    }
    if kind not in _SECTIONS:
        options = " ".join(f"-s {key}={value}" for key, value in settings.items())
        return " ".join(["fedsim traces import", name, "FILE...", options, "-o my-trace"])
    written = f'"{name}"' if ":" in name else name
    written_part = (
        f"{{{', '.join([f'name: {written}', *(f'{k}: {v}' for k, v in settings.items())])}}}"
    )
    if kind in _LISTED:
        written_part = f"[{written_part}]"
    lines = [f"{'  ' * depth}{key}:" for depth, key in enumerate(section_of(kind).split("."))]
    return "\n".join([*lines[:-1], f"{lines[-1]} {written_part}"])


def _example_value(row: Parameter) -> str:
    if in_words := re.search(r"such as `([^`]+)`", row.meaning):
        return in_words[1]
    if " or " in row.kind and row.kind.split()[0] not in _EXAMPLES:
        return row.kind.split(" or ")[0]
    if row.kind.startswith("list of lists"):
        return "[[0, 1]]"
    return _EXAMPLES.get(row.kind.split()[0], "...")


def prose(thing: type[Any]) -> str:
    """A class's docstring up to its sections (attributes, arguments, ...), with its markup."""
    return re.split(
        r"\n\n(?:Attributes|Args|Raises|Returns):\n", inspect.cleandoc(thing.__doc__ or "")
    )[0]


def _kind(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """The values that an annotation accepts, in words."""
    bounds = []
    for item in metadata:
        if isinstance(item, OfKind):
            return f"{item.kind.replace('_', ' ')} by name"
        if isinstance(item, BeforeValidator) and item.func in _UNITS:
            return _UNITS[item.func]
        bounds += [
            f"{sign} {getattr(item, name)}"
            for name, sign in _BOUNDS.items()
            if getattr(item, name, None) is not None
        ]
    return " ".join([_type_words(annotation), " and ".join(bounds)]).strip()


def _type_words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        models = [item for item in alternatives(annotation) if _is_model(item)]
        if len(models) > 1:
            names = (get_args(model.model_fields["name"].annotation)[0] for model in models)
            return f"one of {', '.join(map(str, names))}"
        words = [_type_words(item) for item in arguments if item is not type(None)]
        if "number" in words:  # integers are numbers
            words = [word for word in words if word != "whole number"]
        return " or ".join(dict.fromkeys(words))
    if origin is Literal:
        return " or ".join(str(item) for item in arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping of names to {_plural(_type_words(arguments[1]))}"
    if isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset):
        items = [_type_words(item) for item in arguments if item is not Ellipsis]
        if origin is tuple and Ellipsis not in arguments:
            return f"list of {' and '.join(items)}"
        return f"list of {_plural(items[0])}"
    if _is_model(annotation):
        return "section"
    return _WORDS.get(annotation, "text")


def _plural(words: str) -> str:
    head, _, rest = words.partition(" ")
    plurals = {"list": "lists", "any": "any values"}
    if head in plurals:
        return " ".join([plurals[head], rest if head == "list" else ""]).strip()
    return f"{words}s" if words.removeprefix("whole ").isalpha() and words != "text" else words


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _default(info: FieldInfo, kind: str) -> str | None:
    """A field's default as YAML, with its unit if values of its kind have one; None if it is required."""
    if info.is_required():
        return None
    for item in info.metadata:
        if isinstance(item, OfKind):
            return item.default_name({})
    value = info.get_default(call_default_factory=True, validated_data={})
    if info.validate_default:
        return ""
    if isinstance(value, BaseModel):
        name = getattr(value, "name", None)
        return str(name) if isinstance(name, str) else ""
    if _is_number(value):
        value = _with_unit(value, kind)
    return value if isinstance(value, str) else json.dumps(value, default=str)
