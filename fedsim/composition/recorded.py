"""Trains a scenario on the recorded timeline of another run instead of simulating time.

The instructions of :mod:`fedsim.vocabulary.timeline` are rebuilt from the tables of the run: from which version each
dispatch started, how many steps it did, and which dispatches entered which server update. This is valid only if nothing
that affects time differs between the two scenarios; :func:`check_timeline` and :func:`check_assembly` refuse all
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.composition.world import full_work
from fedsim.errors import UserError, raise_all
from fedsim.runs.folder import Status
from fedsim.runs.phases import outcome_codes
from fedsim.runs.run import Run
from fedsim.runs.writer import RunWriter
from fedsim.scenario.comparing import differences
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.parts import Reading
from fedsim.scenario.training import Training
from fedsim.units import to_ns, to_s
from fedsim.vocabulary.formatting import format_command, format_count
from fedsim.vocabulary.outcomes import Outcome
from fedsim.vocabulary.timeline import Aggregate, Contribution, Evaluate, LearningPlane, Train

if TYPE_CHECKING:
    from fedsim.composition.assembled import Assembly

OPTION = "option --timeline"
LEARNED_VALUES = "schedule_used_learned_values"
"""Entry of ``run.json``: whether selection or schedule used a learned value."""


def world_seed(run: Run) -> int:
    """The seed of a run's devices and data split."""
    timeline = run.info.get("timeline")
    return int(timeline["seed"] if timeline else run.entry("seed"))


def check_timeline(run: Run, loaded: LoadedScenario) -> None:
    """Check that a scenario may use the timeline of a run, without building the scenario.

    Raises:
        UserError: the run is not complete, its schedule used learned values, or a key that affects time differs.
    """
    if run.status is not Status.COMPLETE:
        raise UserError(
            f"the run is {run.status}; --timeline needs a complete run",
            where=str(run.path),
            hint=f"finish it: {format_command('resume', run.path)}",
        )
    raise_all(_obstacles(run, loaded))


def _obstacles(run: Run, loaded: LoadedScenario) -> Iterator[UserError]:
    """Why a scenario cannot use the timeline of a complete run."""
    recorded = run.scenario
    for owner, target in (
        ("the recorded run", recorded["stop"].get("target")),
        ("the scenario", loaded.scenario.stop.target),
    ):
        if target:
            yield UserError(
                f"{owner} ends at a target ({', '.join(target)}), which depends on the training",
                where=f"{OPTION}: stop.target",
                hint="remove the target (-s stop.target={}); fedsim compare shows when it was reached",
            )
    if run.info.get(LEARNED_VALUES):
        yield _differs(
            "the recorded selection or schedule used learned values, so its timeline depends on the training"
        )
    if run.info.get("timing_only") and not loaded.scenario.task.type.learns:
        yield UserError(
            "the scenario's task only simulates time, so there is nothing to train",
            where=OPTION,
            hint="use a scenario that trains a model",
        )
    for path, here, there in differences(_about_time(recorded), _about_time(loaded.resolved())):
        yield _differs(
            f"{path} affects time: the recorded run has {_shown(here)}, the scenario {_shown(there)}"
        )


def _differs(what: str) -> UserError:
    """The error for a timeline that would not be that of the scenario."""
    return UserError(what, where=OPTION, hint="run the scenario without --timeline")


