"""The kinds of parts that scenarios name, and where the parts of each kind are found.

A package is imported only when a part of its kind is named, so that a scenario without training does not load torch.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedsim.errors import UserError, nearest_or_all, raise_all
from fedsim.parts.component import (
    Component,
    discover,
    import_path,
    is_bundled,
    is_user_reference,
    load_user_component,
    place,
)
from fedsim.parts.parameters import Parameters, without_markup
from fedsim.vocabulary.formatting import format_names

_GIVEN = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Kind:
    """One kind of part. The callables are called on first use of a part of this kind.

    Attributes:
        registry: returns the parts that ship with fedsim, by name.
        base: returns the class that a user's part derives from.
        adapt: turns a user's class that is not a component (a torch module) into one.
        of_function: turns a user's function into one; None if parts of this kind must be classes.
    """

    registry: Callable[[], Mapping[str, type[Component]]]
    base: Callable[[], type[Any]]
    adapt: Callable[[type[Any]], type[Component]] = lambda cls: cls
    of_function: Callable[[Callable[..., Any]], type[Component]] | None = None


_NOUNS = {"logging": "tracker", "dataset": "data set", "lr_schedule": "learning-rate schedule"}


def kind_noun(kind: str) -> str:
    """The noun for one part of a kind in a message."""
    return _NOUNS.get(kind, kind)


class Catalog:
    """All kinds of parts."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.kinds = dict(kinds)

    def parts(self, kind: str) -> Mapping[str, type[Any]]:
        """The parts of ``kind`` that ship with fedsim, by name."""
        return self.kinds[kind].registry()

    def find(self, kind: str, name: str, folder: Path) -> type[Component]:
        """The class that ``name`` stands for; a file reference is relative to ``folder``."""
        if is_user_reference(name):
            entry = self.kinds[kind]
            return self.adopt(
                kind, load_user_component(name, entry.base(), folder, entry.of_function)
            )
        parts = self.parts(kind)
        if name not in parts:
            every = f"known: {', '.join(sorted(parts))}, or file.py:ClassName"
            raise UserError(
                f"there is no {kind_noun(kind)} named '{name}'",
                hint=f"name the class in the file: {name}:ClassName"
                if name.endswith(".py")
                else nearest_or_all(name, parts, every),
            )
        return parts[name]

    def adopt(self, kind: str, given: type[Any] | Callable[..., Any]) -> type[Component]:
        """A user's class or function as a part of ``kind``."""
        entry = self.kinds[kind]
        base = entry.base()
        if isinstance(given, type):
            user_class = given
            raise_all(_wrong_signatures(user_class, base))
        elif entry.of_function is None:
            raise UserError(
                f"{given.__name__} is a function, but the {kind_noun(kind)} must be a class",
                hint=f"write a class that derives from {import_path(base)}",
            )
        elif not given.__name__.isidentifier():
            raise UserError("a lambda has no name", hint="write it as def my_function(...)")
        else:
            user_class = entry.of_function(given)
        if not issubclass(user_class, base):
            raise UserError(
                f"{place(user_class)} does not derive from {base.__name__}",
                hint=f"derive it from {import_path(base)}",
            )
        component = entry.adapt(user_class)
        if problem := component.class_problem():
            raise UserError(f"{place(user_class)}: {problem}")
        expected = _expected_params(user_class)
        is_class = isinstance(component.Params, type)
        if expected is not None and not (is_class and issubclass(component.Params, expected)):
            package, name = import_path(expected).rpartition(".")[0], expected.__qualname__
            source = f"from {package} import {name.partition('.')[0]}"
            raise UserError(
                f"{place(user_class)}: its Params do not derive from {name}",
                hint=f"write class {component.Params.__name__}({name}), after {source}"
                if is_class and component.Params.__module__ == user_class.__module__
                else f"write Params = {name} in {user_class.__name__}, after {source}",
            )
        return component


def _wrong_signatures(user_class: type[Any], base: type[Any]) -> Iterator[UserError]:
    """The functions of a user's class that cannot be called as those of fedsim which they replace."""
    for name, own in inspect.getmembers(user_class, inspect.isfunction):
        bases = [each for each in user_class.__mro__ if is_bundled(each) and name in vars(each)]
        replaced = vars(bases[0])[name] if bases else None
        if name == "__init__" and issubclass(user_class, base):
            replaced = base.__init__  # Classes in between pass more to their bases.
        # A function that stands for a class has a signature of its own.
        is_static = isinstance(inspect.getattr_static(user_class, name), staticmethod)
        of_class = "." in own.__qualname__ and not is_static
        if is_bundled(own) or not inspect.isfunction(replaced) or not of_class:
            continue
        known = inspect.signature(replaced).parameters.values()
        words = [one.name for one in known if one.default is one.empty and one.kind in _GIVEN]
        try:
            inspect.signature(own).bind(*words)
        except TypeError:
            needed = f"{name}({', '.join(words)})"
            yield UserError(
                f"{place(user_class, name)} takes {inspect.signature(own)}, but fedsim passes "
                f"{format_names(words)}",
                hint=f"write def {needed}",
            )


