"""Updates that have arrived, and the rows and instructions of dispatches that have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import Plan
from fedsim.units import NS_PER_S
from fedsim.vocabulary.outcomes import Outcome
from fedsim.vocabulary.timeline import Aggregate, Contribution, Gather, LearningPlane, Train

# A named tuple's constructor costs one more call, which every update would pay.
_NEW_TUPLE = tuple.__new__
# Looking up a member of an enumeration costs several times as much as passing it on.
_AGGREGATED = Outcome.AGGREGATED


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
    """Records the rows of a run; :func:`fedsim.simulation.rows.dispatch_columns` makes columns of ended dispatches."""

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
            ended = (dispatch, plan, _AGGREGATED, version, mark, now_ns)
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
