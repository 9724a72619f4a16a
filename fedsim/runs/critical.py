"""The critical path of a run: what each second until a version was spent on.

Starting from the version, the path walks back through what it waited for: the arrival that completed it, or a
deadline; the dispatch of that work; what made this dispatch possible, which is a version, the end of another dispatch,
or a client that came online. Its intervals follow one another without gaps from the start to the version, and each has
one cause.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedsim.runs.phases import WORK_PHASES, outcome_codes
from fedsim.runs.run import Run
from fedsim.units import parse_duration_s
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.outcomes import Outcome

CAUSES = {
    "download": "download",
    "compute": "local steps",
    "upload": "upload",
    "paused": "client offline in the middle of its work",
    "deadline": "deadline",
    "detection": "detection of a failure",
    "aggregation": "aggregation",
    "pause": "pause between rounds",
    "nobody_online": "nobody online",
    "too_few_online": "too few online",
    "selection": "held back by the selection",
}
"""What the server may wait for, with words for it."""
_TIMED = ("carbon_aware", "periodic_groups")
"""Selections that hold back clients who are online until a certain time."""
_SAME_S = 1e-6
"""Instants that are closer than this are one instant."""


class Interval(NamedTuple):
    """A part of the path; ``dispatch_id`` is -1 if it is not a part of a dispatch."""

    from_s: float
    to_s: float
    cause: str
    dispatch_id: int = -1


def critical_path(run: Run, version: int | None = None) -> pd.DataFrame:
    """One row per interval, in order of time: ``from_s``, ``to_s``, ``cause``, ``dispatch_id`` and ``client_id``.

    The intervals cover the time from 0 to the version exactly. The causes are those of :data:`CAUSES`; dispatch and
    client are -1 if an interval is not a part of a dispatch.

    With edge servers, the path is that of the cloud: its dispatches to edge servers, whose rounds are local steps.

    Args:
        run: a run.
        version: the version at which the path ends; the last one if None.
    """
    last = len(run.aggregations) if version is None else version
    path = _Path(run)
    path.walk(last)
    table = pd.DataFrame(path.intervals[::-1], columns=list(Interval._fields))
    clients = np.append(_dispatches(run)["client_id"].to_numpy(), -1)
    return table.assign(client_id=clients[table["dispatch_id"].to_numpy(np.int64)])


def waiting_by_cause(path: pd.DataFrame) -> pd.Series[float]:
    """Seconds of a critical path by cause, in the order of :data:`CAUSES`, without those that do not occur."""
    seconds = (path["to_s"] - path["from_s"]).groupby(path["cause"]).sum()
    # Instants are whole nanoseconds; less is a rounding error.
    return seconds.reindex([cause for cause in CAUSES if seconds.get(cause, 0.0) > 0.5e-9])


class Saving(NamedTuple):
    """The share of the time that a change saves, the error of this measured on the run (0 if its rounds are repeated
    exactly), and whether it is a bound, because something else may then be waited for."""

    share: float
    error: float
    is_bound: bool


def saving(run: Run, path: pd.DataFrame, causes: Collection[str]) -> Saving:
    """What it saves to halve the setting behind causes of waiting, if as many versions are made.

    Synchronous rounds are repeated with the new times: each lasts until the last of its updates, and the next one
    begins after the longer of aggregation and pause. A round that over-selection or a quorum ended lasts until as many
    updates have arrived, late ones included; the error is that other work may arrive, too, and that a change of order
    alters the run as another seed would. The time of rounds that a deadline ended is an error, because other updates
    may be in time.

    For other schedules, the share is the middle of four estimates, two from each half of the time: dispatches follow on
    the ends of others in the same order, or each client repeats its own. The error is half their range plus the
    standard error of the time per version, because a change of order alters the run as another seed would. So it does
    if rates vary over time.

    Args:
        run: a run.
        path: its :func:`critical_path` to a version.
        causes: of :data:`CAUSES`. Transfers are halved without their latency, if the scenario gives it.
    """
    return _Path(run).saving(path, causes)


def seconds_of(value: Any) -> float:
    """A duration of a scenario, which a user's own part may state as text such as ``10min``; 0 if it is none."""
    with contextlib.suppress(ValueError):
        return parse_duration_s(value)
    return 0.0


def _dispatches(run: Run) -> pd.DataFrame:
    """The dispatches of the server that made the versions: those to edge servers, if there are any."""
    return run.edge_dispatches if run.has_edges else run.dispatches


