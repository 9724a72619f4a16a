"""Distributions fitted to positive samples by maximum likelihood, with their goodness of fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.vocabulary.arrays import Floats

MOST_SAMPLES = 100_000
EM_STEPS = 300
EM_TOLERANCE = 1e-9
NARROWEST = 0.02
"""Least standard deviation of a component of a mixture, relative to that of all logarithms."""


@dataclass(frozen=True)
class Fit:
    """A fitted distribution.

    Args:
        family: lognormal, weibull, exponential or two lognormals.
        parameters: its parameters by name; logarithms are natural, scales in the unit of the samples.
        ks: Kolmogorov-Smirnov distance from the samples, 0 to 1.
        aic: Akaike information criterion per sample; smaller is better.
        cdf: cumulative distribution function.
    """

    family: str
    parameters: dict[str, float]
    ks: float
    aic: float
    cdf: Callable[[Floats], Floats]


def thinned(samples: npt.NDArray[np.floating]) -> Floats:
    """At most :data:`MOST_SAMPLES` of the samples, ascending and evenly spaced in rank, without randomness."""
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    if len(ordered) <= MOST_SAMPLES:
        return ordered
    ranks = ((np.arange(MOST_SAMPLES) + 0.5) * len(ordered) / MOST_SAMPLES).astype(np.int64)
    return ordered[ranks]


def fit_all(samples: npt.NDArray[np.floating]) -> list[Fit]:
    """Fits of all families to the positive samples, smallest AIC first; empty for fewer than ten distinct values."""
    ordered = thinned(samples[samples > 0])
    if len(np.unique(ordered[:: max(1, len(ordered) // 1000)])) < 10:
        return []
    fits = [lognormal(ordered), weibull(ordered), exponential(ordered), two_lognormals(ordered)]
    return sorted(fits, key=lambda fit: fit.aic)


def lognormal(ordered: Floats) -> Fit:
    """Lognormal with parameters mu and sigma."""
    from scipy import stats

    sigma, _, scale = stats.lognorm.fit(ordered, floc=0)
    parameters = {"mu": float(np.log(scale)), "sigma": float(sigma)}
    return _fit("lognormal", parameters, ordered, stats.lognorm(max(sigma, 1e-12), scale=scale))


def exponential(ordered: Floats) -> Fit:
    """Exponential with its mean."""
    from scipy import stats

    mean = float(ordered.mean())
    return _fit("exponential", {"mean": mean}, ordered, stats.expon(scale=mean))


def weibull(ordered: Floats) -> Fit:
    """Weibull with shape k and its scale."""
    from scipy import stats

    shape, _, scale = stats.weibull_min.fit(ordered, floc=0)
    parameters = {"k": float(shape), "scale": float(scale)}
    return _fit("weibull", parameters, ordered, stats.weibull_min(shape, scale=scale))


def two_lognormals(ordered: Floats) -> Fit:
    """A mixture of two lognormals, by expectation maximization, starting from a split at the median."""
    from scipy import stats

    logs = np.log(ordered)
    spread = max(float(logs.std()), 1e-6)
    weight, sigma, before = np.full(2, 0.5), np.full(2, spread / 2), -np.inf
    mu = np.array([half.mean() for half in np.split(logs, [len(logs) // 2])])
    for _ in range(EM_STEPS):
        # Up to a constant; SciPy's density makes several more passes over the array.
        density = -0.5 * ((logs - mu[:, None]) / sigma[:, None]) ** 2
        density += np.log(weight / sigma)[:, None]
        both = np.logaddexp(*density)
        share = np.exp(density - both)
        weight = np.clip(share.mean(axis=1), 1e-6, 1 - 1e-6)
        mu = share @ logs / share.sum(axis=1)
        variance = (share * (logs - mu[:, None]) ** 2).sum(axis=1) / share.sum(axis=1)
        # If a component shrank to a single value, the likelihood would be unbounded.
        sigma = np.maximum(np.sqrt(variance), NARROWEST * spread)
        now = float(both.mean())
        if now - before < EM_TOLERANCE:
            break
        before = now
    weight, mu, sigma = np.stack([weight, mu, sigma])[:, np.argsort(mu)]
    (mu_1, mu_2), (sigma_1, sigma_2) = mu.tolist(), sigma.tolist()
    shown = {"mu1": mu_1, "mu2": mu_2, "sigma1": sigma_1, "sigma2": sigma_2}
    components = stats.lognorm(sigma[:, None], scale=np.exp(mu)[:, None])
    mixture = SimpleNamespace(
        logpdf=lambda x: np.logaddexp(*(components.logpdf(x) + np.log(weight)[:, None])),
        cdf=lambda x: weight @ components.cdf(x),
    )
    return _fit("two lognormals", {"w1": float(weight[0]), **shown}, ordered, mixture)


def _fit(family: str, parameters: dict[str, float], ordered: Floats, distribution: Any) -> Fit:
    from scipy import stats

    ks = float(stats.ks_1samp(ordered, distribution.cdf, method="asymp").statistic)
    likelihood = float(np.mean(distribution.logpdf(ordered)))
    aic = 2 * len(parameters) / len(ordered) - 2 * likelihood
    return Fit(family, parameters, ks, aic, distribution.cdf)
