"""Finding the parts a scenario names: those that ship with fedsim and those in the user's own files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedsim.components import Component, Parameters, is_user_reference, load_user_component
from fedsim.errors import UserError
from fedsim.scenario.model import Part
from fedsim.scenario.problems import nearest, problems


@dataclass(frozen=True)
class Kind:
    """One kind of part.

    Both callables are asked only when a part of this kind is, so that a scenario without training loads no torch.

    Attributes:
        registry: the parts that ship with fedsim, by name.
        base: the class that a part of the user's own must derive from.
        load: how ``file.py:Class`` (relative to a folder) becomes a part, where a user may give more than a ``base``.
    """

    registry: Callable[[], Mapping[str, type[Component]]]
    base: Callable[[], type[Component]]
    load: Callable[[str, Path], type[Component]] | None = None


class Catalog:
    """All kinds of parts."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.kinds = dict(kinds)

    def names(self, kind: str) -> list[str]:
        """Names of the parts of ``kind`` that ship with fedsim."""
        return sorted(self.kinds[kind].registry())

    def find(self, kind: str, name: str, folder: Path) -> type[Component]:
        """The class that ``name`` stands for; a file reference is relative to ``folder``.

        Raises:
            UserError: there is none, or the user's file cannot be used.
        """
        if is_user_reference(name):
            load = self.kinds[kind].load
            if load is not None:
                return load(name, folder)
            return load_user_component(name, self.kinds[kind].base(), folder)
        registry = self.kinds[kind].registry()
        if name not in registry:
            raise UserError(
                f"there is no {kind} named '{name}'",
                hint=f"{nearest(name, registry)}known: {', '.join(sorted(registry))}, or file.py:ClassName of your own",
            )
        return registry[name]

    def resolve(self, kind: str, part: Part, folder: Path) -> tuple[type[Any], Parameters]:
        """The class and the checked parameters of a part.

        Raises:
            UserError: no such part, or parameters it does not take.
        """
        component = self.find(kind, part.name, folder)
        try:
            return component, component.Params.model_validate(part.options)
        except ValidationError as error:
            found = problems(error, component.Params, part.options)
            raise UserError(
                "; ".join(
                    f"{'.'.join(map(str, (kind, *problem.path)))}: {problem.message}"
                    for problem in found
                )
            ) from None


def summary(component: type[Component]) -> str:
    """What a part is, in one line: the first sentence of its description."""
    paragraph = " ".join((component.__doc__ or "").partition("\n\n")[0].split())
    return re.split(r"\.\s+(?=[A-Z])", paragraph)[0].rstrip(".").replace("``", "")
