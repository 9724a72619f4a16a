"""Named, replaceable parts of a scenario: methods, schedules, selections, data sets, models and the like.

A part is a class with a ``name`` and a ``Params`` model. It is defined in a file of the package of
its kind, where it is found without being listed anywhere, or in a user's file
(``name: my_method.py:MyMethod``).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import logging
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, TypeVar

from fedsim.errors import UserError, nearest_or_all
from fedsim.parts.parameters import Parameters as Parameters


class Component:
    """A named part of a scenario with validated parameters.

    Subclasses that are not parts themselves (bases) leave ``name`` empty.

    Attributes:
        name: how a scenario names the part.
        Params: its parameters.
        companions: default parts of other kinds in the same section, if the scenario gives none; by kind, written as
            in a scenario: ``{"schedule": {"name": "buffered"}}``.
    """

    name: ClassVar[str] = ""
    Params: ClassVar[type[Parameters]] = Parameters
    companions: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})

    def __init__(self, params: Any) -> None:
        self.params = params

    @classmethod
    def class_problem(cls) -> str:
        """Why a user's class cannot be a part, as a sentence; empty if it can."""
        return ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if is_bundled(cls):
            return
        # A user's part is not the published one that it derives from.
        for name, value in (("title", cls.__name__), ("paper", "")):
            if hasattr(cls, name) and name not in vars(cls):
                setattr(cls, name, value)


def is_bundled(item: Callable[..., Any]) -> bool:
    """Whether a function or class ships with fedsim."""
    return item.__module__.partition(".")[0] == "fedsim"


def place(user_class: type[Any], function: str = "") -> str:
    """A user's class, or a function of it, for messages: ``file:line: Class.function``.

    The line is that of the function, or of the class if it inherits the function from fedsim. A class of a notebook's
    cell is named alone.
    """
    name = f"{user_class.__name__}.{function}" if function else user_class.__name__
    try:
        file = inspect.getfile(user_class)
    except (OSError, TypeError):
        return name
    own = inspect.unwrap(getattr(user_class, function, user_class)) if function else user_class
    own = getattr(own, "__func__", own)
    if inspect.isfunction(own) and not is_bundled(own):
        return f"{defined_at(own)}: {name}"
    try:
        return f"{file}:{inspect.findsource(user_class)[1] + 1}: {name}"
    except OSError:
        return f"{file}: {name}"


def defined_at(function: Callable[..., Any]) -> str | None:
    """The file and line of a function's definition; None if it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def params_of(part: Component) -> Parameters:
    """The parameters from which an instance was built; a user's class may keep none."""
    params: Parameters = getattr(part, "params", Parameters())
    return params


ComponentType = TypeVar("ComponentType", bound=Component)


class _Parts(Mapping[str, type[ComponentType]]):
    """The parts of one kind, by name; a part is imported without the modules whose text does not contain its name."""

    def __init__(self, package: str, base: type[ComponentType]) -> None:
        self._package, self._base = package, base
        root = importlib.import_module(package)
        self._modules = sorted(module.name for module in pkgutil.iter_modules(root.__path__))
        self._defined_in = functools.cache(self._read)
        self._found: dict[str, type[ComponentType]] = {}

    def __getitem__(self, name: str) -> type[ComponentType]:
        if name in self._found:
            return self._found[name]
        # The module of the same name first.
        for module in sorted(self._modules, key=lambda module: module != name):
            spec = importlib.util.find_spec(f"{self._package}.{module}")
            text = "" if spec is None else Path(str(spec.origin)).read_text(encoding="utf-8")
            names_it = f'name = "{name}"' in text or f"def {name}(" in text
            if names_it and name in (parts := self._defined_in(module)):
                return self._found.setdefault(name, parts[name])
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(name for module in self._modules for name in self._defined_in(module)))

    def __len__(self) -> int:
        return sum(len(self._defined_in(module)) for module in self._modules)

    def _read(self, name: str) -> dict[str, type[ComponentType]]:
        module = importlib.import_module(f"{self._package}.{name}")
        return {
            value.name: value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, self._base)
            and value.name
            and value.__module__ == module.__name__
            and not inspect.isabstract(value)
        }


@functools.cache
def discover(package: str, base: type[ComponentType]) -> Mapping[str, type[ComponentType]]:
    """The parts of one kind that ship with fedsim, by name, from the modules of ``package``; imported when used."""
    return _Parts(package, base)


def is_user_reference(name: str) -> bool:
    """Whether ``name`` names a class in a user's file: ``path/to/file.py:ClassName``."""
    return ".py:" in name


NO_USER_CODE = "FEDSIM_NO_USER_CODE"
"""Environment variable that forbids importing users' files; child processes inherit it."""

_LOGGER = logging.getLogger("fedsim")
_USER_MODULE = "fedsim_user_"


def users_traceback(error: BaseException) -> TracebackType | None:
    """The traceback of ``error`` from fedsim's innermost call of a user's file on; None if it passed through none."""
    if isinstance(error.__cause__, StopIteration):  # Python's error for one in a generator.
        error = error.__cause__
    trace, call, users = error.__traceback__, None, None
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if module.startswith(_USER_MODULE):
            users = call = call or trace
        elif module.partition(".")[0] == "fedsim":
            call = None
        trace = trace.tb_next
    return users


