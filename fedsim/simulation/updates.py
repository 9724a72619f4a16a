"""Updates that have arrived, and the rows and instructions of dispatches that have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fedsim.outcomes import Outcome
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.course import Plan
from fedsim.simulation.energy import EnergyUse
from fedsim.simulation.facts import Rules
from fedsim.timeline import Aggregate, Contribution, LearningPlane, Train
from fedsim.units import NS_PER_S

_NAN = float("nan")
# A named tuple's own constructor costs one more call, which every update would pay.
_NEW_TUPLE = tuple.__new__


class Recorder(Protocol):
    """Records the rows of a run."""

    def append_dispatch(self, *values: Any) -> None:
        """Record a dispatch with its outcome: the columns of ``dispatches`` in their order."""

    def append_aggregation(self, aggregate: Aggregate) -> None:
        """Record a server update."""


class Updates:
    """Holds updates until they are aggregated or discarded, and records how every dispatch ended.

    Attributes:
        held: updates that have arrived and are not used yet, in order of arrival.
        lost: number of dispatches that have ended without being aggregated since the last aggregation, by outcome.
    """

    def __init__(
        self, rules: Rules, energy: EnergyUse, plane: LearningPlane | None, recorder: Recorder
    ) -> None:
        self._rules = rules
        self._energy = energy
        self._plane = plane
        self._recorder = recorder
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
    ) -> None:
        """Create a version from held updates: instructions to the learning plane, and rows."""
        if dispatches:
            self.lost.clear()
        marks = groups if groups is not None else [0] * len(dispatches)
        contributions = tuple(
            [
                _NEW_TUPLE(
                    Contribution,
                    (
                        dispatch.dispatch_id,
                        dispatch.client,
                        dispatch.staleness,
                        mark,
                        dispatch.multiplicity,
                    ),
                )
                for dispatch, mark in zip(dispatches, marks, strict=True)
            ]
        )
        aggregate = Aggregate(version, now_ns / NS_PER_S, round_, contributions, attributes or {})
        if self._plane is not None:
            for dispatch in sorted(dispatches, key=lambda item: item.dispatch_id):
                self._plane.submit(_train(dispatch, dispatch.steps_done))
            self._plane.submit(aggregate)
        for dispatch, mark in zip(dispatches, marks, strict=True):
            dispatch.used = True
            plan = self.held.pop(dispatch)
            self._write(dispatch, plan, Outcome.AGGREGATED, version, mark, now_ns)
        self._recorder.append_aggregation(aggregate)

    def close(self, dispatch: Dispatch, plan: Plan, outcome: Outcome, now_ns: int) -> None:
        """Record a dispatch that is not aggregated."""
        self.lost[outcome] += 1
        if self._plane is not None:
            if self._is_kept(dispatch, plan, outcome):
                self._plane.submit(_train(dispatch, plan.steps_done, used=False))
            else:
                self._plane.drop(dispatch.version)
        self._write(dispatch, plan, outcome, -1, 0, now_ns)

    def _is_kept(self, dispatch: Dispatch, plan: Plan, outcome: Outcome) -> bool:
        """Whether the client keeps what it learned in a dispatch that is not aggregated: it has done its steps."""
        rules = self._rules
        if not rules.trains_lost_work or (rules.has_prologue and dispatch.version == 0):
            return False
        return plan.computed_ns >= 0 and outcome is not Outcome.UNFINISHED

    def _write(
        self,
        dispatch: Dispatch,
        plan: Plan,
        outcome: Outcome,
        version: int,
        group: int,
        now_ns: int,
    ) -> None:
        dispatch.open = False
        client = dispatch.client
        end, arrives, downloaded, computed, steps_done, bytes_down, bytes_up, _, _, _ = plan
        self._recorder.append_dispatch(
            dispatch.dispatch_id,
            client,
            dispatch.version,
            dispatch.round,
            dispatch.dispatched_ns / NS_PER_S,
            downloaded / NS_PER_S if downloaded >= 0 else _NAN,
            computed / NS_PER_S if computed >= 0 else _NAN,
            end / NS_PER_S if arrives else _NAN,
            dispatch.steps,
            steps_done,
            outcome,
            dispatch.staleness if arrives else -1,
            version,
            round(bytes_down),
            round(bytes_up),
            self._energy.joules(client, plan),
            dispatch.sequence,
            group,
            (end if end < now_ns else now_ns) / NS_PER_S,
        )


def _train(dispatch: Dispatch, steps: int, *, used: bool = True) -> Train:
    """The instruction to train a dispatch for ``steps`` local steps."""
    return Train(
        dispatch.dispatch_id,
        dispatch.client,
        dispatch.sequence,
        dispatch.version,
        dispatch.round,
        steps,
        dispatch.steps,
        dispatch.dispatched_ns / NS_PER_S,
        used,
    )
