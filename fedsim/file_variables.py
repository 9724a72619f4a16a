"""The data that the functions of a user's class use, and that belongs to no object of it: variables of its file,
attributes of classes and functions, default values, and results of cached functions.

Such data outlives a run: no checkpoint contains it, and the next run of the same process begins with it.
"""

from __future__ import annotations

import dis
import functools
import gc
import inspect
import io
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fedsim.attributes import changed, users_modules, values_of
from fedsim.errors import UserError
from fedsim.parts.component import is_bundled, place


def is_iterator(value: Any) -> bool:
    """Whether every use of a value changes it, as it does ``itertools.count()``; false for files."""
    return isinstance(value, Iterator) and not isinstance(value, io.IOBase)


class FileVariables:
    """The data that the functions of a user's class use, directly or through others of its file.

    Modules, classes and functions are not data.

    Args:
        kind: the class.
    """

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        walk = _Walk(users_modules(kind))
        for base in kind.__mro__:
            if base.__module__ in walk.modules:
                walk.visit_class(base)
        self._data = walk.data
        self._caches = walk.caches

    def current(self) -> dict[str, Any]:
        """The data now, by the words for it in a message."""
        now = {words: get() for words, get in self._data.items()}
        return {words: value for words, value in now.items() if not _is_code(value)}

    def values(self) -> dict[str, object]:
        """Values for :meth:`changed`."""
        values = values_of(self.current(), identical=True, owner=self._kind)
        return values | {words: self._of_cache(cache) for words, cache in self._caches.items()}

    def _of_cache(self, cache: Any) -> dict[str, object]:
        """The results that a cached function has stored; one that every use changes is never equal."""
        results = {repr(key): value for key, value in _cached(cache)}
        values = values_of(results, identical=True, owner=self._kind)
        return {key: object() if is_iterator(results[key]) else values[key] for key in results}

    def changed(self, before: dict[str, object]) -> list[str]:
        """Words for the data that has changed since ``before``.

        A variable that has become a module, class or function, as one that is imported late does, has not. Nor has the
        cache of a function that has stored further results; these join ``before``.
        """
        after = self.values()
        for words in self._caches:
            stored, results = before[words], after[words]
            assert isinstance(stored, dict)
            assert isinstance(results, dict)
            for key, value in results.items():
                stored.setdefault(key, value)
            after[words] = stored | results
        return [words for words in changed(before, after) if words in after]


def keep_file_variables(part: Any, *functions: str, kind: str) -> Callable[[], None]:
    """Let a user's part that may remember things in its attributes raise an error if it changes its file's variables.

    The variables are compared after the first, second, fourth, eighth, ... of all calls of its ``functions``.
    Attributes of its classes count as such variables, too.

    Args:
        part: the part; left alone if its class ships with fedsim.
        functions: names of its methods.
        kind: its kind, in words.

    Returns:
        A function that compares the variables once more, for the end of the run.

    Raises:
        UserError: a variable is an iterator, whose changes are not visible.
    """
    if is_bundled(type(part)):
        return lambda: None
    variables = FileVariables(type(part))
    before = variables.values()
    calls = 0

    def error(verb: str, words: str, where: str) -> UserError:
        return UserError(
            f"{verb} {words}, so the next run of the same process would begin differently",
            where=where,
            hint=f"set it in __init__, as an attribute of the object: every run makes its own {kind}",
        )

    for words, value in variables.current().items():
        if is_iterator(value):
            raise error("uses an iterator in", words, place(type(part)))

    def check(where: str) -> None:
        for words in variables.changed(before):
            raise error("changes", words, where)

    def checked(function: Callable[..., Any], where: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            result = function(*args, **kwargs)
            calls += 1
            if calls & (calls - 1) == 0:
                check(where)
            return result

        return call

    for name in functions:
        setattr(part, name, checked(getattr(part, name), place(type(part), name)))
    return lambda: check(place(type(part)))


class _Walk:
    """Finds the data that functions use.

    Args:
        modules: names of the modules whose functions and variables count.
    """

    def __init__(self, modules: set[str]) -> None:
        self.modules = modules
        self.data: dict[str, Callable[[], Any]] = {}
        self.caches: dict[str, Any] = {}
        self._seen: set[object] = set()

    def visit_class(self, kind: type[Any]) -> None:
        """Visit the functions that a class defines."""
        if kind in self._seen:
            return
        self._seen.add(kind)
        for key, value in vars(kind).items():
            self._visit_all(value)
            if not (key.startswith(("__", "_abc_")) or _is_code(value) or _functions(value)):
                words = f"the attribute {key} of the class {kind.__name__}"
                self.data[words] = functools.partial(getattr, kind, key)

    def _visit_all(self, value: Any) -> None:
        if isinstance(value, functools._lru_cache_wrapper):
            self.caches[f"a result in the cache of the function {value.__qualname__}"] = value
        for function in _functions(value):
            if function not in self._seen and function.__module__ in self.modules:
                self._seen.add(function)
                self._visit(function)

    def _visit(self, function: FunctionType) -> None:
        name = function.__qualname__
        if function.__defaults__ or function.__kwdefaults__:
            self.data[f"a default value of {name}"] = lambda: (
                function.__defaults__,
                function.__kwdefaults__,
            )
        self.data[f"attributes of the function {name}"] = lambda: {
            key: value for key, value in vars(function).items() if not key.startswith("_")
        }
        variables = function.__globals__
        for key in _global_names(function.__code__):
            value = variables.get(key)
            if isinstance(value, type):
                if value.__module__ in self.modules:
                    self.visit_class(value)
            elif _is_code(value):
                self._visit_all(value)
            elif key in variables:
                self.data[f"the variable {key} of its file"] = functools.partial(variables.get, key)


def _cached(cache: Any) -> Iterator[tuple[Any, Any]]:
    """The arguments and results that a function with ``functools.cache`` or ``lru_cache`` has stored."""
    referents = [item for item in gc.get_referents(cache) if item is not type(cache)]
    if cache.cache_parameters()["maxsize"] is None:
        tables = (item for item in referents if isinstance(item, dict) and item is not vars(cache))
        yield from next(tables, {}).items()
        return
    # A cache of limited size refers first to the key, the result and the type of each of its links.
    for key, result, kind in zip(*[iter(referents)] * 3, strict=False):
        if getattr(kind, "__name__", "") != "_lru_list_elem":
            return
        yield key, result


def _is_code(value: Any) -> bool:
    return isinstance(value, type | ModuleType) or callable(value)


def _functions(value: Any) -> list[FunctionType]:
    """The Python functions behind a function, method, property or decorated function."""
    if isinstance(value, property):
        candidates = [value.fget, value.fset, value.fdel]
    elif isinstance(value, functools.cached_property):
        candidates = [value.func]
    elif isinstance(value, staticmethod | classmethod):
        candidates = [value.__func__]
    else:
        candidates = [value]
    unwrapped = [inspect.unwrap(one) for one in candidates if callable(one)]
    return [one for one in unwrapped if isinstance(one, FunctionType)]


def _global_names(code: CodeType) -> Iterator[str]:
    """The global names in a function and in the functions within it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "STORE_GLOBAL"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)
