"""Models from a user's file: ``model: {name: my_model.py:Net}``."""

from __future__ import annotations

import inspect
import sys
from abc import ABC
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.model import ModelComponent

if TYPE_CHECKING:
    from torch import Generator, nn

# Arguments of the constructor that fedsim fills in from the dataset.
_SUPPLIED = ("input_shape", "classes")


class Module(ABC):  # noqa: B024 - it only stands for two unrelated bases
    """What a user's file may define: a :class:`ModelComponent` or a plain ``torch.nn.Module``."""

    @classmethod
    def __subclasshook__(cls, candidate: type) -> bool:
        # A file that defines a torch module has imported torch.
        torch = sys.modules.get("torch")
        return issubclass(candidate, ModelComponent) or (
            torch is not None and issubclass(candidate, torch.nn.Module)
        )


class ModuleParameters(Parameters):
    """Arguments of the user's constructor, as given in the scenario."""

    model_config = ConfigDict(extra="allow")


class UserModule(ModelComponent):
    """A user's plain ``torch.nn.Module``.

    Its constructor is called with the scenario's keys, and with ``input_shape`` and ``classes`` if it has
    such arguments; its ``forward`` takes inputs (n, *input_shape) and returns (n, classes). Initial
    parameters are those that the constructor draws, from a generator that depends on the scenario's seed alone.

    Attributes:
        module_class: the user's class.
    """

    Params = ModuleParameters
    module_class: ClassVar[type[nn.Module]]

    def build(self, dataset: Dataset) -> nn.Module:
        """Call the constructor."""
        signature = inspect.signature(self.module_class)
        offered: dict[str, Any] = {
            "input_shape": dataset.input_shape,
            "classes": dataset.classes,
        }
        arguments = {name: offered[name] for name in _SUPPLIED if name in signature.parameters}
        arguments.update(self.params.model_extra or {})
        try:
            signature.bind(**arguments)
        except TypeError as error:
            raise UserError(
                f"{self.module_class.__name__} cannot be built: {error}",
                where="task.model",
                hint=f"its arguments are {signature}; input_shape and classes are filled in",
            ) from error
        try:
            return self.module_class(**arguments)
        # A user's constructor may fail in any way; whatever it is, it is the user's to fix.
        except Exception as error:
            raise UserError(
                f"{self.module_class.__name__} cannot be built: {type(error).__name__}: {error}",
                where="task.model",
            ) from error

    def initialize(self, module: nn.Module, generator: Generator) -> None:
        """Nothing to do: the constructor has drawn the parameters."""


def as_model(user_class: type[Any]) -> type[ModelComponent]:
    """A user's class as a model: a model component as it is, or one that builds a plain torch module."""
    if issubclass(user_class, ModelComponent):
        return user_class
    return type(
        user_class.__name__,
        (UserModule,),
        {"name": user_class.__name__, "module_class": user_class},
    )
