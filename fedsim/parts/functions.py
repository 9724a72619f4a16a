"""Users' functions: their parameters, from the signature, and what they return."""

from __future__ import annotations

import inspect
import json
import re
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar, get_type_hints

from pydantic import Field, TypeAdapter, create_model

from fedsim.errors import UserError
from fedsim.parts.component import defined_at, import_path, is_bundled, place
from fedsim.parts.parameters import Parameters
from fedsim.vocabulary.formatting import format_names

_Kind = TypeVar("_Kind")
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 1
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class FunctionParameters(Parameters):
    """Arguments of a function, by name.

    Attributes:
        reference: the function as a scenario names it, relative to the folder of its file.
        filled: arguments that need not be given.
    """

    reference: ClassVar[str] = ""
    filled: ClassVar[Sequence[str]] = ()

    @classmethod
    def how_to_give(cls, key: str, given: Mapping[str, Any]) -> str:
        """The function with this argument, as written in a scenario."""
        written = f"write {{name: {cls.reference}, {key}: ...}}"
        return (
            f"{written}; only {format_names(cls.filled)} are filled in" if cls.filled else written
        )

    def arguments(self) -> dict[str, Any]:
        """The arguments, by name."""
        fields = type(self).model_fields.items()
        given = {info.alias or name: getattr(self, name) for name, info in fields}
        return given | (self.model_extra or {})


def parameters_of(
    function: Callable[..., Any],
    *supplied: str,
    filled: Sequence[str] = (),
    base: type[FunctionParameters] = FunctionParameters,
) -> type[FunctionParameters]:
    """The model of a function's parameters after the first ones, which fedsim supplies by position.

    A parameter without annotation has the type of its default. One whose default cannot be written in a scenario (an
    object, infinity) keeps that default and is left out. The docstring's section ``Args`` describes the parameters.

    Args:
        function: the user's function, or a class.
        supplied: names of the arguments that fedsim supplies, for messages.
        filled: parameters that fedsim fills in by name unless the scenario gives them; None if it does not.
        base: base class of the model.
    """
    signature = inspect.signature(function)
    further = list(signature.parameters.values())
    for _ in supplied:
        if further and further[0].kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.KEYWORD_ONLY,
        ):
            further.pop(0)
    required = [item.name for item in further if item.kind in _BY_NAME]
    try:
        signature.bind(*supplied, **dict.fromkeys(required))
    except TypeError:
        raise UserError(
            f"{function.__name__}{_written(function)} ({defined_at(function)}) cannot be called with "
            f"{' and '.join(supplied) or 'arguments by name'}",
            hint=f"write it as def {function.__name__}({', '.join([*supplied, '...'])})",
        ) from None
    # The entries of the section Args of the docstring, by parameter.
    _, _, section = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+)[^:\n]*: (.+(?:\n {5,}.+)*)", section.split("\n\n")[0], re.M)
    meanings = {name: " ".join(text.split()) for name, text in entries}
    fields: dict[str, Any] = {}
    for number, item in enumerate(further):
        is_filled = item.name in filled
        if item.kind not in _BY_NAME or not (is_filled or _is_plain(item.default)):
            continue
        # An alias, because some names of arguments, such as _width or copy, are not allowed for fields.
        fields[f"argument_{number}"] = (
            Any if is_filled else _type_of(function, item),
            Field(
                default=None
                if is_filled
                else (... if item.default is item.empty else item.default),
                alias=item.name,
                description="By default that of the data set."
                if is_filled
                else meanings.get(item.name),
            ),
        )
    takes_more = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in further)
    extra = {"extra": "allow"} if takes_more else {}
    model = create_model(
        f"{function.__name__}_parameters", __base__=base, __cls_kwargs__=extra, **fields
    )
    file = Path(getattr(sys.modules.get(function.__module__), "__file__", None) or "")
    model.reference = f"{file.name}:{function.__name__}".lstrip(":")
    model.filled = filled
    return model


def called(part: type[Any]) -> str:
    """The name of a part in messages: its ``name``, or its class if a user's class has no ``name`` of its own."""
    name: str = part.name if is_bundled(part) else vars(part).get("name", "")
    return name or part.__name__


def wrong_return(user_class: type[Any], function: str, what: str, hint: str) -> UserError:
    """The error for ``what`` a function of a user's class returns."""
    return UserError(f"returns {what}", where=place(user_class, function), hint=hint)


def returned(user_class: type[Any], function: str, value: Any, kind: type[_Kind]) -> _Kind:
    """The value that a function of a user's class returns, which must be of this kind."""
    if not isinstance(value, kind):
        raise wrong_return(user_class, function, shown(value), f"return a {import_path(kind)}")
    return value


def shown(value: Any) -> str:
    """A value for messages: the shape and type of an array or tensor, the abbreviated text of anything else."""
    if getattr(value, "shape", ()):
        kind = {"ndarray": "an array"}.get(type(value).__name__, f"a {type(value).__name__}")
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{kind} of shape {tuple(value.shape)} and type {dtype}"
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits.
        return f"a value that cannot be written, of type {type(value).__name__}"


def _written(function: Callable[..., Any]) -> str:
    """A function's parameters as written, without annotations."""
    signature = inspect.signature(function)
    bare = [item.replace(annotation=item.empty) for item in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def _is_plain(value: Any) -> bool:
    """Whether a scenario can hold a default."""
    if value is inspect.Parameter.empty:
        return True
    try:
        return bool(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return False


def _type_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The annotated type of a parameter, else that of its default; Any if pydantic cannot check it."""
    annotation, default = parameter.annotation, parameter.default
    if annotation is not parameter.empty:
        holder = SimpleNamespace(__annotations__={"it": annotation})
        try:
            names = vars(sys.modules[function.__module__])
            annotation = get_type_hints(holder, names, include_extras=True)["it"]
            TypeAdapter(annotation)
        # An annotation may be any expression, such as a name that only type checkers import, or a tensor.
        except Exception:
            return Any
        return annotation
    types: dict[type[Any], Any] = {int: int | float, tuple: tuple[Any, ...]}
    return types.get(type(default), type(default) if isinstance(default, bool | float) else Any)