def has_user_code() -> bool:
    """Whether this process has imported a user's file."""
    return any(name.startswith(_USER_MODULE) for name in list(sys.modules))


def users_line(error: BaseException) -> str | None:
    """The innermost line of a user's file that ``error`` passed through, as ``file:line``; None if there is none."""
    lines = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(users_traceback(error))
        if frame.f_globals.get("__name__", "").startswith(_USER_MODULE)
    ]
    return lines[-1] if lines else None


def users_report(error: BaseException) -> str | None:
    """The traceback of ``error`` as text, with the lines of users' files alone; None if it passed through none."""
    trace = users_traceback(error)
    if trace is None:
        return None
    users_modules = [name for name in list(sys.modules) if name.startswith(_USER_MODULE)]
    files = {getattr(sys.modules[name], "__file__", None) for name in users_modules}
    whole = traceback.TracebackException(type(error), error, trace)
    report: traceback.TracebackException | None = whole
    while report is not None:
        users = [frame for frame in report.stack if frame.filename in files]
        report.stack = traceback.StackSummary.from_list(users)
        report = report.__cause__ or report.__context__
    return "".join(whole.format())


def announce_user_code(path: Path) -> None:
    """Log the path of a user's code before it runs, or refuse it (:data:`NO_USER_CODE`)."""
    if os.environ.get(NO_USER_CODE, "0") not in ("", "0"):
        raise UserError(
            f"the code in {path} may not run, because --no-user-code or {NO_USER_CODE} is set",
            hint="read the file, and leave out the option if you trust it",
        )
    _announce(path)


@functools.cache
def _announce(path: Path) -> None:
    _LOGGER.info("running the code in %s", path)


def load_user_component(
    reference: str,
    base: type[Any],
    folder: Path,
    of_function: Callable[[Callable[..., Any]], type[Any]] | None = None,
) -> type[Any]:
    """The class ``file.py:ClassName`` (relative to ``folder``), which must derive from ``base``.

    If ``of_function`` is given, the name may also be that of a function, which it turns into a class. The file is named
    in the log (logger ``fedsim``, level INFO) before it is imported.
    """
    file, _, class_name = reference.rpartition(":")
    path = (folder / file).resolve()
    if not path.is_file():
        hint = None if Path(file).is_absolute() else f"paths are relative to {folder.resolve()}"
        raise UserError(f"no such file: {path}", hint=hint)
    module_name = f"{_USER_MODULE}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if module_name not in sys.modules:
        announce_user_code(path)
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        working_folder = os.getcwd()
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit, BaseExceptionGroup) as error:
            del sys.modules[module_name]
            hint = None
            if isinstance(error, ModuleNotFoundError):
                hint = (
                    f"install the package of '{error.name}', or move what it needs into {path.name}: a part is one "
                    "file"
                )
            elif isinstance(error, SyntaxError):
                # The file, the line, its text and a caret below the place, as Python shows them.
                hint = "".join(traceback.format_exception_only(error)[:-1]).strip()
            raise UserError(
                f"{path} cannot be imported: {type(error).__name__}: {error}", hint=hint
            ) from error
        finally:
            with contextlib.suppress(OSError):
                os.chdir(working_folder)
    names = vars(sys.modules[module_name])
    value = names.get(class_name)
    if of_function is not None and inspect.isfunction(value):
        return of_function(value)
    expected = "class or function" if of_function else "class"
    if class_name not in names:
        known = [
            key
            for key, item in names.items()
            if getattr(item, "__module__", "") == module_name
            and (
                issubclass(item, base)
                if isinstance(item, type)
                else of_function and inspect.isfunction(item) and not key.startswith("_")
            )
        ]
        raise UserError(
            f"{path} has no {expected} named '{class_name}'",
            hint=nearest_or_all(class_name, known, f"it defines: {', '.join(known) or 'none'}"),
        )
    if not (isinstance(value, type) and issubclass(value, base)):
        package, _, base_name = import_path(base).rpartition(".")
        raise UserError(
            f"{place(value)} does not derive from {package}.{base_name}"
            if isinstance(value, type)
            else f"{class_name} in {path} is of type {type(value).__name__}, not a {expected}",
            hint=None
            if base is object
            else f"write class {class_name}({base_name}), after from {package} import {base_name}",
        )
    if inspect.isabstract(value):
        lacking = sorted(getattr(value, "__abstractmethods__", ()))
        declaring = next(item for item in value.__mro__ if lacking[0] in vars(item))
        raise UserError(
            f"{place(value)} lacks {', '.join(lacking)}",
            hint=f"define {', '.join(lacking)} in the class; {import_path(declaring)} requires it",
        )
    return value


def import_path(cls: type[Any]) -> str:
    """The dotted path from which users import a class: the outermost package that offers it, else this module."""
    if cls.__module__.startswith(_USER_MODULE):
        return cls.__qualname__
    parts = cls.__module__.split(".")
    packages = (".".join(parts[:end]) for end in range(1, len(parts)))
    offering = (
        name
        for name in (*packages, __name__)
        if getattr(sys.modules.get(name), cls.__name__, None) is cls
    )
    return f"{next(offering, cls.__module__)}.{cls.__name__}"
