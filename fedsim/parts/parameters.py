"""Parameter models: frozen, without unknown keys, with helpful error messages.

Every section of a scenario and the ``Params`` of every part derive from :class:`Parameters`. While a scenario is
loaded, paths in them become absolute, regardless of the type that contains them: ``Path``, ``FilePath | None``,
``list[Path]``, ``dict[str, DirectoryPath]``. Text for ``Path | str`` becomes a path if there is such a file or folder.
"""

from __future__ import annotations

import functools
import math
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ErrorType

from fedsim import bundled
from fedsim.errors import UserError, nearest, nearest_or_all


class MissingParameterError(UserError, AttributeError):
    """A user's part reads a parameter that its ``Params`` do not have."""

    def __init__(self, model: type[BaseModel], name: str) -> None:
        known = ", ".join(model.model_fields)
        super().__init__(
            f"there is no parameter '{name}': "
            + (f"those of {model.__qualname__} are {known}" if known else "the part has no Params"),
            hint=f"declare it inside your class: class Params(Parameters): {name}: int = 10; "
            "for the cohort of a selection, Params = CohortParams (fedsim.scheduling.base)",
        )


class Parameters(BaseModel):
    """Base of every parameter model: unknown keys are refused, values are frozen.

    The docstring below a field describes it in the reference, in the JSON Schema and in error messages.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @model_validator(mode="wrap")
    @classmethod
    def _read(
        cls, value: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        """Prepare the value for pydantic, and explain pydantic's errors."""
        if isinstance(value, Mapping):
            value = _prepared(cls, value, getattr(info.context, "folder", None))
        try:
            return handler(value)
        except ValidationError as error:
            raise _explained(cls, error) from None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The value of a private attribute; there is no other one."""
            if name.startswith("_"):
                return super().__getattr__(name)
            raise MissingParameterError(type(self), name)

    @classmethod
    def how_to_give(cls, key: str, given: Mapping[str, Any]) -> str:
        """How a scenario gives a parameter that is missing beside those ``given``, besides its description."""
        return ""


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings below the fields of a model, by key in a file."""
    fields = fields_by_key(model).items()
    return {key: info.description for key, info in fields if info.description}


def without_markup(text: str) -> str:
    """Text of a docstring for readers of a terminal or of Markdown: code and references in single backticks."""
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text.replace("``", "`"))


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by their key in a file."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def alternatives(annotation: Any) -> list[Any]:
    """The types that an annotation allows: the members of a union, without the metadata of ``Annotated``."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [inner for member in get_args(annotation) for inner in alternatives(member)]
    return [annotation]


def element_types(annotation: Any) -> tuple[list[Any], list[Any]]:
    """The types of the items of a list and of the values of a mapping, if ``annotation`` (no union) is one."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [], [arguments[1]]
    if isinstance(origin, type) and issubclass(origin, Sequence | AbstractSet):
        return [item for item in arguments if item is not Ellipsis], []
    return [], []


# -- preparing values ---------------------------------------------------------------------------------------------

_LARGEST_INT, _LARGEST_FLOAT = 2**63 - 1, 1e38
"""Limits of a parameter: what 64 bits hold, and what is finite in single precision."""
_Preparer = Callable[[Any, Path | None], Any]


class _NoNumber:
    """What pydantic would read as a number, but is ``true``, ``false``, text, or too large to compute with."""

    def __init__(self, value: object, shown: str) -> None:
        self._value, self._shown = value, shown

    def __repr__(self) -> str:
        return self._shown

    def __str__(self) -> str:
        return str(self._value)


def _prepared(model: type[Parameters], data: Mapping[Any, Any], folder: Path | None) -> Any:
    result = dict(data)
    for key, preparer, omits_null in _preparers(model):
        if key not in result:
            continue
        if result[key] is None and omits_null:
            # A section without keys, for example with all of them commented out, counts as absent.
            del result[key]
        elif preparer is not None:
            result[key] = preparer(result[key], folder)
    return result


@functools.cache
def _preparers(model: type[Parameters]) -> list[tuple[str, _Preparer | None, bool]]:
    preparers = []
    for key, info in fields_by_key(model).items():
        omits_null = bool(info.validate_default) or isinstance(info.default, BaseModel)
        preparer = _preparer(
            Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        )
        if preparer is not None or omits_null:
            preparers.append((key, preparer, omits_null))
    return preparers


