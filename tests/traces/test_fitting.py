"""Fits recover what was drawn, and agree with SciPy."""

import numpy as np
import pytest
from scipy import stats

from fedsim.traces.fitting import exponential, fit_all, lognormal, thinned, two_lognormals, weibull


def drawn(distribution, count=20_000):
    return np.sort(distribution.rvs(count, random_state=np.random.default_rng(1)))


def test_fits_recover_the_parameters_and_prefer_the_right_family():
    for family, distribution, expected in (
        ("lognormal", stats.lognorm(1.6, scale=np.exp(7.26)), {"mu": 7.26, "sigma": 1.6}),
        ("weibull", stats.weibull_min(0.41, scale=575), {"k": 0.41, "scale": 575}),
    ):
        best = fit_all(drawn(distribution))[0]
        assert best.family in (family, "two lognormals")
        fit = {"lognormal": lognormal, "weibull": weibull}[family](drawn(distribution))
        assert fit.parameters == pytest.approx(expected, rel=0.03)
        assert fit.ks < 0.01
    fit = exponential(drawn(stats.expon(scale=2054)))
    assert fit.parameters["mean"] == pytest.approx(2054, rel=0.02)
    assert fit.ks < 0.01


def test_a_mixture_is_taken_apart():
    low, high = stats.lognorm(1.0, scale=np.exp(2.0)), stats.lognorm(0.8, scale=np.exp(8.0))
    samples = np.sort(np.concatenate([drawn(low, 30_000), drawn(high, 70_000)]))
    fit = two_lognormals(samples)
    assert fit.parameters == pytest.approx(
        {"w1": 0.3, "mu1": 2.0, "mu2": 8.0, "sigma1": 1.0, "sigma2": 0.8}, rel=0.03
    )
    assert fit.ks < 0.01
    assert fit_all(samples)[0].family == "two lognormals"


def test_few_or_equal_samples_are_not_fitted():
    assert fit_all(np.array([3.0] * 500)) == []
    assert fit_all(np.array([1.0, 2.0])) == []


def test_many_samples_are_thinned_evenly(monkeypatch):
    monkeypatch.setattr("fedsim.traces.fitting.MOST_SAMPLES", 5)
    assert thinned(np.arange(10.0)).tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]
