"""How each dispatch spent its time, from the instants in its row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.outcomes import OUTCOME_LABELS, Outcome

Floats = npt.NDArray[np.float64]

WORK_PHASES = ("download", "compute", "upload", "waiting")
"""What the time of a dispatch goes into, in order."""
INSTANTS = ("dispatched", "downloaded", "computed", "arrived")
"""Where the phases of a dispatch begin; the first three end where the next begins."""


def outcome_codes(dispatches: pd.DataFrame) -> npt.NDArray[np.int8]:
    """The outcomes as values of :class:`~fedsim.outcomes.Outcome`."""
    categories = dispatches["outcome"].cat.set_categories(list(OUTCOME_LABELS))
    return categories.cat.codes.to_numpy().astype(np.int8)


def aggregated_versions(dispatches: pd.DataFrame) -> npt.NDArray[np.int64]:
    """The version that each update entered; 0 if it entered none."""
    return dispatches["aggregated_version"].to_numpy(dtype=np.int64, na_value=0)


def aggregation_times(dispatches: pd.DataFrame, aggregations: pd.DataFrame) -> Floats:
    """Simulated seconds at which each update was aggregated; NaN if it was not (or is not recorded yet)."""
    by_version = pd.Series(aggregations["time_s"].to_numpy(), aggregations["version"])
    by_version = by_version[~by_version.index.duplicated()]
    return by_version.reindex(aggregated_versions(dispatches)).to_numpy()


def next_dispatch_times(dispatches: pd.DataFrame) -> Floats:
    """When the client of each dispatch was dispatched next; infinity if it was not."""
    starts = dispatches.sort_values("dispatch_id").groupby("client_id")["dispatched_s"]
    return starts.shift(-1, fill_value=np.inf).reindex(dispatches.index).to_numpy()


def phases(dispatches: pd.DataFrame, aggregations: pd.DataFrame, duration_s: float) -> pd.DataFrame:
    """Seconds of every dispatch, aligned with the rows of ``dispatches``.

    Columns: ``download_s``, ``compute_s`` and ``upload_s``, each up to where the dispatch ended; ``waiting_s`` from the
    arrival of an update to its aggregation (or to the end of the run if that is still to come), or to the next
    dispatch of its client if that is earlier.

    Args:
        dispatches: as :attr:`Run.dispatches`.
        aggregations: as :attr:`Run.aggregations`.
        duration_s: simulated seconds of the run.
    """
    marks = [dispatches[f"{name}_s"].to_numpy() for name in INSTANTS]
    ended = dispatches["ended_s"].to_numpy()
    spent = {}
    for name, begin, end in zip(WORK_PHASES, marks, marks[1:], strict=False):
        until = np.where(np.isnan(end), ended, end)
        spent[f"{name}_s"] = np.where(np.isnan(begin), 0.0, until - begin)
    arrived = marks[-1]
    pending = (outcome_codes(dispatches) == Outcome.UNFINISHED) & ~np.isnan(arrived)
    until = np.where(pending, duration_s, aggregation_times(dispatches, aggregations))
    until = np.minimum(until, next_dispatch_times(dispatches))
    spent["waiting_s"] = np.where(np.isnan(until) | np.isnan(arrived), 0.0, until - arrived)
    return pd.DataFrame(spent, index=dispatches.index)
