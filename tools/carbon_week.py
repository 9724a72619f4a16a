"""Write ``traces/carbon_week.csv``: a synthetic week of carbon intensity with the statistics of 2020.

    git clone https://github.com/dos-group/lets-wait-awhile
    python tools/carbon_week.py lets-wait-awhile/data

The data are those of Wiesner et al., Let's Wait Awhile, Middleware 2021: production by source (ENTSO-E) times median
life-cycle intensities of the IPCC. Nothing of them is copied: the week of a region is its mean, times the mean course
of a day, times the ratio of weekends to weekdays, times the exponential of an autoregressive process with the standard
deviation and the correlation from hour to hour of the logarithms that are left.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

_FILES = {"GB": "gb_ci.csv", "DE": "ger_ci.csv", "FR": "fr_ci.csv"}
_HOURS = pd.date_range("2020-01-06", periods=168, freq="1h")  # from Monday on


def week(path: Path, seed: int) -> pd.Series[float]:
    """A synthetic week from a file of measured values; prints both means, deviations and ranges within a day."""
    values = pd.read_csv(path, index_col=0, parse_dates=True).iloc[:, 0].resample("1h").mean()
    values = values["2020"].dropna()
    by_hour = values.groupby(values.index.hour).mean() / values.mean()
    is_weekend = values.index.day_of_week >= 5
    days = np.array([values[~is_weekend].mean(), values[is_weekend].mean()]) / values.mean()
    rest = np.log(values / values.mean() / by_hour[values.index.hour].to_numpy())
    rest -= np.log(days[is_weekend.astype(int)])
    correlation, deviation = rest.autocorr(1), rest.std()
    noise = np.random.default_rng(seed).standard_normal(len(_HOURS)) * deviation
    noise[1:] *= np.sqrt(1 - correlation**2)
    for hour in range(1, len(noise)):
        noise[hour] += correlation * noise[hour - 1]
    factors = by_hour[_HOURS.hour].to_numpy() * days[(_HOURS.day_of_week >= 5).astype(int)]
    drawn = pd.Series(factors * np.exp(noise), _HOURS)
    drawn *= values.mean() / drawn.mean()
    for name, series in (("measured", values), ("synthetic", drawn)):
        swing = series.groupby(series.index.date).agg(lambda day: day.max() / day.min()).median()
        shares = f"mean {series.mean():.0f}, deviation {series.std():.0f}, daily swing {swing:.2f}"
        print(f"{path.stem}: {name}: {shares}; {correlation:.3f} {deviation:.2f}")
    rounded: pd.Series[float] = drawn.round(1)
    return rounded


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    folder = parser.parse_args().data
    tables = [
        pd.DataFrame(
            {
                "Datetime (UTC)": _HOURS,
                "Zone id": zone,
                "Carbon intensity gCO₂eq/kWh (Life cycle)": week(folder / name, seed).to_numpy(),
                "Data source": "synthetic",
            }
        )
        for seed, (zone, name) in enumerate(_FILES.items())
    ]
    pd.concat(tables).to_csv(Path(__file__).parents[1] / "traces" / "carbon_week.csv", index=False)


if __name__ == "__main__":
    main()
