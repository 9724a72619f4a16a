"""What kinds of value an annotation of a parameter model allows."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedsim.scenario.model import Slot
from fedsim.scenario.source import KeyPath


@dataclass
class Shape:
    """The values that an annotation allows, taken apart.

    Attributes:
        slot: the mark of a part, where it is one.
        models: parameter models (several for a union).
        items: annotations of the items of a list.
        values: annotations of the values of a mapping with free keys.
        choices: literal values.
        scalars: other types.
    """

    slot: Slot | None = None
    models: list[type[BaseModel]] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    choices: list[Any] = field(default_factory=list)
    scalars: list[type[Any]] = field(default_factory=list)

    @property
    def is_path(self) -> bool:
        """Whether text means a file or folder."""
        return any(issubclass(scalar, Path) for scalar in self.scalars)

    @property
    def wants_number(self) -> bool:
        """Whether a number is allowed and true/false is not."""
        return bool({int, float} & set(self.scalars)) and bool not in self.scalars

    def model_for(self, value: Mapping[str, Any]) -> type[BaseModel] | None:
        """The model that checks ``value``: the only one, or the one its ``name`` picks."""
        if len(self.models) == 1:
            return self.models[0]
        for model in self.models:
            name = model.model_fields.get("name")
            if name and value.get("name", name.default) in shape_of(name.annotation).choices:
                return model
        return None


def shape_of(annotation: Any, metadata: Iterable[Any] = ()) -> Shape:
    """Take an annotation apart; ``metadata`` is what stood around it in ``Annotated``."""
    shape = Shape(slot=next((item for item in metadata if isinstance(item, Slot)), None))
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = shape_of(arguments[0], arguments[1:])
        inner.slot = inner.slot or shape.slot
        return inner
    if origin in (Union, types.UnionType):
        for argument in arguments:
            part = shape_of(argument)
            shape.slot = shape.slot or part.slot
            for name in ("models", "items", "values", "choices", "scalars"):
                getattr(shape, name).extend(getattr(part, name))
    elif origin is Literal:
        shape.choices.extend(arguments)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        shape.values.append(arguments[1])
    elif isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset):
        shape.items.extend(argument for argument in arguments if argument is not Ellipsis)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        shape.models.append(annotation)
    elif isinstance(annotation, type) and annotation is not type(None):
        shape.scalars.append(annotation)
    return shape


def field_shape(info: FieldInfo) -> Shape:
    """What a field of a model allows."""
    return shape_of(info.annotation, info.metadata)


def key_of(name: str, info: FieldInfo) -> str:
    """How a field is written in a file."""
    return info.alias or name


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model as they are written in a file."""
    return {key_of(name, info): info for name, info in model.model_fields.items()}


def model_at(model: type[BaseModel], data: Any, path: KeyPath) -> type[BaseModel] | None:
    """The model that checks the mapping at ``path`` within ``data``, itself checked by ``model``."""
    shape, value = Shape(models=[model]), data
    for element in path:
        if isinstance(value, dict):
            info = None
            found = shape.model_for(value)
            if found is not None:
                info = fields_by_key(found).get(str(element))
            if info is not None:
                shape = field_shape(info)
            elif shape.values:
                shape = shape_of(shape.values[0])
            else:
                return None
            value = value.get(element)
        elif isinstance(value, list) and shape.items and isinstance(element, int):
            shape = shape_of(shape.items[0])
            value = value[element] if element < len(value) else None
        else:
            return None
    return shape.model_for(value) if isinstance(value, dict) else None