def _parses_text(annotation: Any) -> bool:
    """Whether a type itself parses numbers from text, such as a duration from ``5 min``."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return any(isinstance(item, BeforeValidator) for item in metadata) or _parses_text(inner)
    return any(_parses_text(item) for item in get_args(annotation))


def _preparer(annotation: Any) -> _Preparer | None:
    """Function that prepares values of a type for pydantic; None if they need no preparation."""
    types_ = alternatives(annotation)
    plain = [item for item in types_ if isinstance(item, type)]
    is_path = any(issubclass(item, Path) for item in plain)
    takes_number = bool({int, float} & set(plain))
    largest = _LARGEST_FLOAT if float in plain else _LARGEST_INT
    refuses_truth = takes_number and bool not in plain
    refuses_text = (
        takes_number and str not in plain and not is_path and not _parses_text(annotation)
    )
    choices = [word for item in types_ if get_origin(item) is Literal for word in get_args(item)]
    models = [item for item in plain if issubclass(item, BaseModel)]
    named = [info for model in models if (info := model.model_fields.get("name")) is not None]
    defaults = (info.default for info in named if not info.is_required())
    default_name = next(defaults, None) if len(models) > 1 else None
    words = [info.annotation for info in named if get_origin(info.annotation) is Literal]
    names = {word for annotation_of_name in words for word in get_args(annotation_of_name)}
    elements = [element_types(item) for item in types_]
    of_items, of_values = (
        next((made for pair in elements for item in pair[side] if (made := _preparer(item))), None)
        for side in (0, 1)
    )
    if not (
        is_path or refuses_truth or refuses_text or default_name or names or of_items or of_values
    ):
        return None

    def prepare(value: Any, folder: Path | None) -> Any:
        if isinstance(value, bool):
            return _NoNumber(value, str(value).lower()) if refuses_truth else value
        if refuses_text and isinstance(value, int | float) and largest < abs(value) < math.inf:
            shown = f"{float(str(value)):g}; the largest is {largest:g}"
            return _NoNumber(shown, shown)
        if isinstance(value, str | Path):
            if value in names and not choices:
                return {"name": value}
            if is_path and str(value).startswith(bundled.PREFIX):
                return bundled.resolved(value)
            if refuses_text and value not in choices:
                return _NoNumber(value, repr(str(value)))
            if is_path and folder is not None and value not in choices:
                path = folder / Path(value).expanduser()
                if str in plain:
                    return Path(os.path.abspath(path)) if os.path.exists(path) else value
                # Unlike Path.resolve, realpath leaves a loop of symbolic links for its reader to report.
                return Path(os.path.realpath(path))
            return value
        if isinstance(value, Mapping):
            if default_name is not None and "name" not in value:
                return {"name": default_name, **value}
            if of_values is not None and not models:
                return {key: of_values(item, folder) for key, item in value.items()}
        elif isinstance(value, list | tuple) and of_items is not None:
            return [of_items(item, folder) for item in value]
        return value

    return prepare


# -- explaining errors --------------------------------------------------------------------------------------------


def _explained(model: type[Parameters], error: ValidationError) -> ValidationError:
    """The error with the model's known keys and the descriptions of its fields; of many unknown keys, the first."""
    items = error.errors(include_url=False)
    unknown = [item for item in items if item["type"] == "extra_forbidden"]
    if hidden := unknown[_MOST_UNKNOWN:]:
        items = [item for item in items if item not in hidden]
        message = f"{UNKNOWN_KEY}, and {len(hidden)} more are not shown"
        unknown[_MOST_UNKNOWN - 1]["ctx"] = {"message": message}
    details = [
        InitErrorDetails(
            type=_explanation(model, item),
            loc=item["loc"],
            input=item["input"],
            ctx=item.get("ctx", {}),
        )
        for item in items
    ]
    return ValidationError.from_exception_data(error.title, details)


def _explanation(model: type[Parameters], item: ErrorDetails) -> str | PydanticCustomError:
    kind, context, location = item["type"], item.get("ctx", {}), item["loc"]
    if "hint" in context:
        return mistake(kind, item["msg"], context["hint"])
    if kind not in _STANDARD_ERRORS:
        return PydanticCustomError(kind, item["msg"], context)
    name, colon, rest = str(location[-1] if location else "").partition(":")
    if item["input"] is None and colon:
        return mistake(kind, "has no value", f"write a space after the colon: {name}: {rest}")
    if len(location) != 1:
        return kind
    key = str(location[0])
    meaning = " ".join(without_markup(descriptions(model).get(key, "")).split()) or None
    if kind == "missing":
        hint = "\n  ".join(filter(None, (meaning, model.how_to_give(key, item["input"]))))
        return mistake(kind, "is missing", hint or None)
    if kind == "extra_forbidden":
        known = list(fields_by_key(model))
        if f"'{_NAME}'" in nearest(key, [*known, _NAME]) and _NAME not in known:
            known.insert(0, _NAME)
        every = f"known keys: {', '.join(known)}" if known else NO_PARAMETERS
        hint = nearest_or_all(key, known, every)
        return mistake(kind, context.get("message", UNKNOWN_KEY), hint)
    return kind


_STANDARD_ERRORS = frozenset(get_args(ErrorType))
UNKNOWN_KEY = "unknown key"
_MOST_UNKNOWN = 20
"""Unknown keys of a part that are reported; they are all mistakes, and few of them are read."""
NO_PARAMETERS = (
    "this part has no parameters; those of a class of your own are the fields of its Params"
)
_NAME = "name"
"""The key of a part that is not one of its parameters."""


def mistake(kind: str, message: str, hint: str | None = None) -> PydanticCustomError:
    """A mistake in a scenario, for pydantic to report at the location of the value."""
    context = {"message": message, "hint": hint}
    return PydanticCustomError(kind, "{message}", context)
