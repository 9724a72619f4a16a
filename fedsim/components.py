"""Named, replaceable parts of a scenario: methods, schedules, selections, datasets, models and the like.

A part is a class with a ``name`` and a ``Params`` model. It lives in a file of its own in the package of its kind,
where it is
found without being listed anywhere, or in a file of the user's (``name: my_method.py:MyMethod``).
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import logging
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, TypeVar

from fedsim.errors import UserError
from fedsim.parameters import Parameters as Parameters


class Component:
    """A named part of a scenario with validated parameters.

    Subclasses that are not parts themselves (bases) leave ``name`` empty.

    Attributes:
        name: how a scenario names the part.
        Params: its parameters.
        companions: parts of other kinds in the same section that belong to this one, where the scenario gives none:
            kind to a part as a scenario writes it, such as ``{"schedule": {"name": "buffered"}}``.
    """

    name: ClassVar[str] = ""
    Params: ClassVar[type[Parameters]] = Parameters
    companions: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})


ComponentType = TypeVar("ComponentType", bound=Component)


@functools.cache
def discover(package: str, base: type[ComponentType]) -> dict[str, type[ComponentType]]:
    """The parts of one kind that ship with fedsim, by name, from the modules of ``package``."""
    found: dict[str, type[ComponentType]] = {}
    root = importlib.import_module(package)
    for info in sorted(pkgutil.iter_modules(root.__path__), key=lambda module: module.name):
        module = importlib.import_module(f"{package}.{info.name}")
        for value in vars(module).values():
            if not (isinstance(value, type) and issubclass(value, base) and value.name):
                continue
            if value.__module__ != module.__name__ or inspect.isabstract(value):
                continue
            if value.name in found:
                raise RuntimeError(
                    f"two parts are named {value.name!r}: {found[value.name]} and {value}"
                )
            found[value.name] = value
    return dict(sorted(found.items()))


def is_user_reference(name: str) -> bool:
    """Whether ``name`` names a class in a file of the user's: ``path/to/file.py:ClassName``."""
    return ".py:" in name


NO_USER_CODE = "FEDSIM_NO_USER_CODE"
"""Environment variable that refuses to import files of users; processes that are started inherit it."""

_LOGGER = logging.getLogger("fedsim")
_USER_MODULE = "fedsim_user_"


def users_traceback(error: BaseException) -> TracebackType | None:
    """Where ``error`` passed through a file of the user's: its traceback from there on; None where it did not."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(_USER_MODULE):
            return trace
        trace = trace.tb_next
    return None


def users_line(error: BaseException) -> str | None:
    """The innermost line of a file of the user's that ``error`` passed through, as ``file:line``; None where none."""
    trace, found = users_traceback(error), None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(_USER_MODULE):
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def load_user_component(
    reference: str,
    base: type[Any],
    folder: Path,
    of_function: Callable[[Callable[..., Any]], type[Any]] | None = None,
) -> type[Any]:
    """The class ``file.py:ClassName`` (relative to ``folder``), which must derive from ``base``.

    If ``of_function`` is given, the name may also be that of a function, which it turns into a class. The file is named
    in the log (logger ``fedsim``, level INFO) before it is imported.

    Raises:
        UserError: the file or class is missing, cannot be imported, or is not a ``base``, or user code is refused
            (:data:`NO_USER_CODE`).
    """
    path_text, _, class_name = reference.rpartition(":")
    path = (folder / path_text).resolve()
    if not path.is_file():
        raise UserError(f"no such file: {path}", hint="paths are relative to the scenario file")
    module_name = f"{_USER_MODULE}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if module_name not in sys.modules:
        if os.environ.get(NO_USER_CODE, "0") not in ("", "0"):
            raise UserError(
                f"the code in {path} may not run, because --no-user-code or {NO_USER_CODE} is set",
                hint="read the file, and leave out the option if you trust it",
            )
        _LOGGER.info("running the code in %s", path)
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[module_name]
            raise UserError(
                f"{path} cannot be imported: {type(error).__name__}: {error}"
            ) from error
    value = getattr(sys.modules[module_name], class_name, None)
    if of_function is not None and inspect.isfunction(value):
        return of_function(value)
    if not (isinstance(value, type) and issubclass(value, base)):
        known = [
            key
            for key, item in vars(sys.modules[module_name]).items()
            if isinstance(item, type) and issubclass(item, base) and item is not base
        ]
        raise UserError(
            f"{path} has no {'class' if base is object else base.__name__} named '{class_name}'",
            hint=f"it defines: {', '.join(known) or 'none'}",
        )
    if inspect.isabstract(value):
        lacking = ", ".join(sorted(getattr(value, "__abstractmethods__", ())))
        raise UserError(
            f"{class_name} in {path} lacks {lacking}",
            hint=f"a {base.__name__} must define {lacking}",
        )
    return value
