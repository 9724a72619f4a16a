"""Distributions fitted to positive samples by maximum likelihood, with their goodness of fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.traces.tables import Floats

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
    middle = len(logs) // 2
    spread = max(float(logs.std()), 1e-6)
    weight = 0.5
    mu = np.array([logs[:middle].mean(), logs[middle:].mean()])
    sigma = np.full(2, spread / 2)
    before = -np.inf
    for _ in range(EM_STEPS):
        low = np.log(weight) + _log_normal_density(logs, mu[0], sigma[0])
        high = np.log1p(-weight) + _log_normal_density(logs, mu[1], sigma[1])
        both = np.logaddexp(low, high)
        share = np.exp(low - both)
        weight = float(np.clip(share.mean(), 1e-6, 1 - 1e-6))
        for component, weights in enumerate((share, 1 - share)):
            mu[component] = np.average(logs, weights=weights)
            variance = np.average((logs - mu[component]) ** 2, weights=weights)
            # If a component shrank to a single value, the likelihood would be unbounded.
            sigma[component] = max(np.sqrt(variance), NARROWEST * spread)
        now = float(both.mean())
        if now - before < EM_TOLERANCE:
            break
        before = now
    if mu[0] > mu[1]:
        weight, mu, sigma = 1 - weight, mu[::-1], sigma[::-1]
    (mu_1, mu_2), (sigma_1, sigma_2) = mu.tolist(), sigma.tolist()
    parameters = {"w1": weight, "mu1": mu_1, "mu2": mu_2, "sigma1": sigma_1, "sigma2": sigma_2}
    shares = np.array([[weight], [1 - weight]])
    components = [stats.lognorm(s, scale=np.exp(m)) for m, s in zip(mu, sigma, strict=True)]

    def logpdf(x: Floats) -> Floats:
        logs = np.stack([component.logpdf(x) for component in components]) + np.log(shares)
        return np.asarray(np.logaddexp(*logs))

    def cdf(x: Floats) -> Floats:
        return np.asarray((shares * [component.cdf(x) for component in components]).sum(axis=0))

    mixture = SimpleNamespace(logpdf=logpdf, cdf=cdf)
    return _fit("two lognormals", parameters, ordered, mixture)


def _log_normal_density(x: Floats, mu: float, sigma: float) -> Floats:
    # SciPy's version makes several more passes over the array, and this runs hundreds of times.
    return np.asarray(-0.5 * ((x - mu) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi))


def _fit(family: str, parameters: dict[str, float], ordered: Floats, distribution: Any) -> Fit:
    from scipy import stats

    ks = float(stats.ks_1samp(ordered, distribution.cdf, method="asymp").statistic)
    likelihood = float(np.mean(distribution.logpdf(ordered)))
    aic = 2 * len(parameters) / len(ordered) - 2 * likelihood
    return Fit(family, parameters, ks, aic, distribution.cdf)
