"""What each dispatch's time went into, from the instants in its row."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.outcomes import OUTCOME_LABELS, Outcome

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Phases:
    """Seconds of every dispatch, aligned with the rows of ``dispatches``.

    Attributes:
        download_s: from dispatch to the end of the download, or to where it ended.
        compute_s: in local steps, up to where it ended.
        upload_s: in the upload, up to where it ended.
        waiting_s: from the arrival of an update to its aggregation, or to the end of the run if it is still
            to come; ends early where its client was dispatched again before.
    """

    download_s: Floats
    compute_s: Floats
    upload_s: Floats
    waiting_s: Floats


def outcome_codes(dispatches: pd.DataFrame) -> npt.NDArray[np.int8]:
    """The outcomes as values of :class:`~fedsim.outcomes.Outcome`."""
    categories = dispatches["outcome"].cat.set_categories(list(OUTCOME_LABELS))
    return categories.cat.codes.to_numpy().astype(np.int8)


def aggregated_versions(dispatches: pd.DataFrame) -> npt.NDArray[np.int64]:
    """The version each update entered; 0 where it entered none."""
    return dispatches["aggregated_version"].to_numpy(dtype=np.int64, na_value=0)


def aggregation_times(dispatches: pd.DataFrame, aggregations: pd.DataFrame) -> Floats:
    """Simulated seconds at which each update was aggregated; NaN where it was not (or is not on record yet)."""
    versions = aggregations["version"].to_numpy()
    times = aggregations["time_s"].to_numpy()
    wanted = aggregated_versions(dispatches)
    if not len(versions):
        return np.full(len(wanted), np.nan)
    position = np.searchsorted(versions, wanted)
    position[position == len(versions)] = 0
    return np.where(versions[position] == wanted, times[position], np.nan)


def next_dispatch_times(dispatches: pd.DataFrame) -> Floats:
    """When the client of each dispatch was dispatched next; infinity where it was not."""
    clients = dispatches["client_id"].to_numpy()
    starts = dispatches["dispatched_s"].to_numpy()
    order = np.lexsort((dispatches["dispatch_id"].to_numpy(), clients))
    following = np.full(len(order), np.inf)
    same = clients[order[1:]] == clients[order[:-1]]
    following[order[:-1][same]] = starts[order[1:][same]]
    return following


def phases(dispatches: pd.DataFrame, aggregations: pd.DataFrame, duration_s: float) -> Phases:
    """Split the time of every dispatch.

    Args:
        dispatches: as :attr:`Run.dispatches`.
        aggregations: as :attr:`Run.aggregations`.
        duration_s: simulated seconds of the run; where waiting ends if nothing else ended it.
    """
    ended = dispatches["ended_s"].to_numpy()
    marks = [
        dispatches[f"{name}_s"].to_numpy()
        for name in ("dispatched", "downloaded", "computed", "arrived")
    ]
    spent = []
    for begin, end in itertools.pairwise(marks):
        until = np.where(np.isnan(end), ended, end)
        spent.append(np.where(np.isnan(begin), 0.0, until - begin))
    arrived = marks[3]
    aggregated = aggregation_times(dispatches, aggregations)
    pending = (outcome_codes(dispatches) == Outcome.UNFINISHED) & ~np.isnan(arrived)
    until = np.where(pending, duration_s, aggregated)
    until = np.minimum(until, next_dispatch_times(dispatches))
    waiting = np.where(np.isnan(until) | np.isnan(arrived), 0.0, until - arrived)
    return Phases(spent[0], spent[1], spent[2], waiting)
