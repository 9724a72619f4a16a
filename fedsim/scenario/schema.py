"""The JSON Schema of scenarios, with the parameters of every part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedsim.parts.catalog import CATALOG, summary
from fedsim.scenario.model import Scenario
from fedsim.scenario.parts import KIND_KEY, Reading


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of a scenario file.

    Editors with a YAML language server complete and check scenarios with it.
    """
    schema = Scenario.model_json_schema()
    definitions = schema["$defs"]
    for kind, entry in CATALOG.kinds.items():
        for name, component in sorted(entry.registry().items()):
            prefix = f"{kind}.{name}"
            schema_of_part = component.Params.model_json_schema(
                ref_template=f"#/$defs/{prefix}.{{model}}"
            )
            for inner, definition in schema_of_part.pop("$defs", {}).items():
                definitions[f"{prefix}.{inner}"] = definition
            schema_of_part["title"] = prefix
            schema_of_part["description"] = summary(component)
            named = {"const": name, "description": f"The {kind} {name}."}
            schema_of_part["properties"] = {
                "name": named,
                **schema_of_part.get("properties", {}),
            }
            schema_of_part["required"] = ["name", *schema_of_part.get("required", [])]
            definitions[prefix] = schema_of_part
        definitions[f"{kind}.own"] = {
            "title": f"user-defined {kind}",
            "type": "object",
            "properties": {
                "name": {
                    "type": "string",
                    "pattern": _OWN,
                    "description": "file.py:ClassName, relative to the scenario file",
                }
            },
            "required": ["name"],
        }
    smallest = {"task": {"name": "timing", "clients": 1}, "stop": {"rounds": 1}}
    scenario = Scenario.model_validate(smallest, context=Reading())
    for section, default in scenario.model_dump(mode="json", by_alias=True).items():
        if section not in smallest:
            schema["properties"][section].setdefault("default", default)
    for name in set(_default_parts(schema)):
        part = definitions[name]
        if "name" in part["required"]:
            part["required"].remove("name")
            part["properties"]["name"]["default"] = part["properties"]["name"]["const"]
    filled: dict[str, Any] = _fill_parts(schema)
    address = "https://json-schema.org/draft/2020-12/schema"
    return {**filled, "$schema": address, "title": "fedsim scenario"}


_OWN = r"\.py:[A-Za-z_][A-Za-z0-9_]*$"


def _fill_parts(value: Any) -> Any:
    """The schema with every field that :class:`fedsim.scenario.parts.OfKind` marked filled in."""
    if isinstance(value, list):
        return [_fill_parts(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(KIND_KEY)
    if kind is None:
        return {key: _fill_parts(item) for key, item in value.items()}
    names = sorted(CATALOG.parts(kind))
    schema = {key: value[key] for key in ("description", "default") if key in value}
    schema["anyOf"] = [{"$ref": f"#/$defs/{kind}.{name}"} for name in [*names, "own"]]
    if "default" in value:
        keys = {"type": "object", "properties": {"name": False}}
        schema["anyOf"].append({**keys, "description": "Keys of the default."})
    short = {"enum": names, "description": "The name of a part with its default parameters."}
    schema["anyOf"] += [short, {"type": "string", "pattern": _OWN}]
    return schema


def _default_parts(value: Any) -> Iterator[str]:
    """Names of the definitions of all parts that are the default of some field."""
    if isinstance(value, dict) and "default" in value and KIND_KEY in value:
        yield f"{value[KIND_KEY]}.{value['default']['name']}"
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _default_parts(item)
