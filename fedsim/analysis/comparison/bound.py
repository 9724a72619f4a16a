"""A lower bound on the time of a curve: when the devices can have computed as many updates as the model contains.

Client i needs the time tau_i for an update, if its speed is fixed and it is always online. Whatever the schedule, n
updates need at least the least time t with floor(t / tau_1) + floor(t / tau_2) + ... >= n: no client waits, and no
update is lost or stale. (Tyurin and Richtarik, NeurIPS 2023, bound the number of updates that a method needs as well,
up to constants; here it is the method's own.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedsim.analysis.comparison.facts import CLIENT_UPDATES, RunFacts
from fedsim.runs import Run, RunFolder

Floats = npt.NDArray[np.float64]


def bounded(run: RunFacts) -> RunFacts:
    """The facts of a run whose evaluations are at their lower bounds instead of their times."""
    counts = run.progress[CLIENT_UPDATES].to_numpy()
    times_s = earliest_s(durations_s(Run(RunFolder(run.path))), counts)
    return replace(run, progress=run.progress.assign(time_s=times_s))


def durations_s(run: Run) -> Floats:
    """The least time of an update of each client at its nominal speed and rates, (N,): with the fewest steps and bytes
    of its updates that were used, or of all clients' if none was."""
    clients, used = run.clients, run.dispatches[run.dispatches["aggregated_version"].notna()]
    least = used.groupby("client_id")[["steps_done", "bytes_down", "bytes_up"]].min()
    least = least.reindex(clients["client_id"]).fillna(least.min())
    compute_s: Floats = clients["step_s"].to_numpy(float) * least["steps_done"].to_numpy(float)
    transfers_s = np.zeros_like(compute_s)
    for way in ("down", "up"):
        size_bytes = least[f"bytes_{way}"].to_numpy(float)
        rate_bps = clients[f"{way}_bps"].to_numpy(float)
        # Without a nominal rate, transfers do not count.
        transfers_s += np.nan_to_num(8 * size_bytes / np.where(rate_bps > 0, rate_bps, np.inf))
    if run.info.get("steps_ahead"):
        return np.maximum(compute_s, transfers_s)  # they overlap
    return compute_s + transfers_s


def earliest_s(durations_s: Floats, counts: npt.NDArray[np.int64]) -> Floats:
    """The least times at which clients with these durations have done these numbers of updates, to the nanosecond."""
    taus = durations_s[np.isfinite(durations_s)]
    if not taus.all() or not len(taus):
        return np.zeros(len(counts))  # a client needs no time, or no time is known
    needed, back = np.unique(counts, return_inverse=True)
    # The fastest client alone would need needed x its time.
    low, high = np.zeros(len(needed)), needed * taus.min()
    for _ in range(64):
        middle = (low + high) / 2
        # Rounded up by a little, so that a multiple of a duration counts.
        done = np.array([np.floor(t / taus * (1 + 1e-12) + 1e-12).sum() for t in middle])
        low, high = np.where(done < needed, middle, low), np.where(done < needed, high, middle)
    times_s: Floats = high[back].round(9)
    return times_s