def check_assembly(run: Run, assembly: Assembly) -> None:
    """Check that the built scenario would take the same time as the recorded run.

    Raises:
        UserError: sizes, traffic, speeds or amounts of work differ.
    """
    clients, task, work = run.clients, assembly.task, assembly.world.work
    if len(clients) != len(task.samples):
        raise UserError(
            f"the recorded run has {format_count(len(clients))} clients, the scenario "
            f"{format_count(len(task.samples))}",
            where=OPTION,
        )
    reading = Reading(user_code="describe")
    training = Training.model_validate(run.scenario["training"], context=reading)
    before = full_work(task, training)
    ineligible = int(np.count_nonzero(assembly.population.short_of_memory))
    (here_down, here_up), (down, up) = (
        assembly.traffic_bytes,
        (float(run.entry(f"bytes_{way}_per_dispatch")) for way in ("down", "up")),
    )
    unequal = {
        "the numbers of samples per client differ from the recorded run": not np.array_equal(
            clients["samples"], task.samples
        ),
        f"a dispatch transfers {format_count(here_down)} bytes down, but {format_count(down)} in the recorded "
        "run": here_down != down,
        f"a dispatch transfers {format_count(here_up)} bytes up, but {format_count(up)} in the recorded "
        "run": here_up != up,
        "the durations of local steps differ from the recorded run": not np.array_equal(
            clients["step_s"], assembly.population.compute.step_s
        ),
        "the numbers of local steps per dispatch differ from the recorded run": not (
            np.array_equal(before.steps, work.steps)
            and before.time_budget_ns == work.time_budget_ns
        ),
        "only one of the two methods begins with a round of all clients": (
            run.info.get("prologue", False) == (assembly.prologue_bytes is None)
        ),
        "the method's clients keep the results of lost work, which a recorded run does not contain": (
            assembly.keeps_lost_work
        ),
        "the number of clients with too little memory differs from the recorded run": (
            ineligible != run.entry("ineligible_clients")
        ),
    }
    raise_all(_differs(what) for what, differs in unequal.items() if differs)


