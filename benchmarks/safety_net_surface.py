"""The public surface of fedsim: keys of scenarios, commands and options, columns of tables, imports in the docs.

Whatever is gone or accepts less than before is a difference; additions are allowed. Run by
``python -m benchmarks.safety_net``.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
SURFACE = ROOT / "benchmarks" / "safety_net_surface.json"
_INTENDED = {
    # A recording that fails no longer ends a run.
    "training.cuda_graphs: the default is 'auto', was True",
    # It had to be above 0, which the record expresses differently.
    "devices.compute[exponential].floor: minimum is 0, there was none",
    # In the recorded schema, a quadratic task may omit its name; no version of fedsim accepts that.
    "task.name: is required now",
    "task.name=quadratic: the default is '(none)', was 'quadratic'",
}
_IGNORED = {"description", "title", "$schema", "discriminator", "examples", "format"}
# A limit, and whether a smaller value accepts more.
_LIMITS = {
    "minimum": True,
    "exclusiveMinimum": True,
    "maximum": False,
    "exclusiveMaximum": False,
    "minLength": True,
    "maxLength": False,
    "minItems": True,
    "maxItems": False,
    "ge": True,
    "gt": True,
    "le": False,
    "lt": False,
}


def surface(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The surface of this tree; runs of ``scenario`` write the tables."""
    from fedsim.cli import cli

    return {
        "schema": _stripped(json.loads(_command("scenario", "schema"))),
        "commands": dict(_commands(cli, "fedsim")),
        "tables": tables(scenario),
        "python": members(),
        "imports": imports(),
    }


def write(scenario: Mapping[str, Any]) -> int:
    """Record the surface of this tree."""
    parts = []
    for key, value in surface(scenario).items():
        if isinstance(value, dict):
            inner = ",\n".join(
                f"    {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items()
            )
            parts.append(f"  {json.dumps(key)}: {{\n{inner}\n  }}")
        else:
            parts.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    SURFACE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    return 0


def check(scenario: Mapping[str, Any]) -> int:
    """Print what is gone from the recorded surface or accepts less; returns the number of such differences."""
    was = json.loads(SURFACE.read_text(encoding="utf-8"))
    differences: list[str] = []
    now = surface(scenario)
    differences += [
        f"schema: {text}"
        for text in Schemas(was["schema"], now["schema"]).problems()
        if text not in _INTENDED
    ]
    differences += [f"command {text}" for text in _fewer_options(was["commands"], now["commands"])]
    for table, columns in was["tables"].items():
        present = now["tables"].get(table, {})
        for name, type_ in columns.items():
            if name not in present:
                differences.append(f"table {table}: the column {name} is gone")
            elif present[name] != type_:
                differences.append(f"table {table}: {name} is {present[name]}, was {type_}")
    for owner, names in was["python"].items():
        gone = sorted(set(names) - set(now["python"].get(owner, ())))
        differences += [f"python: {owner}.{name} is gone" for name in gone]
    for line in was["imports"]:
        problem = import_problem(line)
        if problem:
            differences.append(f"import on the pages: {line}: {problem}")
    for text in differences:
        print(f"DIFFERENT {text}")
    print(f"public surface: {len(differences)} differences")
    return len(differences)


# -- commands --------------------------------------------------------------------------------------


def _command(*words: str) -> str:
    """Standard output of a command line of fedsim."""
    from fedsim.cli import cli

    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        try:
            cli.main(list(words), prog_name="fedsim")
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"fedsim {' '.join(words)} ended with {end.code}") from None
    return written.getvalue()


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, Any]]:
    """Every command with its parameters, by its full name."""
    context = click.Context(command, info_name=name)
    yield name, [_parameter(one) for one in command.params]
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            inner = command.get_command(context, sub)
            assert inner is not None
            yield from _commands(inner, f"{name} {sub}")


