"""Generated data sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.samples import GeneratedParameters, split_dataset
from fedsim.vocabulary.arrays import Floats, Ints

_FEATURES, _CLASSES = 60, 10
_TEST_SHARE = 0.1
# Generator keys: one for shared values, then one per device.
_SHARED, _FIRST_DEVICE = 0, 1


class Synthetic(DatasetComponent):
    """Synthetic(alpha, beta): 60 features, 10 classes, sizes by a power law (Li et al., FedProx, MLSys 2020,
    section 5.1 and C.1).

    Device k has labels argmax(W_k x + b_k) with W_k, b_k ~ N(u_k, 1), u_k ~ N(0, alpha^2), and inputs x ~
    N(v_k, diag(j^-1.2)) with v_kj ~ N(B_k, 1), B_k ~ N(0, beta^2); 50 + lognormal(4, 2) samples. As in the
    authors' code, alpha and beta are standard deviations. A tenth of each device's samples are test samples.
    """

    name = "synthetic"

    class Params(GeneratedParameters):
        alpha: float = Field(default=1.0, ge=0)
        """Heterogeneity of the true models: standard deviation of the devices' mean weights."""
        beta: float = Field(default=1.0, ge=0)
        """Heterogeneity of the inputs: standard deviation of the devices' mean inputs."""
        devices: int = Field(default=30, ge=1, le=10**7)
        """Number of devices (natural groups)."""
        iid: bool = False
        """One true model for all devices and inputs centered at zero; alpha and beta are then unused."""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        params = self.params
        stream = Stream(params.seed, Purpose.DATASET)
        shared = stream.generator(_SHARED)
        sizes = shared.lognormal(4.0, 2.0, params.devices).astype(np.int64) + 50
        mean_weights = shared.normal(0.0, params.alpha, params.devices)
        mean_inputs = shared.normal(0.0, params.beta, params.devices)
        common = shared.normal(size=(_FEATURES + 1, _CLASSES))
        spread = np.arange(1, _FEATURES + 1) ** -0.6
        inputs, labels, is_test = [], [], []
        for device, size in enumerate(sizes.tolist()):
            rng = stream.generator(_FIRST_DEVICE + device)
            center: Floats | float = 0.0
            weights = common
            if not params.iid:
                weights = rng.normal(mean_weights[device], 1.0, (_FEATURES + 1, _CLASSES))
                center = rng.normal(mean_inputs[device], 1.0, _FEATURES)
            x = center + spread * rng.normal(size=(size, _FEATURES))
            inputs.append(x.astype(np.float32))
            labels.append(np.argmax(x @ weights[:-1] + weights[-1], axis=1))
            is_test.append(np.arange(size) >= size - max(1, round(_TEST_SHARE * size)))
        return split_dataset(
            np.concatenate(inputs),
            np.concatenate(labels).astype(np.int64),
            np.concatenate(is_test),
            np.repeat(np.arange(params.devices), sizes),
            tuple(f"device {device}" for device in range(params.devices)),
            name=self.name,
            classes=_CLASSES,
        )


_MEANS, _TRAIN, _TEST = 0, 1, 2


class GaussianMixture(DatasetComponent):
    """A Gaussian mixture: class means ~ N(0, mean_std^2), samples ~ N(mean of the class, noise_std^2).

    A cheap task that models do not interpolate, so that the effect of biased participation stays visible.
    """

    name = "gaussian_mixture"

    class Params(GeneratedParameters):
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

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        params = self.params
        stream = Stream(params.seed, Purpose.DATASET)
        means = stream.generator(_MEANS).normal(
            0.0, params.mean_std, (params.classes, params.features)
        )

        def draw(key: int, count: int) -> tuple[npt.NDArray[np.float32], Ints]:
            rng = stream.generator(key)
            labels = rng.permutation(np.arange(count) % params.classes).astype(np.int64)
            noise = rng.normal(0.0, params.noise_std, (count, params.features))
            return (means[labels] + noise).astype(np.float32), labels

        train, test = draw(_TRAIN, params.samples), draw(_TEST, params.test_samples)
        return Dataset(self.name, *train, *test, classes=params.classes)


class ShiftedLogistic(DatasetComponent):
    """Groups with shifted Gaussian inputs and their own true weights, for studies of personalization.

    Group i draws a mean m_i ~ N(0, shift_std^2) and weights w_i ~ N(0, 1) in each dimension; inputs are
    N(m_i, 1) scaled by 1 / sqrt(features (1 + shift_std^2)), so that their squared norm is about 1, and
    the label is 1 with probability 1 / (1 + exp(-sqrt(features) w_i . x)).
    """

    name = "shifted_logistic"

    class Params(GeneratedParameters):
        groups: int = Field(default=10, ge=1, le=10**7)
        """Number of groups (clients of the natural partition)."""
        samples: int = Field(default=200, ge=1)
        """Training samples per group."""
        test_samples: int = Field(default=50, ge=1)
        """Test samples per group."""
        features: int = Field(default=40, ge=1)
        """Dimensions of a sample."""
        shift_std: float = Field(default=1.0, ge=0)
        """Standard deviation of the groups' mean inputs, relative to that of the inputs."""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        params = self.params
        stream = Stream(params.seed, Purpose.DATASET)
        per_group = params.samples + params.test_samples
        inputs, labels = [], []
        for group in range(params.groups):
            rng = stream.generator(group)
            mean = rng.normal(0.0, params.shift_std, params.features)
            weights = rng.normal(size=params.features)
            x = mean + rng.normal(size=(per_group, params.features))
            x /= np.sqrt(params.features * (1 + params.shift_std**2))
            probability = 1 / (1 + np.exp(-np.sqrt(params.features) * (x @ weights)))
            inputs.append(x.astype(np.float32))
            labels.append((rng.uniform(size=per_group) < probability).astype(np.int64))
        return split_dataset(
            np.concatenate(inputs),
            np.concatenate(labels),
            np.tile(np.arange(per_group) >= params.samples, params.groups),
            np.repeat(np.arange(params.groups), per_group),
            tuple(f"group {group}" for group in range(params.groups)),
            name=self.name,
            classes=2,
        )


_SHAPE = (1, 28, 28)


class CommonWork(DatasetComponent):
    """The common workload for speed comparisons: 100 clients x 200 synthetic images of 28 x 28, 10 classes.

    An image is the mean image of its class ~ N(0, 0.1^2) plus N(0, 1) noise per pixel. Use partition natural.
    """

    name = "common_work"

    class Params(GeneratedParameters):
        clients: int = Field(default=100, ge=1, le=10**7)
        """Number of groups (clients of the natural partition)."""
        samples: int = Field(default=200, ge=1)
        """Training samples per client."""
        test_samples: int = Field(default=1000, ge=1)
        """Shared test samples."""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        params = self.params
        rng = Stream(params.seed, Purpose.DATASET).generator()
        train = params.clients * params.samples
        total = train + params.test_samples
        means = 0.1 * rng.standard_normal((_CLASSES, *_SHAPE), dtype=np.float32)
        labels = rng.integers(_CLASSES, size=total, dtype=np.int64)
        images = rng.standard_normal((total, *_SHAPE), dtype=np.float32)
        images += means[labels]
        return Dataset(
            name=self.name,
            train_x=images[:train],
            train_y=labels[:train],
            test_x=images[train:],
            test_y=labels[train:],
            classes=_CLASSES,
            train_groups=np.repeat(np.arange(params.clients), params.samples),
            group_names=tuple(f"client {client}" for client in range(params.clients)),
        )
