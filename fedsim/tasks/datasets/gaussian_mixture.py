"""Gaussian mixture: one cluster of points per class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.splitting import GeneratedParameters

_MEANS, _TRAIN, _TEST = 0, 1, 2


class GaussianMixtureParameters(GeneratedParameters):
    """Parameters of the Gaussian mixture."""

    classes: int = Field(default=10, ge=2)
    """Number of classes; their sizes differ by at most one sample."""
    features: int = Field(default=20, ge=1)
    """Dimensions of a sample."""
    samples: int = Field(default=2000, ge=1)
    """Training samples."""
    test_samples: int = Field(default=1000, ge=1)
    """Test samples."""
    mean_std: float = Field(default=0.45, ge=0)
    """Standard deviation of the class means in each dimension: larger is easier."""
    noise_std: float = Field(default=1.0, gt=0)
    """Standard deviation of the samples around their class mean."""


class GaussianMixture(DatasetComponent):
    """A Gaussian mixture: class means ~ N(0, mean_std^2), samples ~ N(mean of the class, noise_std^2).

    A cheap task that models do not interpolate, so that the effect of biased participation stays visible.
    """

    name = "gaussian_mixture"
    Params = GaussianMixtureParameters
    params: GaussianMixtureParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The samples."""
        params = self.params
        stream = Stream(params.seed, Purpose.DATASET)
        means = stream.generator(_MEANS).normal(
            0.0, params.mean_std, (params.classes, params.features)
        )

        def draw(key: int, count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
            rng = stream.generator(key)
            labels = rng.permutation(np.arange(count) % params.classes).astype(np.int64)
            noise = rng.normal(0.0, params.noise_std, (count, params.features))
            return (means[labels] + noise).astype(np.float32), labels

        train, test = draw(_TRAIN, params.samples), draw(_TEST, params.test_samples)
        return Dataset(self.name, *train, *test, classes=params.classes)
