"""Training and test samples of data without separate test files, and parameters of such data."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.parts.component import Parameters
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset
from fedsim.vocabulary.numbers import varies

_SPLIT = 1


class HeldOutParameters(Parameters):
    """Parameters of data whose test samples may be unmarked."""

    test_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of the samples that become test samples if the data do not mark them."""
    seed: int = Field(default=0, ge=0)
    """Seed of the choice of test samples."""

    def held_out(self, samples: int) -> npt.NDArray[np.bool_]:
        """The mask of the test samples among this many samples; see :func:`held_out`."""
        return held_out(samples, self.test_share, self.seed)


class GeneratedParameters(Parameters):
    """Parameters of generated data."""

    seed: int = Field(default=0, ge=0)
    """Seed of the data; independent of the scenario's seed, so that repetitions share the data."""


def held_out(samples: int, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """The mask of the test samples: the rounded ``share`` of all, chosen at random, (n,) bool.

    A pure function of its arguments, independent of library versions.
    """
    keys = Stream(seed, Purpose.DATASET, _SPLIT).hashes(np.arange(samples))
    mask = np.zeros(samples, dtype=bool)
    mask[np.argsort(keys, kind="stable")[: round(share * samples)]] = True
    return mask


def split_dataset(
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    is_test: npt.NDArray[np.bool_],
    groups: npt.NDArray[Any] | None = None,
    group_names: tuple[str, ...] = (),
    **attributes: Any,
) -> Dataset:
    """The data set of samples with the test samples marked by ``is_test``.

    Its arrays are views, not copies, if all training samples come first.

    Args:
        x, y, is_test: samples (n, *input_shape), labels (n,) and marks (n,).
        groups: natural group of each sample (n,): numbers with ``group_names``, or names.
        group_names: names of the groups.
        attributes: other attributes of the dataset.
    """
    training = len(is_test) - int(np.count_nonzero(is_test))
    train, test = (~is_test, is_test) if is_test[:training].any() else np.s_[:training, training:]
    if groups is not None:
        if not group_names:
            names, groups = np.unique(groups, return_inverse=True)
            group_names = tuple(map(str, names))
        groups = groups.astype(np.int64)
        attributes.update(train_groups=groups[train], test_groups=groups[test])
    return Dataset(
        train_x=x[train],
        train_y=y[train],
        test_x=x[test],
        test_y=y[test],
        group_names=group_names,
        **attributes,
    )


def standardized(
    x: npt.NDArray[np.float64], is_test: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float32]:
    """Features (n, d) minus their mean over the training samples, divided by their standard deviation.

    A feature that is constant over the training samples is not divided: its computed deviation is rounding error.
    """
    mean, std = x[~is_test].mean(axis=0), x[~is_test].std(axis=0)
    divisor = np.where(varies(std, mean, int((~is_test).sum())), std, 1.0)
    scaled: npt.NDArray[np.float64] = (x - mean) / divisor
    return scaled.astype(np.float32)