def _about_time(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that affect time, without the method."""
    server = {key: value for key, value in scenario["server"].items() if key != "method"}
    ignored = ("target", "stalled_after")
    stop = {key: value for key, value in scenario["stop"].items() if key not in ignored}
    return {"devices": scenario["devices"], "server": server, "stop": stop}


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


class RecordedTimeline:
    """Sends the instructions of a recorded run to the learning plane, and its rows to the run folder.

    It takes the place of :class:`fedsim.simulation.story.Server`. The scenario of the new run may evaluate at
    different times from the recorded run.
    """

    def __init__(
        self,
        run: Run,
        plane: LearningPlane,
        writer: RunWriter,
        assembly: Assembly,
        on_progress: Callable[[], None],
    ) -> None:
        self._run = run
        self._plane = plane
        self._writer = writer
        self._scenario = assembly.scenario
        self._differs = assembly.differs
        self.version = 0
        self.round = int(run.entry("rounds"))
        self.dispatched = len(run.dispatches)
        self.arrived = int(run.dispatches["arrived_s"].notna().sum())
        self.now_ns = to_ns(run.simulated_s)
        self._on_progress = on_progress

    def run(self) -> None:
        """Submit all instructions in the order of the recorded run."""
        self._write_dispatches()
        end_ns, self.now_ns = self.now_ns, 0
        evaluations = self._evaluations()
        trains, holds = self._trains()
        pending = evaluations.pop(0, [])
        self._open(0, holds, pending)
        for aggregate in self._aggregates():
            self._writer.append_aggregation(aggregate)
            for contribution in sorted(aggregate.contributions, key=lambda item: item.dispatch_id):
                self._plane.submit(trains[contribution.dispatch_id])
            self._plane.submit(aggregate)
            self.version = aggregate.version
            self.now_ns = to_ns(aggregate.time_s)
            self._open(self.version, holds, evaluations.get(self.version, []))
            self._on_progress()
        self.now_ns = end_ns

    def _open(self, version: int, holds: Counter[int], evaluations: list[Evaluate]) -> None:
        """Submit what happens while a version is the newest: dispatches start from it, and it is evaluated."""
        for _ in range(holds[version]):
            self._plane.hold(version)
        for evaluation in evaluations:
            self._plane.submit(evaluation)

    def _trains(self) -> tuple[dict[int, Train], Counter[int]]:
        """The training of every aggregated dispatch by its id, and how many of them start from each version."""
        table = self._run.dispatches
        used = table[outcome_codes(table) == Outcome.AGGREGATED]
        # A client without a used update in the version that it gets downloads as if for the first time.
        first = used.groupby("client_id")["aggregated_version"].transform("min")
        in_full = self._differs & (used["sequence"] > 0) & (first > used["version"])
        when = ("version", "round", "steps_done", "steps_assigned", "dispatched_s")
        columns = ("dispatch_id", "client_id", "sequence", *when)
        rows = zip(*(used[name].tolist() for name in columns), strict=True)
        trains = {
            row[0]: replace(Train(*row), in_full=complete)
            for row, complete in zip(rows, in_full.tolist(), strict=True)
        }
        return trains, Counter(used["version"].tolist())

    def _aggregates(self) -> Iterator[Aggregate]:
        dispatches = self._run.dispatches
        clients = dispatches["client_id"].to_numpy()
        staleness = dispatches["staleness"].to_numpy(dtype=np.int64, na_value=0)
        groups = dispatches["group"].to_numpy()
        names = ("version", "time_s", "round", "contributor_ids", "multiplicities", "attributes")
        table = self._run.aggregations[[*names]]
        for version, time_s, round_, listed, drawn, attributes in table.itertuples(index=False):
            ids = np.asarray(listed, dtype=np.int64)
            times = [1] * len(ids) if drawn is None else [int(one) for one in drawn]
            rows = (ids, clients[ids], staleness[ids], groups[ids])
            columns = zip(*(values.tolist() for values in rows), times, strict=True)
            contributions = tuple(Contribution(*values) for values in columns)
            yield Aggregate(int(version), float(time_s), int(round_), contributions, attributes)

    def _write_dispatches(self) -> None:
        table = self._run.dispatches
        columns = {name: table[name].to_numpy() for name in table.columns}
        columns["outcome"] = outcome_codes(table)
        columns["cause"] = table["cause"].cat.codes.to_numpy()
        for name in ("staleness", "aggregated_version"):
            columns[name] = table[name].to_numpy(dtype=np.int64, na_value=-1)
        self._writer.append_dispatches(columns)

    # -- evaluations ------------------------------------------------------------------------------------------------

    def _evaluations(self) -> dict[int, list[Evaluate]]:
        """The evaluations by version: the recorded ones, unless the scenario evaluates at other times."""
        recorded, evaluation = self._run.scenario["evaluation"], self._scenario.evaluation
        when = ("every", "every_rounds", "at_start")
        table = self._run.metrics
        if len(table) and all(recorded[key] == getattr(evaluation, key) for key in when):
            rows = table[["version", "time_s", "round"]].itertuples(index=False, name=None)
            planned = [Evaluate(int(v), float(time_s), int(r)) for v, time_s, r in rows]
        else:
            planned = self._planned()
        by_version: dict[int, list[Evaluate]] = {}
        for instruction in planned:
            by_version.setdefault(instruction.version, []).append(instruction)
        return by_version

    def _planned(self) -> list[Evaluate]:
        """The evaluations that a simulation of the scenario would have made."""
        evaluation, end_ns = self._scenario.evaluation, to_ns(self._run.simulated_s)
        times_ns = [to_ns(time_s) for time_s in self._run.aggregations["time_s"]]
        # The round of the server after each version: it grows if the version closed its round.
        ended = self._run.aggregations["round"].tolist()
        following = [*ended[1:], int(self._run.entry("rounds"))]
        rounds = [0, *(r + 1 if n > r else r for r, n in zip(ended, following, strict=True))]
        planned: list[Evaluate] = []

        def evaluate(version: int, time_ns: int) -> None:
            planned.append(Evaluate(version, to_s(time_ns), rounds[version]))

        if evaluation.at_start:
            evaluate(0, 0)
        if evaluation.every is not None:
            every = to_ns(evaluation.every)
            # An evaluation due at the last instant comes after the event that ended the run, unless the time limit did.
            until = self._scenario.stop.simulated_time
            last_ns = end_ns if until is not None and to_ns(until) == end_ns else end_ns - 1
            made = np.searchsorted(times_ns, np.arange(every, last_ns + 1, every), side="right")
            for number, version in enumerate(made.tolist(), start=1):
                evaluate(version, number * every)
        every_versions = evaluation.every_rounds or (1 if evaluation.every is None else None)
        if every_versions is not None:
            for version in range(every_versions, len(times_ns) + 1, every_versions):
                evaluate(version, times_ns[version - 1])
        # Several versions may be created at one instant; each is evaluated before the next is created.
        planned.sort(key=lambda item: (item.version, item.time_s))
        if not planned or planned[-1].version != len(times_ns):
            evaluate(len(times_ns), end_ns)
        return planned
