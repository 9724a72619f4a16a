"""Data sets and models from a file of the user: ``{name: my_data.py:make}``, ``{name: my_model.py:Net}``."""

from __future__ import annotations

import contextlib
import inspect
import sys
import traceback
from abc import ABC
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedsim.errors import UserError, refused
from fedsim.parts.component import defined_at
from fedsim.parts.functions import FunctionParameters, parameters_of, shown
from fedsim.randomness import isolated
from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.model import ModelComponent
from fedsim.tasks.reading.samples import (
    PictureParameters,
    dataset_of_arrays,
    dataset_of_splits,
    joined,
)

if TYPE_CHECKING:
    from torch import Generator, nn


class UserDataset(DatasetComponent):
    """What a user's function returns, called with the scenario's keys.

    It returns a :class:`Dataset`; arrays by name, as ``npz`` reads them (``{"x": x, "y": y, "group": writers}``); a
    pair of arrays (x, y); or a data set of torch or of Hugging Face ``datasets``, alone or as a pair of training and
    test samples. Of a table of ``datasets``, the columns ``label`` and, if it exists, ``group`` are used, and the only
    column of images or else all other columns as features. Floating-point labels are quantities (regression). Without
    test samples, a fifth of the samples is set aside.
    """

    params: FunctionParameters
    make: ClassVar[Callable[..., Any]]

    def loaded(self, folder: Path | None = None) -> Dataset:
        """The result of :meth:`load`, with the global random generators of the function starting from 0."""
        try:
            with isolated(0), contextlib.chdir("."):
                return self.load(folder)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            make, frames = type(self).make, traceback.walk_tb(error.__traceback__)
            if any(frame.f_globals.get("__name__") == make.__module__ for frame, _ in frames):
                raise  # By the user's own code, whose author needs its lines.
            raise UserError(
                f"what it returns cannot be read: {type(error).__name__}: {error}",
                where=f"{defined_at(make)}: {make.__name__}",
                hint="return arrays (x, y) of numbers, or a map-style torch.utils.data.Dataset of such "
                "pairs; all samples have one shape",
            ) from error

    def load(self, folder: Path | None = None) -> Dataset:
        make = type(self).make
        where = f"{defined_at(make)}: {make.__name__}"
        made = make(**self.params.arguments())
        if isinstance(made, Dataset):
            return made
        params = PictureParameters()
        if hasattr(made, "column_names") and isinstance(made, Mapping):  # of Hugging Face
            made = tuple(made[key] for key in ("train", "test") if key in made) or made.values()
            made = tuple(made)
        elif isinstance(made, list) and made and not isinstance(made[0], tuple | list):
            made = tuple(made)  # Not of samples, but of parts, as random_split returns.
        arrays_alone = isinstance(made, tuple) and all(hasattr(each, "__array__") for each in made)
        if arrays_alone and len(made) == 2:
            made = dict(zip(("x", "y"), made, strict=True))
        if isinstance(made, Mapping):
            read = {key: np.asarray(value) for key, value in made.items()}
            arrays, notes = joined(read, list(made), where)
            return dataset_of_arrays(
                arrays, where, params.held_out, name=self.name, target_kind=None, notes=notes
            )
        splits = made if isinstance(made, tuple) else (made,)
        if len(splits) <= 2 and all(hasattr(split, "column_names") for split in splits):
            return _of_tables(list(splits), self.name)
        samples = all(hasattr(one, "__getitem__") and hasattr(one, "__len__") for one in splits)
        if len(splits) > 2 or not samples:
            raise UserError(
                f"it returns {shown(made)}",
                where=where,
                hint="return a map-style torch.utils.data.Dataset, a datasets.Dataset, a pair of training and test "
                "data sets, or arrays (x, y)",
            )
        return dataset_of_splits(splits, where, params, name=self.name)


def _of_tables(splits: list[Any], name: str) -> Dataset:
    from fedsim.tasks.datasets.libraries import HuggingFace, dataset_of_table

    columns = splits[0].column_names
    group = "group" if "group" in columns else None
    pictured = any(type(kind).__name__ == "Image" for kind in splits[0].features.values())
    features = None if pictured else [key for key in columns if key not in ("label", "group")]
    params = HuggingFace.Params(path=name, features=features, group=group)
    return dataset_of_table(splits, params, name=name)


def dataset_of_function(make: Callable[..., Any]) -> type[UserDataset]:
    """The data set that a user's function returns."""
    namespace = {
        "__doc__": make.__doc__,
        "__module__": make.__module__,
        "name": make.__name__,
        "make": staticmethod(make),
        "Params": parameters_of(make),
    }
    return type(make.__name__, (UserDataset,), namespace)


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
    """

    params: FunctionParameters
    make: ClassVar[Callable[..., nn.Module]]
    is_bundled = False

    def build(self, dataset: Dataset) -> nn.Module:
        from torch import jit, nn

        from fedsim.tasks.modules.checks import adapt_calls

        arguments, inputs = self.params.arguments(), None
        if isinstance(self.params, ModuleParameters):
            inputs = arguments.pop("inputs")
        if self.takes_rate:
            arguments[_RATE] = self.rate
        for name in _SUPPLIED:
            if name in arguments and arguments[name] is None:
                arguments[name] = getattr(dataset, name)
        with refused(f"{self.name} cannot be built", "task.model", kinds=Exception):
            module = type(self).make(**arguments)
        if not isinstance(module, nn.Module) or isinstance(module, jit.ScriptModule):
            raise UserError(
                f"{self.name} returns {type(module).__name__}, not an ordinary torch.nn.Module",
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
    return model_of_function(user_class)


def model_of_function(make: Callable[..., nn.Module]) -> type[UserModule]:
    """The model of a user's torch module, or of a function that returns one."""
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
