"""Distributions fitted to positive samples by maximum likelihood, and how well they fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtr

MOST_SAMPLES = 100_000
EM_STEPS = 300
EM_TOLERANCE = 1e-9

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A fitted distribution.

    Args:
        family: lognormal, weibull, exponential or two lognormals.
        parameters: its parameters by name; logarithms are natural, scales in the unit of the samples.
        ks: Kolmogorov-Smirnov distance from the samples, 0 to 1.
        aic: Akaike's criterion a sample; smaller is better.
        cdf: its distribution function.
    """

    family: str
    parameters: dict[str, float]
    ks: float
    aic: float
    cdf: Callable[[Float64Array], Float64Array]


def thinned(samples: npt.NDArray[np.floating], most: int = MOST_SAMPLES) -> Float64Array:
    """At most ``most`` of the samples, evenly spaced in order of size, so that nothing depends on chance."""
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    if len(ordered) <= most:
        return ordered
    places = ((np.arange(most) + 0.5) * len(ordered) / most).astype(np.int64)
    return ordered[places]


def fit_all(samples: npt.NDArray[np.floating]) -> list[Fit]:
    """All families fitted to positive samples, best (smallest AIC) first; none for fewer than ten different samples."""
    ordered = thinned(samples[samples > 0])
    if len(np.unique(ordered[:: max(1, len(ordered) // 1000)])) < 10:
        return []
    fits = [lognormal(ordered), weibull(ordered), exponential(ordered), two_lognormals(ordered)]
    return sorted(fits, key=lambda fit: fit.aic)


def lognormal(ordered: Float64Array) -> Fit:
    """Lognormal with parameters mu and sigma."""
    logs = np.log(ordered)
    mu, sigma = float(logs.mean()), max(float(logs.std()), 1e-12)
    log_density = _log_normal_density(logs, mu, sigma) - logs
    return _fit(
        "lognormal",
        {"mu": mu, "sigma": sigma},
        ordered,
        log_density,
        lambda x: ndtr((np.log(x) - mu) / sigma),
    )


def exponential(ordered: Float64Array) -> Fit:
    """Exponential with its mean."""
    mean = float(ordered.mean())
    log_density = -np.log(mean) - ordered / mean
    return _fit("exponential", {"mean": mean}, ordered, log_density, lambda x: -np.expm1(-x / mean))


def weibull(ordered: Float64Array) -> Fit:
    """Weibull with shape k and its scale."""
    logs = np.log(ordered)
    centre = logs.mean()
    scaled = logs - logs.max()

    def slope(shape: float) -> float:
        # Derivative of the profile likelihood; the largest term is scaled to 1, so nothing overflows.
        weights = np.exp(shape * scaled)
        return float(np.average(logs, weights=weights) - 1 / shape - centre)

    shape = float(brentq(slope, 1e-3, 1e3))
    scale = float(np.exp(logs.max() + np.log(np.mean(np.exp(shape * scaled))) / shape))
    powers = (ordered / scale) ** shape
    log_density = np.log(shape / scale) + (shape - 1) * (logs - np.log(scale)) - powers
    return _fit(
        "weibull",
        {"k": shape, "scale": scale},
        ordered,
        log_density,
        lambda x: -np.expm1(-((x / scale) ** shape)),
    )


def two_lognormals(ordered: Float64Array) -> Fit:
    """A mixture of two lognormals, by expectation maximisation from a split at the median."""
    logs = np.log(ordered)
    middle = len(logs) // 2
    spread = max(float(logs.std()), 1e-6)
    weight = 0.5
    mu = np.array([logs[:middle].mean(), logs[middle:].mean()])
    sigma = np.full(2, spread / 2)
    # Neither part may shrink onto a single value, where the likelihood has no bound.
    narrowest = 0.02 * spread
    before = -np.inf
    for _ in range(EM_STEPS):
        low = np.log(weight) + _log_normal_density(logs, mu[0], sigma[0])
        high = np.log1p(-weight) + _log_normal_density(logs, mu[1], sigma[1])
        both = np.logaddexp(low, high)
        share = np.exp(low - both)
        weight = float(np.clip(share.mean(), 1e-6, 1 - 1e-6))
        for part, weights in enumerate((share, 1 - share)):
            mu[part] = np.average(logs, weights=weights)
            variance = np.average((logs - mu[part]) ** 2, weights=weights)
            sigma[part] = max(np.sqrt(variance), narrowest)
        now = float(both.mean())
        if now - before < EM_TOLERANCE:
            break
        before = now
    if mu[0] > mu[1]:
        weight, mu, sigma = 1 - weight, mu[::-1], sigma[::-1]
    w, (mu_1, mu_2), (sigma_1, sigma_2) = weight, mu.tolist(), sigma.tolist()
    log_density = np.logaddexp(
        np.log(w) + _log_normal_density(logs, mu_1, sigma_1),
        np.log1p(-w) + _log_normal_density(logs, mu_2, sigma_2),
    )

    def cdf(x: Float64Array) -> Float64Array:
        low = ndtr((np.log(x) - mu_1) / sigma_1)
        return np.asarray(w * low + (1 - w) * ndtr((np.log(x) - mu_2) / sigma_2))

    parameters = {"w1": w, "mu1": mu_1, "mu2": mu_2, "sigma1": sigma_1, "sigma2": sigma_2}
    return _fit("two lognormals", parameters, ordered, log_density - logs, cdf)


def _log_normal_density(x: Float64Array, mu: float, sigma: float) -> Float64Array:
    return np.asarray(-0.5 * ((x - mu) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi))


def _fit(
    family: str,
    parameters: dict[str, float],
    ordered: Float64Array,
    log_density: Float64Array,
    cdf: Callable[[Float64Array], Float64Array],
) -> Fit:
    count = len(ordered)
    fitted = cdf(ordered)
    # With ties the sample function jumps over several samples at once: compare at the ends of each run of equal ones.
    below = np.searchsorted(ordered, ordered, side="left") / count
    through = np.searchsorted(ordered, ordered, side="right") / count
    ks = float(np.maximum(np.abs(fitted - below), np.abs(fitted - through)).max())
    aic = float(2 * len(parameters) / count - 2 * log_density.mean())
    return Fit(family, parameters, ks, aic, cdf)
