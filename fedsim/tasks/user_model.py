"""Models from a user's file: ``model: {name: my_model.py:Net}``."""

from __future__ import annotations

import inspect
import sys
from abc import ABC
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from fedsim.errors import UserError
from fedsim.parts.functions import FunctionParameters, parameters_of
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.model import ModelComponent

if TYPE_CHECKING:
    from torch import Generator, nn

# Arguments of the constructor that come from the dataset.
_SUPPLIED = ("input_shape", "classes", "vocabulary")
# The argument of a constructor that makes a smaller part of the model.
_RATE = "model_rate"


class Module(ABC):  # noqa: B024 - it only stands for two unrelated bases
    """A model in a user's file: a :class:`ModelComponent` or a plain ``torch.nn.Module``."""

    __module__ = "torch.nn"  # Messages name the class that users derive from.

    @classmethod
    def __subclasshook__(cls, candidate: type) -> bool:
        # If the file defines a torch module, it has imported torch.
        torch = sys.modules.get("torch")
        return issubclass(candidate, ModelComponent) or (
            torch is not None and issubclass(candidate, torch.nn.Module)
        )


class ModuleParameters(FunctionParameters):
    """Arguments of the user's constructor or function, as given in the scenario."""

    inputs: Any = None
    """Arguments of ``forward``, each as a part of the samples x: ``{input_ids: "x[0]", attention_mask: "x[1]"}``."""


class UserModule(ModelComponent):
    """A user's plain ``torch.nn.Module``, or a function that returns one.

    The class or function is called with the scenario's keys, and with ``input_shape``, ``classes`` and ``vocabulary``
    (of data sets of tokens) if it has such arguments. The module's ``forward`` takes inputs (n, *input_shape), or those
    described by ``inputs``, and returns (n, classes), or an object with such ``logits``. The constructor draws the
    initial parameters; torch's generator then depends on the scenario's seed alone. If it has an argument
    ``model_rate``, it returns the part of this size (``server.submodels``).

    Attributes:
        make: the user's class or function.
    """

    params: FunctionParameters
    make: ClassVar[Callable[..., nn.Module]]
    is_bundled = False

    def build(self, dataset: Dataset) -> nn.Module:
        """Call the class or function."""
        from torch import nn

        from fedsim.tasks.modules.checks import adapt_calls

        arguments, inputs = self.params.arguments(), None
        if isinstance(self.params, ModuleParameters):
            inputs = arguments.pop("inputs")
        if self.takes_rate:
            arguments[_RATE] = self.rate
        for name in _SUPPLIED:
            if name in arguments and arguments[name] is None:
                arguments[name] = getattr(dataset, name)
        try:
            module = type(self).make(**arguments)
        # A user's constructor may raise any exception; all are reported as the user's errors.
        except Exception as error:
            raise UserError(
                f"{self.name} cannot be built: {type(error).__name__}: {error}",
                where="task.model",
            ) from error
        if not isinstance(module, nn.Module):
            raise UserError(
                f"{self.name} returns {type(module).__name__}, not a torch.nn.Module",
                where="task.model",
            )
        adapt_calls(module, dataset.input_shape, inputs)
        return module

    def initialize(self, module: nn.Module, generator: Generator) -> None:
        """Nothing to do: the constructor draws the parameters."""


def as_model(user_class: type[Any]) -> type[ModelComponent]:
    """A user's class as a model: a model component unchanged, or one that builds a plain torch module."""
    if issubclass(user_class, ModelComponent):
        return user_class
    return of_function(user_class)


def of_function(make: Callable[..., nn.Module]) -> type[UserModule]:
    """The model of a user's torch module, or of a function that returns one.

    Raises:
        UserError: it cannot be called with arguments by name.
    """
    takes_inputs = "inputs" in inspect.signature(make).parameters
    namespace = {
        "__doc__": make.__doc__,
        "name": make.__name__,
        "make": staticmethod(make),
        "takes_rate": _RATE in inspect.signature(make).parameters,
        "Params": parameters_of(
            make,
            filled=_SUPPLIED,
            base=FunctionParameters if takes_inputs else ModuleParameters,
        ),
    }
    return type(make.__name__, (UserModule,), namespace)
