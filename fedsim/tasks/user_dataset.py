"""Data sets from a user's function: ``dataset: {name: my_data.py:make}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedsim.errors import UserError
from fedsim.parts.component import defined_at
from fedsim.parts.functions import FunctionParameters, parameters_of, shown
from fedsim.randomness import isolated
from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.samples import (
    PictureParameters,
    dataset_of_arrays,
    dataset_of_splits,
    joined,
)


class UserDataset(DatasetComponent):
    """What a user's function returns, called with the scenario's keys.

    It returns a :class:`Dataset`; arrays by name, as ``npz`` reads them (``{"x": x, "y": y, "group": writers}``); a
    pair of arrays (x, y); or a data set of torch or of Hugging Face ``datasets``, alone or as a pair of training and
    test samples. Of a table of ``datasets``, the columns ``label`` and, if it exists, ``group`` are used, and the only
    column of images or else all other columns as features. Floating-point labels are quantities (regression). Without
    test samples, a fifth of the samples is set aside.

    Attributes:
        make: the user's function.
    """

    params: FunctionParameters
    make: ClassVar[Callable[..., Any]]

    def loaded(self, folder: Path | None = None) -> Dataset:
        """The result of :meth:`load`, with the global random generators of the function starting from 0."""
        with isolated(0):
            return self.load(folder)

    def load(self, folder: Path | None = None) -> Dataset:
        """Call the function."""
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
            arrays, notes = joined(
                {key: np.asarray(value) for key, value in made.items()}, list(made), where
            )
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
    """The data set of one or two tables of Hugging Face."""
    from fedsim.tasks.datasets.huggingface import HuggingFaceParameters, dataset_of_table

    columns = splits[0].column_names
    group = "group" if "group" in columns else None
    pictured = any(type(kind).__name__ == "Image" for kind in splits[0].features.values())
    features = None if pictured else [key for key in columns if key not in ("label", "group")]
    params = HuggingFaceParameters(path=name, features=features, group=group)
    return dataset_of_table(splits, params, name=name)


def of_function(make: Callable[..., Any]) -> type[UserDataset]:
    """The data set that a user's function returns."""
    namespace = {
        "__doc__": make.__doc__,
        "__module__": make.__module__,
        "name": make.__name__,
        "make": staticmethod(make),
        "Params": parameters_of(make),
    }
    return type(make.__name__, (UserDataset,), namespace)
