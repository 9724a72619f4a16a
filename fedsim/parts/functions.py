"""Users' functions: their parameters, from the signature, and what they return."""

from __future__ import annotations

import inspect
import math
import re
import reprlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar, get_type_hints

from pydantic import Field, TypeAdapter, create_model

from fedsim.errors import UserError
from fedsim.parts.component import Component, defined_at, import_path, is_bundled, place
from fedsim.parts.parameters import Parameters
from fedsim.vocabulary.formatting import format_names

_T = TypeVar("_T")
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 1
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
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
    def how_to_give(cls, key: str) -> str:
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

    Raises:
        UserError: the function cannot be called with these arguments.
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
    meanings = _meanings(function)
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


def check_overrides(user_class: type[Any], base: type[Any]) -> None:
    """Refuse functions of a user's class that cannot be called as those of its base are.

    Raises:
        UserError: with the first such function, and how it is called.
    """
    for name, declared in inspect.getmembers(base, inspect.isfunction):
        function = inspect.getattr_static(user_class, name)
        if not inspect.isfunction(function) or is_bundled(function) or not is_bundled(declared):
            continue
        parameters = list(inspect.signature(declared).parameters.values())
        if any(item.kind in _VARIABLE for item in parameters):
            continue
        for needed in (parameters, [item for item in parameters if item.default is item.empty]):
            by_name = [item.name for item in needed if item.kind is item.KEYWORD_ONLY]
            by_position = [item.name for item in needed if item.kind is not item.KEYWORD_ONLY]
            # A wrapper is called by its own signature: that of a metric function stands for a method.
            called = inspect.signature(function, follow_wrapped=False)
            try:
                called.bind(*by_position, **dict.fromkeys(by_name))
            except TypeError:
                raise UserError(
                    f"{user_class.__name__}.{name}{_written(function)} ({defined_at(function)}) cannot be called as "
                    f"{base.__name__}.{name}{_written(declared)}",
                    hint=f"write it as def {name}{_written(declared)}",
                ) from None


def called(part: type[Any]) -> str:
    """The name of a part in messages: its ``name``, or its class if a user's class has no ``name`` of its own."""
    name: str = part.name if is_bundled(part) else vars(part).get("name", "")
    return name or part.__name__


def mistake_in_class(error: BaseException) -> UserError | None:
    """The error for a user's class that lacks something that its base in fedsim needs, if ``error`` is due to that.

    Either its ``__init__`` does not call that of its base, or its ``Params`` lack a parameter of the base.
    """
    if not isinstance(error, AttributeError):
        return None
    if isinstance(error.obj, Component):
        return _skipped_init(error, type(error.obj))
    return _missing_parameter(error, type(error.obj)) if isinstance(error.obj, Parameters) else None


def _skipped_init(error: AttributeError, kind: Any) -> UserError | None:
    base = next(base for base in kind.__mro__ if is_bundled(base) and "__init__" in vars(base))
    init = kind.__init__
    if is_bundled(init) or error.name not in _names_in_inits(base):
        return None
    arguments = list(inspect.signature(base.__init__).parameters)[1:]
    return UserError(
        f"{kind.__name__} has no attribute '{error.name}'",
        where=defined_at(init),
        hint=f"call super().__init__({', '.join(arguments)}) at the beginning of {init.__qualname__}",
    )


def _missing_parameter(error: AttributeError, params: type[Parameters]) -> UserError | None:
    for kind in _subclasses(Component):
        if is_bundled(kind) or kind.Params is not params:
            continue
        for base in filter(is_bundled, kind.__mro__):
            declared = getattr(base, "Params", Parameters)
            if error.name in declared.model_fields:
                name = declared.__name__
                return UserError(
                    f"its Params lack the parameter '{error.name}', which {base.__name__} reads",
                    where=place(kind),
                    hint=f"derive them from {name}, after from {declared.__module__} import {name}",
                )
    return None


def _subclasses(kind: type[_T]) -> Iterator[type[_T]]:
    for derived in kind.__subclasses__():
        yield derived
        yield from _subclasses(derived)


def _names_in_inits(base: type[Any]) -> set[str]:
    """Names that occur in the ``__init__`` of a class and of its bases, those of the attributes included."""
    inits = [vars(kind).get("__init__") for kind in base.__mro__ if kind is not object]
    return {name for init in inits if inspect.isfunction(init) for name in init.__code__.co_names}


def returned(user_class: type[Any], function: str, value: _T, kind: type[Any]) -> _T:
    """The value that a function of a user's class has returned, which must be a ``kind``.

    Raises:
        UserError: it is not.
    """
    if not isinstance(value, kind):
        raise wrong_return(user_class, function, shown(value), f"return a {import_path(kind)}")
    return value


def check_returns(part: Any, function: str, kind: type[Any]) -> None:
    """Let a user's part raise an error if its ``function`` returns anything but a ``kind``; others are left alone."""
    if is_bundled(type(part)):
        return
    call = getattr(part, function)

    def checked(*args: Any) -> Any:
        return returned(type(part), function, call(*args), kind)

    setattr(part, function, checked)


def returned_number(user_class: type[Any], function: str, value: Any) -> float:
    """The value that a function of a user's class has returned, which must be finite and at least 0.

    Raises:
        UserError: it is not.
    """
    try:
        sound = bool(0 <= value < math.inf)
    except (TypeError, ValueError, RuntimeError):  # not a number, or several
        sound = False
    if not sound:
        hint = "return a number that is finite and at least 0"
        raise wrong_return(user_class, function, shown(value), hint)
    return float(value)


def wrong_return(user_class: type[Any], function: str, what: str, hint: str) -> UserError:
    """The error for ``what`` a function of a user's class returns."""
    return UserError(f"returns {what}", where=place(user_class, function), hint=hint)


def shown(value: Any) -> str:
    """A value for messages: the shape and type of an array or tensor, the abbreviated text of anything else."""
    if getattr(value, "shape", ()):
        kind = {"ndarray": "an array"}.get(type(value).__name__, f"a {type(value).__name__}")
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{kind} of shape {tuple(value.shape)} and type {dtype}"
    return _SHORT.repr(value)


def _written(function: Callable[..., Any]) -> str:
    """A function's parameters as written, without annotations."""
    signature = inspect.signature(function)
    bare = [item.replace(annotation=item.empty) for item in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def _is_plain(value: Any) -> bool:
    """Whether a scenario can hold a default."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, float):
        return math.isfinite(value)
    return (
        value is None or isinstance(value, bool | int | str) or (value is inspect.Parameter.empty)
    )


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
    if isinstance(default, bool):
        return bool
    if isinstance(default, int):
        return int | float
    if isinstance(default, float):
        return float
    return tuple[Any, ...] if isinstance(default, tuple) else Any


def _meanings(function: Callable[..., Any]) -> dict[str, str]:
    """The entries of the section ``Args`` of a function's docstring, by parameter."""
    _, _, section = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+)[^:\n]*: (.+(?:\n {5,}.+)*)", section.split("\n\n")[0], re.M)
    return {name: " ".join(text.split()) for name, text in entries}