def _expected_params(user_class: type[Any]) -> type[Parameters] | None:
    """The parameters of the innermost base in fedsim that is not a part itself; None for a torch module.

    Subclasses of a part may replace all functions that read its parameters.
    """
    bases = (base for base in user_class.__mro__ if issubclass(base, Component))
    return next(
        (base.Params for base in bases if is_bundled(base) and not vars(base).get("name")), None
    )


def summaries(parts: Mapping[str, type[Component]]) -> dict[str, str]:
    """The first sentence of the description of each part, by name."""
    return {name: summary(part) for name, part in sorted(parts.items())}


def summary(component: type[Component]) -> str:
    """The first sentence of a part's description."""
    paragraph = " ".join(without_markup(component.__doc__ or "").partition("\n\n")[0].split())
    return re.split(r"\.\s+(?=[A-Z])", paragraph)[0].rstrip(".")


def _kind(
    package: str,
    base: str,
    adapt: str | None = None,
    of_function: str | None = None,
    component: str | None = None,
) -> Kind:
    """The kind whose parts are defined in the modules of ``package``; the other arguments are written ``module:name``.

    Those that ship with fedsim derive from ``component``, by default from ``base``.
    """
    return Kind(
        lambda: discover(package, _imported(component or base)),
        partial(_imported, base),
        (lambda cls: cls) if adapt is None else (lambda cls: _imported(adapt)(cls)),
        None if of_function is None else (lambda function: _imported(of_function)(function)),
    )


def _imported(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


CATALOG = Catalog(
    {
        "task": _kind("fedsim.tasks.kinds", "fedsim.tasks.base:Task"),
        "dataset": _kind(
            "fedsim.tasks.datasets",
            "fedsim.tasks.dataset:DatasetComponent",
            of_function="fedsim.tasks.user:dataset_of_function",
        ),
        "partition": _kind("fedsim.tasks.partitions", "fedsim.tasks.partition:Partitioner"),
        "model": _kind(
            "fedsim.tasks.models",
            "fedsim.tasks.user:Module",
            adapt="fedsim.tasks.user:as_model",
            of_function="fedsim.tasks.user:model_of_function",
            component="fedsim.tasks.model:ModelComponent",
        ),
        "optimizer": _kind("fedsim.learning.optimizers", "fedsim.learning.optimizers:Optimizer"),
        "compression": _kind(
            "fedsim.learning.compression", "fedsim.learning.compression:Compression"
        ),
        "submodels": _kind("fedsim.learning.submodels", "fedsim.learning.submodels:Submodels"),
        "lr_schedule": _kind("fedsim.learning.rates", "fedsim.learning.rates:RateSchedule"),
        "method": _kind("fedsim.methods", "fedsim.methods.base:Method"),
        "selection": _kind("fedsim.scheduling.selections", "fedsim.scheduling.base:Selection"),
        "schedule": _kind("fedsim.scheduling.schedules", "fedsim.scheduling.base:Schedule"),
        "compute": _kind("fedsim.devices.compute", "fedsim.devices.compute.base:ComputeModel"),
        "availability": _kind(
            "fedsim.devices.availability", "fedsim.devices.availability.base:AvailabilityModel"
        ),
        "metric": _kind(
            "fedsim.learning.metrics",
            "fedsim.learning.metrics.base:Metric",
            of_function="fedsim.learning.metrics.base:of_function",
        ),
        "network": _kind("fedsim.network.kinds", "fedsim.network.base:NetworkKind"),
        "logging": _kind("fedsim.tracking", "fedsim.tracking.base:Tracker"),
        "transport": _kind("fedsim.network.transports", "fedsim.network.transport:Transport"),
        "exchange": _kind(
            "fedsim.network.exchanges", "fedsim.network.exchanges.collectives:Exchange"
        ),
        "importer": _kind("fedsim.traces.importers", "fedsim.traces.importers:Importer"),
    }
)
"""All kinds of parts of this installation."""
