"""Every part that ships with fedsim: findable, described, and written out such that it is read back the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.parts.parameters import Parameters, alternatives, element_types
from fedsim.scenario.loading import load_part
from tests.named_parts import PARTS

# Values for the parameters that have no default.
GIVEN = {
    "alpha": 0.3,
    "clients": 4,
    "labels_per_client": 2,
    "length": 10,
    "unit": "ms",
    "high": "2s",
    "low": "1s",
    "mean": "1s",
    "median": "1s",
    "step": "1s",
    "dataset": "digits",
    "model": "mlp",
    "partition": {"name": "iid", "clients": 2},
    "partitioner": "IidPartitioner",
    "path": "file",
    "root": "folder",
    "target": "label",
    "centers": [[1.0]],
    "points": [[0, 1], [5, 0.5]],
    "rounds": [[0], [1, 2]],
}


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_parameters_written_out_are_read_back_the_same(kind: str, name: str) -> None:
    params = CATALOG.find(kind, name, Path.cwd()).Params
    required = {key: info for key, info in params.model_fields.items() if info.is_required()}
    assert set(required) <= set(GIVEN), "add an example value to GIVEN"
    needed = {info.alias or key: GIVEN[key] for key, info in required.items()}
    first = params.model_validate(needed)
    written = first.model_dump(mode="json", by_alias=True)
    again = params.model_validate(written)
    assert again == first
    assert again.model_dump(mode="json", by_alias=True) == written


def _path_examples(model: type[BaseModel]) -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    """For every path a model may hold: a mapping that gives ``x/y`` for it, and where it then is."""
    for name, info in model.model_fields.items():
        key = info.alias or name
        for annotation in alternatives(info.annotation):
            items, values = element_types(annotation)
            holders: list[tuple[Any, Any, tuple[Any, ...]]] = [
                (annotation, lambda value: value, ())
            ]
            holders += [(item, lambda value: [value], (0,)) for item in items]
            holders += [(item, lambda value: {"k": value}, ("k",)) for item in values]
            for holder, wrap, inside in holders:
                for one in alternatives(holder):
                    if not isinstance(one, type):
                        continue
                    if issubclass(one, Path):
                        yield {key: wrap("x/y")}, (name, *inside)
                    if issubclass(one, BaseModel):
                        for given, where in _path_examples(one):
                            yield {key: wrap(_needed(one) | given)}, (name, *inside, *where)


def _needed(model: type[BaseModel]) -> dict[str, Any]:
    """Values for what a model requires."""
    return {
        key: get_args(info.annotation)[0] if get_origin(info.annotation) is Literal else GIVEN[key]
        for key, info in model.model_fields.items()
        if info.is_required()
    }


def test_every_path_of_every_part_is_absolute_once_loaded(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "y").write_text("")
    seen = []
    for kind, name in PARTS:
        model = CATALOG.find(kind, name, Path.cwd()).Params
        required = {key for key, info in model.model_fields.items() if info.is_required()}
        for given, where in _path_examples(model):
            needed = {key: GIVEN[key] for key in required if key not in given}
            value: Any = load_part(kind, {"name": name, **needed, **given}, tmp_path).params
            for step in where:
                is_field = isinstance(step, str) and not isinstance(value, dict)
                value = getattr(value, step) if is_field else value[step]
            assert value == tmp_path / "x" / "y", (kind, name, where)
            seen.append((kind, name, *where))
    assert len(seen) > 12
    assert ("network", "shared", "topology", "path") in seen


def test_every_parameter_model_refuses_unknown_keys_and_is_frozen() -> None:
    for kind, name in PARTS:
        CATALOG.find(kind, name, Path.cwd())
    models = [Parameters]
    for model in models:
        models += [one for one in model.__subclasses__() if one.__module__.startswith("fedsim.")]
    assert len(models) > 100
    for model in models:
        assert model.model_config["extra"] == "forbid", model
        assert model.model_config["frozen"], model


def test_a_part_of_the_logging_section_is_called_a_tracker(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no tracker named 'wandbb'"):
        CATALOG.find("logging", "wandbb", tmp_path)
