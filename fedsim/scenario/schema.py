"""The JSON Schema of scenarios, with the parameters of every part."""

from __future__ import annotations

from typing import Any

from fedsim.scenario.catalog import Catalog, summary
from fedsim.scenario.model import SLOT_KEY, Scenario


def json_schema(catalog: Catalog) -> dict[str, Any]:
    """The schema (draft 2020-12) of a scenario file.

    Editors with a YAML language server complete and check scenarios with it.
    """
    schema = Scenario.model_json_schema()
    definitions = schema["$defs"]
    for kind, entry in catalog.kinds.items():
        for name, component in sorted(entry.registry().items()):
            prefix = f"{kind}.{name}"
            own = component.Params.model_json_schema(ref_template=f"#/$defs/{prefix}.{{model}}")
            for inner, definition in own.pop("$defs", {}).items():
                definitions[f"{prefix}.{inner}"] = definition
            own["title"] = prefix
            own["description"] = summary(component)
            named = {"const": name, "description": f"The {kind} {name}."}
            own["properties"] = {"name": named, **own.get("properties", {})}
            own["required"] = ["name", *own.get("required", [])]
            definitions[prefix] = own
        definitions[f"{kind}.own"] = {
            "title": f"{kind} of your own",
            "type": "object",
            "properties": {
                "name": {
                    "type": "string",
                    "pattern": r"\.py:[A-Za-z_][A-Za-z0-9_]*$",
                    "description": "file.py:ClassName, relative to the scenario file",
                }
            },
            "required": ["name"],
        }
    filled = _fill_slots(schema, catalog)
    filled.update(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "fedsim scenario"}
    )
    result: dict[str, Any] = filled
    return result


def _fill_slots(value: Any, catalog: Catalog) -> Any:
    if isinstance(value, list):
        return [_fill_slots(item, catalog) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(SLOT_KEY)
    if kind is None:
        return {key: _fill_slots(item, catalog) for key, item in value.items()}
    names = [*catalog.names(kind), "own"]
    place: dict[str, Any] = {"anyOf": [{"$ref": f"#/$defs/{kind}.{name}"} for name in names]}
    if "description" in value:
        place["description"] = value["description"]
    if "default" in value:
        # The part's name may be left out where the section has a default for it.
        place["default"] = value["default"]
        place["anyOf"].append(
            {"type": "object", "properties": {"name": False}, "description": "Keys of the default."}
        )
    return place
