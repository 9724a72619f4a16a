"""Updates that have arrived, and the rows and instructions of dispatches that have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedsim.devices.battery import Power
from fedsim.devices.grid import Footprint
from fedsim.devices.population import Population
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import Plan
from fedsim.units import NS_PER_S
from fedsim.vocabulary.arrays import Array, Floats, Ints
from fedsim.vocabulary.outcomes import AGGREGATED, ARRIVED, Ending, Outcome
from fedsim.vocabulary.timeline import Aggregate, Contribution, Gather, LearningPlane, Train

# A named tuple's constructor costs one more call, which every update would pay.
_NEW_TUPLE = tuple.__new__


class Ended(NamedTuple):
    """A dispatch that has ended, as it is recorded.

    Attributes:
        dispatch, plan: the dispatch and its course.
        outcome: its outcome.
        version: the version that its update entered; -1 if none.
        group: mark set by the schedule.
        now_ns: when the outcome was known.
    """

    dispatch: Dispatch
    plan: Plan
    outcome: Outcome
    version: int
    group: int
    now_ns: int


class Recorder(Protocol):
    """Records the rows of a run; :func:`dispatch_columns` makes columns of ended dispatches."""

    def append_dispatch(self, ended: Ended) -> None:
        """Record a dispatch with its outcome."""

    def append_aggregation(self, aggregate: Aggregate) -> None:
        """Record a server update."""


class Updates:
    """Holds updates until they are aggregated or discarded, and records how every dispatch ended.

    Args:
        recorder: records the rows.
        plane: receives the instructions to train and aggregate; None if nothing is trained.
        keeps_from: version from which clients keep what they learned even if the server never uses it; None if never.

    Attributes:
        held: updates that have arrived and are not used yet, in order of arrival.
        lost: number of dispatches that have ended without being aggregated since the last aggregation, by outcome.
    """

    def __init__(
        self,
        recorder: Recorder,
        plane: LearningPlane | None = None,
        keeps_from: int | None = None,
    ) -> None:
        self._recorder = recorder
        self._append = recorder.append_dispatch
        self._plane = plane
        self._keeps_from = keeps_from
        self.held: dict[Dispatch, Plan] = {}
        self.lost: Counter[Outcome] = Counter()

    def aggregate(
        self,
        dispatches: Sequence[Dispatch],
        groups: Sequence[int] | None,
        attributes: Mapping[str, float] | None,
        *,
        version: int,
        round_: int,
        now_ns: int,
        edge: int = -1,
        adopted: int = 0,
    ) -> None:
        """Create a version from held updates: rows, and instructions to the learning plane."""
        if dispatches:
            self.lost.clear()
        marks = groups if groups is not None else [0] * len(dispatches)
        contributions = tuple(
            [
                _NEW_TUPLE(
                    Contribution,
                    (
                        dispatch.dispatch_id,
                        dispatch.client_id,
                        dispatch.staleness,
                        mark,
                        dispatch.multiplicity,
                    ),
                )
                for dispatch, mark in zip(dispatches, marks, strict=True)
            ]
        )
        aggregate = Aggregate(
            version, now_ns / NS_PER_S, round_, contributions, attributes or {}, edge, adopted
        )
        held, append = self.held, self._append
        for dispatch, mark in zip(dispatches, marks, strict=True):
            dispatch.used = True
            dispatch.open = False
            try:
                plan = held.pop(dispatch)
            except KeyError:
                raise without_update(dispatch) from None
            ended = (dispatch, plan, AGGREGATED, version, mark, now_ns)
            append(_NEW_TUPLE(Ended, ended))
        self._recorder.append_aggregation(aggregate)
        # After the rows: a run may be stopped as soon as a checkpoint contains the version.
        if self._plane is not None:
            for dispatch in sorted(dispatches, key=lambda item: item.dispatch_id):
                self._plane.submit(self._work(_train(dispatch, dispatch.steps_done)))
            self._plane.submit(aggregate)

    def close(self, dispatch: Dispatch, plan: Plan, outcome: Outcome, now_ns: int) -> None:
        """Record a dispatch that is not aggregated."""
        self.lost[outcome] += 1
        if self._plane is not None:
            kept = self._keeps_from is not None and dispatch.version >= self._keeps_from
            # The client keeps what it learned if it has done its steps.
            if kept and plan.computed_ns >= 0 and outcome is not Outcome.UNFINISHED:
                self._plane.submit(_train(dispatch, plan.steps_done, used=False))
            else:
                self._drop(dispatch, self._plane)
        dispatch.open = False
        self._append(Ended(dispatch, plan, outcome, -1, 0, now_ns))

    def _work(self, train: Train) -> Train | Gather:
        """The instruction by which the learning plane gets the update of a dispatch."""
        return train

    def _drop(self, dispatch: Dispatch, plane: LearningPlane) -> None:
        """Release what the learning plane keeps for a dispatch that it will not train."""
        plane.drop(dispatch.version + dispatch.adopted, dispatch.edge)


def _train(dispatch: Dispatch, steps: int, *, used: bool = True) -> Train:
    """The instruction to train a dispatch for ``steps`` local steps."""
    return Train(
        dispatch.dispatch_id,
        dispatch.client_id,
        dispatch.sequence,
        dispatch.version,
        dispatch.round,
        steps,
        dispatch.steps,
        dispatch.dispatched_ns / NS_PER_S,
        used,
        dispatch.edge,
        dispatch.adopted,
        dispatch.in_full,
    )


def without_update(dispatch: Dispatch) -> ValueError:
    """The error of a schedule that uses an update which has not arrived, or uses one again; shown with its line."""
    return ValueError(
        f"dispatch {dispatch.dispatch_id} of client {dispatch.client} has no update to aggregate or discard: use each "
        "update once, after it has arrived (if event.arrived)"
    )


# -- the columns of ``dispatches``: many at once, because a division or a row for each would cost more than its event


_EXACT_NS = 1 << 53


def recorded(population: Population) -> dict[str, Any]:
    """What a :class:`~fedsim.runs.writer.RunWriter` needs to know about the dispatches of a population."""
    footprint = population.footprint
    columns = partial(dispatch_columns, population.power, footprint=footprint)
    return {"columns": columns, "spent": [] if footprint is None else footprint.names}


def dispatch_columns(
    power: Power, ended: Sequence[Ended], footprint: Footprint | None = None
) -> dict[str, Array]:
    """The columns of ``dispatches`` by name, (n,) each; times are NaN and whole numbers -1 if there is none.

    ``power`` gives the energy that their devices use, and ``footprint`` its emissions and cost.
    """
    dispatches, plans, *marks = zip(*ended, strict=True)

    def column(values: Iterable[Any], dtype: type[Any] = np.int64) -> Array:
        return np.fromiter(values, dtype, len(ended))

    def of_dispatch(name: str) -> Array:
        return column(map(attrgetter(name), dispatches))

    outcome, version, group, now_ns = map(column, marks)
    end_ns, endings, downloaded, computed, steps_done, down, up, *work = zip(*plans, strict=True)
    work_ns, end, ending = np.array(work, dtype=np.int64), column(end_ns), column(endings)
    arrived = ending == ARRIVED
    names = ("dispatch_id", "client_id", "version", "round", "sequence")
    columns = {name: of_dispatch(name) for name in names}
    watts = power.watts[power.of_client[columns["client_id"]]]
    columns |= {
        "steps_assigned": of_dispatch("steps"),
        "dispatched_s": _seconds(of_dispatch("dispatched_ns")),
        "downloaded_s": _seconds_or_nan(column(downloaded)),
        "computed_s": _seconds_or_nan(column(computed)),
        "arrived_s": _seconds_or_nan(np.where(arrived, end, -1)),
        "steps_done": column(steps_done),
        "outcome": outcome,
        "staleness": np.where(arrived, of_dispatch("staleness"), -1),
        "aggregated_version": version,
        "bytes_down": np.rint(column(down, np.float64)).astype(np.int64),
        "bytes_up": np.rint(column(up, np.float64)).astype(np.int64),
        "energy_j": (watts.T * work_ns).sum(0) / NS_PER_S,
        "group": group,
        "ended_s": _seconds(np.minimum(end, now_ns)),
        **dict(zip(("download_s", "compute_s", "upload_s"), map(_seconds, work_ns), strict=True)),
    }
    if dispatches[0].edge >= 0:
        columns["edge"] = of_dispatch("edge")
    if footprint is not None:
        columns |= footprint.columns(columns)
    columns["cause"] = np.where(outcome == Outcome.DROPPED, ending - Ending.OFFLINE, -1)
    return columns


def _seconds_or_nan(time_ns: Ints) -> Floats:
    """Seconds; NaN for negative times."""
    return np.where(time_ns < 0, np.nan, _seconds(time_ns))


def _seconds(time_ns: Ints) -> Floats:
    """The floating-point numbers nearest to the exact quotients, as Python's division of integers gives them."""
    if time_ns.max(initial=0) > _EXACT_NS:
        return np.array([value / NS_PER_S for value in time_ns.tolist()])
    return time_ns / NS_PER_S