def _parameter(parameter: click.Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {
        "kind": parameter.param_type_name,
        "names": sorted([*parameter.opts, *parameter.secondary_opts]),
        "type": parameter.type.name,
        "required": parameter.required,
        "nargs": parameter.nargs,
        "multiple": bool(getattr(parameter, "multiple", False)),
        "flag": bool(getattr(parameter, "is_flag", False)),
    }
    if isinstance(parameter.type, click.Choice):
        described["choices"] = [str(choice) for choice in parameter.type.choices]
    default = parameter.default
    if isinstance(default, str | int | float | bool):
        described["default"] = default
    return described


def _fewer_options(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, parameters in was.items():
        if name not in now:
            yield f"{name}: is gone"
            continue
        arguments = [one for one in parameters if one["kind"] == "argument"]
        arguments_now = [one for one in now[name] if one["kind"] == "argument"]
        if len(arguments_now) < len(arguments):
            yield f"{name}: takes fewer arguments"
        pairs = list(zip(arguments, arguments_now, strict=False))
        for option in (one for one in parameters if one["kind"] == "option"):
            for word in option["names"]:
                same = [one for one in now[name] if word in one["names"]]
                if same:
                    pairs.append((option, same[0]))
                else:
                    yield f"{name}: {word} is gone"
        for before, after in pairs:
            yield from (f"{name} {before['names'][0]}: {text}" for text in _narrower(before, after))
        earlier = {word for one in parameters for word in one["names"]}
        extra = [one for one in now[name] if one["kind"] == "option"]
        for one in [*extra, *arguments_now[len(arguments) :]]:
            if one["required"] and not earlier & set(one["names"]):
                yield f"{name}: {one['names'][0]} is new and required"


def _narrower(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if after["required"] and not before["required"]:
        yield "is required now"
    for key in ("nargs", "multiple", "flag"):
        if before[key] != after[key] and not (key == "nargs" and after[key] == -1):
            yield f"{key} is {after[key]}, was {before[key]}"
    if "choices" in after:
        gone = sorted(set(before.get("choices", ["any text"])) - set(after["choices"]))
        if gone:
            yield f"no longer accepts {', '.join(gone)}"
    if before.get("default") != after.get("default"):
        yield f"the default is {after.get('default')}, was {before.get('default')}"


# -- tables ----------------------------------------------------------------------------------------


def tables(scenario: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Columns and types of every table of a run folder, a sweep's index and a trace bundle."""
    import fedsim
    from fedsim.traces.tables import TABLES

    columns: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = {
            **scenario,
            "stop": {"rounds": 2},
            "evaluation": {"every_rounds": 1, "per_client": True, "objective": True},
        }
        fedsim.run(content, folder / "run")
        fedsim.sweep({**content, "sweep": {"seeds": [0, 1]}}, folder / "sweep", jobs=1)
        for name in ("run", "sweep"):
            for path in sorted((folder / name).glob("*.parquet")):
                columns[f"{name}/{path.stem}"] = _columns(path)
    for name, schema in TABLES.items():
        columns[f"bundle/{name}"] = {column.name: str(column.type) for column in schema.columns}
    return columns


def _columns(path: Path) -> dict[str, str]:
    schema = pq.read_schema(path)
    return {field.name: str(field.type) for field in schema}


# -- Python ----------------------------------------------------------------------------------------


def members() -> dict[str, list[str]]:
    """Public names of the package and of the objects that it returns."""
    import fedsim
    from fedsim.sweeps import Sweep

    owners = {"fedsim": None, "Run": fedsim.Run, "Comparison": fedsim.Comparison, "Sweep": Sweep}
    return {
        name: sorted(fedsim.__all__ if owner is None else _public(owner))
        for name, owner in owners.items()
    }


def _public(owner: type) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_")]


def imports() -> list[str]:
    """Imports from fedsim in the code blocks of the docs, and dotted names in their text."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    pages += [*ROOT.glob("docs/**/*.md"), *ROOT.glob("scenarios/**/*.md")]
    statements: set[str] = set()
    for path in sorted(pages):
        text = path.read_text(encoding="utf-8")
        for line in re.findall(
            r"^\s*(?:>>> )?((?:from fedsim|import fedsim)[^\n(]*(?:\([^)]*\))?)", text, re.M
        ):
            with contextlib.suppress(SyntaxError):
                for node in ast.parse(line.strip()).body:
                    if isinstance(node, ast.ImportFrom):
                        statements |= {
                            f"from {node.module} import {one.name}" for one in node.names
                        }
                    elif isinstance(node, ast.Import):
                        statements |= {f"import {one.name}" for one in node.names}
        for dotted in re.findall(r"`(fedsim(?:\.\w+)+)", text):
            if not import_problem(f"name {dotted}"):
                statements.add(f"name {dotted}")
    return sorted(statements)


def import_problem(line: str) -> str | None:
    """Why a recorded import fails; None if it works."""
    words = line.split()
    try:
        if words[0] == "from":
            module = importlib.import_module(words[1])
            if not hasattr(module, words[3]):
                importlib.import_module(f"{words[1]}.{words[3]}")
        elif words[0] == "import":
            importlib.import_module(words[1])
        else:
            target: Any = importlib.import_module("fedsim")
            done = "fedsim"
            for word in words[1].split(".")[1:]:
                done = f"{done}.{word}"
                if hasattr(target, word):
                    target = getattr(target, word)
                else:
                    target = importlib.import_module(done)
    except (ImportError, AttributeError) as error:
        return str(error)
    return None


# -- schema ----------------------------------------------------------------------------------------


def _stripped(value: Any, *, named: bool = False) -> Any:
    """A schema without its texts for people; ``named`` if the keys are the user's own names."""
    if isinstance(value, list):
        return [_stripped(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item if key == "default" and not named else _stripped(item, named=_names(key, named))
        for key, item in value.items()
        if named or key not in _IGNORED
    }


def _names(key: str, named: bool) -> bool:
    return not named and key in ("properties", "$defs", "patternProperties")


class Schemas:
    """Two versions of a schema: the second must accept everything that the first accepts.

    A comparison of structure, not a proof: it reports properties and alternatives that are gone, narrower types, values
    and limits, and other plain defaults.

    Args:
        was: the earlier schema.
        now: the present one.
    """

    def __init__(self, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        self._was, self._now = was, now
        # Pairs of nodes already compared, or being compared further up (schemas may refer to themselves).
        self._known: dict[str, list[str]] = {}

    def problems(self) -> list[str]:
        """The differences: what is gone or narrower, each with the path of the property."""
        return sorted(set(self._compare(self._was, self._now, "")))

    def _alternatives(self, node: Any, root: Mapping[str, Any]) -> list[Any]:
        """The alternatives that a node stands for; references are resolved and their siblings kept."""
        if not isinstance(node, dict):
            return [node]
        node = dict(node)
        if "$ref" in node:
            target: Any = root
            for key in node.pop("$ref").removeprefix("#/").split("/"):
                target = target[key.replace("~1", "/").replace("~0", "~")]
            return self._alternatives(
                {**target, **node} if isinstance(target, dict) else target, root
            )
        for item in node.pop("allOf", []):
            merged = self._alternatives(item, root)
            if len(merged) == 1 and isinstance(merged[0], dict):
                node = {**merged[0], **node}
        for key in ("anyOf", "oneOf"):
            if key in node:
                choices = node.pop(key)
                rest = {name: value for name, value in node.items() if name != "default"}
                return [
                    {**one, **rest} if isinstance(one, dict) else one
                    for choice in choices
                    for one in self._alternatives(choice, root)
                ]
        if isinstance(node.get("type"), list):
            return [{**node, "type": one} for one in node["type"]]
        return [node]

    def _compare(self, was: Any, now: Any, path: str) -> list[str]:
        key = json.dumps([was, now], sort_keys=True)
        if key in self._known:
            return []
        self._known[key] = []
        differences = list(self._default(was, now, path))
        present = self._alternatives(now, self._now)
        for one in self._alternatives(was, self._was):
            if one is False:
                continue
            best: list[str] | None = None
            for other in sorted(present, key=lambda other: not _same_kind(one, other)):
                known = dict(self._known)
                problems = self._covers(one, other, path)
                if best is None or len(problems) < len(best):
                    best = problems
                if not problems:
                    break
                self._known = known
                if _discriminated(one) and _same_kind(one, other):
                    best = problems
                    break
            differences += [f"{path or '(all)'}: nothing is accepted"] if best is None else best
        self._known[key] = differences
        return differences

    def _default(self, was: Any, now: Any, path: str) -> Iterator[str]:
        if not isinstance(was, dict) or "default" not in was:
            return
        before = was["default"]
        after = now.get("default", "(none)") if isinstance(now, dict) else "(none)"
        if isinstance(before, dict | list) and isinstance(after, dict | list):
            return
        if before != after and not (before is None and after == "(none)"):
            yield f"{path}: the default is {after!r}, was {before!r}"

    def _covers(self, was: Any, now: Any, path: str) -> list[str]:
        """What one alternative accepts and the other does not."""
        if now is True or now == {}:
            return []
        if now is False or not isinstance(was, dict):
            return [f"{path}: is no longer accepted"]
        values = _values(was)
        allowed = _values(now)
        name = path or "(all)"
        if allowed is not None:
            if values is None:
                return [f"{name}: accepts only {allowed}"]
            gone = [value for value in values if value not in allowed]
            return [f"{name}: no longer accepts {gone}"] if gone else []
        kind, now_kind = was.get("type"), now.get("type")
        if now_kind is not None and not _type_covers(kind, values, now_kind):
            return [f"{name}: accepts {now_kind}, accepted {kind or values}"]
        if values is not None:
            return []
        differences = []
        for limit, smaller_is_wider in _LIMITS.items():
            if limit not in now:
                continue
            before, after = was.get(limit), now[limit]
            if before is None:
                differences.append(f"{name}: {limit} is {after}, there was none")
            elif (after > before) if smaller_is_wider else (after < before):
                differences.append(f"{name}: {limit} is {after}, was {before}")
        if "pattern" in now and now["pattern"] != was.get("pattern"):
            differences.append(f"{name}: pattern is {now['pattern']}, was {was.get('pattern')}")
        if kind == "object":
            differences += self._object(was, now, path)
        elif kind == "array":
            differences += self._array(was, now, path)
        return differences

    def _object(self, was: Mapping[str, Any], now: Mapping[str, Any], path: str) -> list[str]:
        differences = []
        before, after = was.get("properties", {}), now.get("properties", {})
        others = now.get("additionalProperties", True)
        for name, node in before.items():
            inner = f"{path}.{name}".lstrip(".")
            if _discriminated(was) and name == "name":
                inner = f"{path}.name={node['const']}"
            elif _discriminated(was):
                inner = f"{path}[{before['name']['const']}].{name}"
            if name in after:
                differences += self._compare(node, after[name], inner)
            elif others in (True, False):
                if node is not False:
                    differences.append(f"{inner}: is gone")
            else:
                differences += self._compare(node, others, inner)
        for name in sorted(set(now.get("required", ())) - set(was.get("required", ()))):
            differences.append(f"{path}.{name}: is required now".lstrip("."))
        extra = was.get("additionalProperties", True)
        if extra is not False and others is False:
            differences.append(f"{path or '(all)'}: no longer accepts further keys")
        elif isinstance(extra, dict) and isinstance(others, dict):
            differences += self._compare(extra, others, f"{path}.*")
        return differences

    def _array(self, was: Mapping[str, Any], now: Mapping[str, Any], path: str) -> list[str]:
        differences = []
        first, second = was.get("prefixItems"), now.get("prefixItems")
        if first is not None and second is not None:
            for number, (before, after) in enumerate(zip(first, second, strict=False)):
                differences += self._compare(before, after, f"{path}[{number}]")
        if "items" in was and "items" in now:
            differences += self._compare(was["items"], now["items"], f"{path}[]")
        return differences


def _values(node: Mapping[str, Any]) -> list[Any] | None:
    """The values of an enumeration; None if any value of a type is accepted."""
    if "const" in node:
        return [node["const"]]
    return node.get("enum")


def _type_covers(kind: Any, values: list[Any] | None, required: str) -> bool:
    if kind is None and values is not None:
        names = {"string": str, "integer": int, "number": int | float, "boolean": bool}
        return required in names and all(isinstance(value, names[required]) for value in values)
    return bool(kind == required or (kind == "integer" and required == "number"))


def _discriminated(node: Any) -> bool:
    return isinstance(node, dict) and "const" in (_property(node, "name") or {})


def _property(node: Mapping[str, Any], name: str) -> Any:
    schema = node.get("properties", {}).get(name)
    return schema if isinstance(schema, dict) else None


def _same_kind(was: Any, now: Any) -> bool:
    """Whether two alternatives describe the same part, or, without parts, the same type."""
    if not isinstance(was, dict) or not isinstance(now, dict):
        return bool(was == now)
    if _discriminated(was):
        named = _property(now, "name") or {}
        return bool(_property(was, "name")["const"] in (_values(named) or ()))
    return bool(was.get("type") == now.get("type"))