class _Path:
    def __init__(self, run: Run) -> None:
        table, server = _dispatches(run), run.scenario.get("server", {})
        self.intervals: list[Interval] = []
        self._made_s = np.r_[0.0, run.aggregations["time_s"].to_numpy()]
        self._contributors = [np.empty(0, np.int64), *run.aggregations["contributor_ids"]]
        self._version, self._round = table["version"].to_numpy(), table["round"].to_numpy()
        self._has_rounds = run.has_rounds
        self._dispatched_s, *marks_s = (
            table[f"{name}_s"].to_numpy() for name in ("dispatched", "downloaded", "computed")
        )
        self._ended_s = table["ended_s"].to_numpy()
        self._marks_s = np.stack([*marks_s, self._ended_s], axis=1)
        outcome = outcome_codes(table)
        detection = server.get("failure_detection")
        lost_s = np.inf if detection == "never" else seconds_of(detection)
        # When the server learns of the end of a dispatch.
        self._lost_s = np.where(outcome == Outcome.DROPPED, lost_s, 0.0)
        known_s = self._ended_s + self._lost_s
        known_s[outcome == Outcome.UNFINISHED] = np.inf
        self._has_arrived = table["arrived_s"].notna().to_numpy()
        self._known_s = np.where(self._has_arrived, self._ended_s, known_s)
        self._is_cut = outcome == Outcome.CUT
        self._by_end = np.argsort(self._known_s, kind="stable")
        self._ends_s = self._known_s[self._by_end]
        schedule = server.get("schedule", {})
        self._aggregation_s = seconds_of(server.get("aggregation_time"))
        self._pause_s = seconds_of(schedule.get("pause"))
        self._deadline_s = seconds_of(schedule.get("deadline")) or np.inf
        is_timed = server.get("selection", {}).get("name") in _TIMED
        self._some_online = "selection" if is_timed else "too_few_online"
        devices = server.get("edges", {}) if run.has_edges else run.scenario.get("devices", {})
        network = devices.get("network", {})
        is_fluid = network.get("transport", {}).get("name") == "fluid"
        self._is_static = network.get("name") == "static" and is_fluid
        self._rates_vary = network.get("name") == "traced"
        self._latency_s = network.get("latency")
        # These are about the clients.
        pauses, online = (None, None) if run.has_edges else (run.pauses, run.online)
        self._pauses = np.empty((0, 3)) if pauses is None else pauses.to_numpy(np.float64)
        self._online = None if online is None else online.to_numpy(np.float64)

    def walk(self, version: int) -> None:
        """Add the intervals until a version, the last one first."""
        while version:
            begin, end = np.searchsorted(self._version, [version - 1, version])
            if begin == end and not len(self._contributors[version]):
                # Nobody was given work in this round.
                self._until_ready(version - 1, self._made_s[version], "deadline")
                version -= 1
                continue
            dispatch = self._trigger(version)
            if dispatch is None:
                # The dispatch that began the round that the deadline has closed.
                ids = np.asarray(self._contributors[version], np.int64)
                ids = ids if len(ids) else np.arange(begin, end)
                dispatch = int(ids[np.argmin(self._dispatched_s[ids])])
                self._add(self._dispatched_s[dispatch], self._made_s[version], "deadline")
            else:
                self._work(dispatch, self._made_s[version])
            while (earlier := self._before(dispatch)) is not None:
                dispatch = earlier
            version = int(self._version[dispatch])

    def saving(self, path: pd.DataFrame, causes: Collection[str]) -> Saving:
        spent, until_s = waiting_by_cause(path), path["to_s"].iloc[-1]
        last = int(np.searchsorted(self._made_s, until_s - _SAME_S))
        lasted_s = np.diff(self._made_s[: last + 1])
        # Latencies that differ between clients are halved, too.
        latency_s = self._latency_s if isinstance(self._latency_s, int | float) else None
        is_bound = "deadline" in causes or len(self._pauses) > 0
        is_bound |= not {"nobody_online", "too_few_online", "selection"}.isdisjoint(spent.index)
        if {"download", "upload"} & {*causes}:
            is_bound |= not self._is_static or latency_s is None
        shorter_s = self._shorter_s(causes, latency_s or 0.0)
        gaps_s = self._aggregation_s, self._pause_s
        halves = 1 + ("aggregation" in causes), 1 + ("pause" in causes)
        gap = max(gaps_s[0] / halves[0], gaps_s[1] / halves[1]) / max(*gaps_s, _SAME_S)
        error = 0.0 if "deadline" in causes else spent.get("deadline", 0.0) / until_s
        repeated = self._repeated_s(lasted_s, shorter_s, causes)
        if repeated is not None:
            saved_s = (1 - gap) * max(gaps_s) * (last - 1)
            shares = [1 - (float(each_s.sum()) - saved_s) / until_s for each_s in repeated]
        else:
            shares = [*self._estimates(path, shorter_s, gap)] or [0.0]
        share = (min(shares) + max(shares)) / 2
        error += float(np.ptp(shares)) / 2
        if repeated is None or self._rates_vary or len(repeated) > 1:
            error += (1 - share) * float(lasted_s.std() / lasted_s.mean()) / math.sqrt(last)
        return Saving(share + error if is_bound else share, error, is_bound)

    def _shorter_s(self, causes: Collection[str], latency_s: float) -> Floats:
        """Seconds by which each dispatch is shorter, shape (dispatches,)."""
        ends_s = np.fmin(self._marks_s, self._ended_s[:, None])
        ends_s = np.where(np.isnan(ends_s), self._ended_s[:, None], ends_s)
        seconds = np.diff(ends_s, axis=1, prepend=self._dispatched_s[:, None])
        seconds -= np.array([latency_s, 0.0, latency_s])
        halved = [phase in causes for phase in WORK_PHASES]
        detected_s = self._lost_s * ("detection" in causes)
        return np.asarray((np.maximum(seconds, 0.0) @ halved + detected_s) / 2)

    def _repeated_s(
        self, lasted_s: Floats, shorter_s: Floats, causes: Collection[str]
    ) -> list[Floats] | None:
        """How long each version takes, from the one before, with rounds as they were; shape (versions,).

        Twice if shorter work may change who is in time: as if work that did not arrive never does, and as if it does as
        early as it can. None if dispatches from a version begin after others from it have ended: these are not rounds.
        """
        begun = np.flatnonzero(self._version < len(lasted_s))
        of = self._version[begun]
        since_s, start_s = self._known_s[begun] - self._made_s[of], self._dispatched_s[begun]
        start_s = start_s - self._made_s[of]
        in_time = ~self._is_cut[begun] & (since_s <= lasted_s[of] + _SAME_S)
        before_s, after_s = np.full((2, len(lasted_s)), -np.inf)
        first_s, begins_s = np.full((2, len(lasted_s)), np.inf)
        np.minimum.at(first_s, of[in_time], since_s[in_time])
        np.minimum.at(begins_s, of, start_s)
        np.maximum.at(before_s, of[in_time], since_s[in_time])
        np.maximum.at(after_s, of[in_time], (since_s - shorter_s[begun])[in_time])
        if not self._has_rounds or (start_s > first_s[of] - _SAME_S).any():
            return None
        # A round in which nobody is given work has no dispatches, but a deadline.
        resumed_s = max(self._aggregation_s, self._pause_s) * (np.arange(len(lasted_s)) > 0)
        begins_s = np.where(np.isinf(begins_s), resumed_s, begins_s)
        ends_s = begins_s + self._deadline_s / 2 if "deadline" in causes else np.inf
        lasted_on = before_s < lasted_s - _SAME_S
        # Rounds that did not wait for everybody end with as many arrivals as before, of all that were given work.
        arrived = self._has_arrived[begun]
        counts = np.bincount(of[in_time & arrived], minlength=len(lasted_s))
        is_enough = (np.bincount(of[~in_time], minlength=len(lasted_s)) > 0) & (counts > 0)
        may_arrive = arrived | ((shorter_s[begun] > 0) & ("detection" not in causes))
        at_s = self._ended_s[begun] - self._made_s[of] - shorter_s[begun]
        kth = np.searchsorted(of, np.flatnonzero(is_enough)) + counts[is_enough] - 1
        is_other = shorter_s.any() and (is_enough & ~lasted_on).any()
        repeated = []
        for arrives in (arrived, may_arrive) if is_other else (arrived,):
            order = np.lexsort((np.where(arrives, at_s, np.inf), of))
            after_s[is_enough] = at_s[order[kth]]
            repeated.append(np.minimum(np.where(lasted_on, lasted_s, after_s), ends_s))
        return repeated

    def _estimates(self, path: pd.DataFrame, shorter_s: Floats, gap: float) -> Iterator[float]:
        """The share of each half of the time that a change saves, estimated in two ways."""
        half_s = path["to_s"].iloc[-1] / 2
        for from_s in (0.0, half_s):
            within = path[["from_s", "to_s"]].clip(from_s, from_s + half_s)
            spent = waiting_by_cause(path.assign(**within)) / half_s
            gaps = spent.reindex(["aggregation", "pause"]).sum() * (1 - gap)
            work = spent.reindex([*WORK_PHASES, "paused", "detection"]).sum()
            rows = ~self._is_cut & (self._known_s > from_s) & (self._known_s <= from_s + half_s)
            if not rows.any():
                continue  # nothing has ended in this half
            before_s = (self._known_s - self._dispatched_s)[rows]
            after_s = before_s - shorter_s[rows]
            yield gaps + work * (1 - after_s.sum() / before_s.sum())
            yield gaps + work * (1 - rows.sum() / (before_s / np.maximum(after_s, _SAME_S)).sum())

    def _trigger(self, version: int) -> int | None:
        """The dispatch whose end completed a version; None if a deadline did."""
        made_s = self._made_s[version]
        begin, end = np.searchsorted(self._ends_s, [made_s - _SAME_S, made_s + _SAME_S])
        ended = self._by_end[begin:end]
        ended = ended[(self._dispatched_s[ended] < made_s) & ~self._is_cut[ended]]
        ended = ended[self._version[ended] < version]
        used = ended[np.isin(ended, self._contributors[version])]
        best = used if len(used) else ended
        return int(best.max()) if len(best) else None

    def _before(self, dispatch: int) -> int | None:
        """Add what delayed a dispatch after the event before it; None if this event is the version handed out, else the
        dispatch that had ended."""
        version, start_s = self._version[dispatch], self._dispatched_s[dispatch]
        made_s = self._made_s[version]
        # Versions and rounds never decrease from one dispatch to the next.
        last = int(np.searchsorted(self._round, self._round[dispatch])) - 1
        if self._has_rounds and last >= np.searchsorted(self._version, version):
            # A round from the same version has made none.
            earlier = int(np.searchsorted(self._round, self._round[last]))
            self._add(self._dispatched_s[earlier], start_s, "deadline")
            return earlier
        # Between rounds, an update that is late delays nothing unless the round begins with its end.
        since_s = start_s - _SAME_S if self._has_rounds else made_s + _SAME_S
        begin, end = np.searchsorted(self._ends_s, [since_s, start_s + _SAME_S])
        ended = self._by_end[begin:end]
        ended = ended[ended < dispatch]
        if start_s - self._resumed_s(version) < _SAME_S or not len(ended):
            self._until_ready(version, start_s)
            return None
        earlier = int(ended[-1])
        known_s = min(self._known_s[earlier], start_s)
        self._wait(known_s, start_s)
        self._work(earlier, known_s)
        return earlier

    def _resumed_s(self, version: int) -> float:
        return float(self._made_s[version] + max(self._aggregation_s, self._pause_s))

    def _until_ready(self, version: int, until_s: float, cause: str = "") -> None:
        """Add the time from a version: its aggregation, a pause, and a wait for ``cause``, or for clients."""
        resumed_s = min(until_s, self._resumed_s(version))
        ready_s = min(until_s, self._made_s[version] + self._aggregation_s)
        if cause:
            self._add(resumed_s, until_s, cause)
        else:
            self._wait(resumed_s, until_s)
        self._add(ready_s, resumed_s, "pause")
        self._add(self._made_s[version], ready_s, "aggregation")

    def _work(self, dispatch: int, known_s: float) -> None:
        ended_s = min(self._ended_s[dispatch], known_s)
        self._add(ended_s, known_s, "detection")
        ends_s = np.fmin(self._marks_s[dispatch], ended_s)
        ends_s[np.isnan(ends_s)] = ended_s
        begins_s = [self._dispatched_s[dispatch], *ends_s[:-1]]
        bounds = np.searchsorted(self._pauses[:, 0], [dispatch, dispatch + 1])
        for cause, begin_s, end_s in reversed(
            list(zip(WORK_PHASES, begins_s, ends_s, strict=True))
        ):
            at_s = end_s
            for _, off_s, on_s in self._pauses[slice(*bounds)][::-1]:
                from_s, to_s = max(off_s, begin_s), min(on_s, end_s)
                if from_s < to_s:
                    self._add(to_s, at_s, cause, dispatch)
                    self._add(from_s, to_s, "paused", dispatch)
                    at_s = from_s
            self._add(begin_s, at_s, cause, dispatch)

    def _wait(self, from_s: float, to_s: float) -> None:
        if self._online is None or to_s <= from_s:
            self._add(from_s, to_s, self._some_online)
            return
        times_s, counts = self._online.T
        inside = (times_s > from_s) & (times_s < to_s)
        bounds_s = [from_s, *times_s[inside], to_s]
        for begin_s, end_s in zip(bounds_s[-2::-1], bounds_s[:0:-1], strict=True):
            before = np.searchsorted(times_s, begin_s, side="right") - 1
            nobody = before >= 0 and counts[before] == 0
            self._add(begin_s, end_s, "nobody_online" if nobody else self._some_online)

    def _add(self, from_s: float, to_s: float, cause: str, dispatch: int = -1) -> None:
        if to_s <= from_s:
            return
        later = self.intervals[-1] if self.intervals else None
        if later is not None and later.cause == cause and later.dispatch_id == dispatch:
            self.intervals[-1] = later._replace(from_s=float(from_s))
        else:
            self.intervals.append(Interval(float(from_s), float(to_s), cause, dispatch))
