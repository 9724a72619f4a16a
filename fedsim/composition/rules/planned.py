"""The rules on a scenario with its data and devices, before the first event."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim import bundled
from fedsim.composition.rules import RuleTable
from fedsim.composition.world import shown_duration
from fedsim.errors import UserError
from fedsim.learning.metrics.base import declares_direction
from fedsim.methods.base import Rounds
from fedsim.network.base import Direction
from fedsim.network.columns import AccessParams
from fedsim.network.shared import SharedNetwork
from fedsim.parts.component import is_bundled
from fedsim.scheduling.schedules.sync import Sync
from fedsim.traces.validation import implausible_rates as doubt_of_rates
from fedsim.traces.validation import implausible_times as doubt_of_times
from fedsim.units import NS_PER_S, to_ns
from fedsim.vocabulary.arrays import Bools
from fedsim.vocabulary.formatting import (
    format_count,
    format_counted,
    format_duration,
    format_energy,
    format_number,
    format_share,
)

if TYPE_CHECKING:
    from fedsim.composition.devices import PartName
    from fedsim.composition.world import World
    from fedsim.traces.bundle import TraceBundle

PLANNED: RuleTable[World] = RuleTable()
"""The rules on a scenario that is put together."""

UNITS = (
    "implausible-times",
    "implausible-rates",
    "short-run",
    "long-latency",
    "fast-links",
    "slow-links",
    "high-power",
)
"""Rules about values in a wrong unit, which may be why a run cannot succeed."""

OF_DEVICES = (
    *UNITS,
    "unmatched-names",
    "unused-latency",
    "invalid-devices",
    "frequent-crashes",
    "drifting-hours",
    "unobserved-time",
)
"""Rules about devices alone, which apply to a Flower app, too."""

_HOUR_S = 3600.0
_RARELY = 1e-3
_UNOBSERVED = 0.01
_MANY = 0.1
_FEW_ONLINE = 0.5
_LONGEST_LATENCY_S, _LONGEST_LATENCY_OF_LINK_S = 5.0, 1.0
_SLOWEST_LINK_BPS, _SLOWEST_LINK_OF_TOPOLOGY_BPS = 1e3, 10e3
_FASTEST_LINK_BPS = 100e9
_MOST_WATTS = 1000.0


# -- traces ------------------------------------------------------------------------------------------------------------


@PLANNED
def unmatched_names(world: World) -> Iterator[UserError]:
    """Clients have the names of devices of the trace, but are paired with other devices.

    ``devices.assign: in_order`` pairs the first client with the first device, whatever their names are.
    """
    wrong, clients = world.devices.clients_on_other_devices(), world.task.clients
    if wrong:
        yield UserError(
            f"{format_count(wrong)} of {format_counted(clients, 'client')} {'is' if wrong == 1 else 'are'} not on the "
            "device of that name, because clients and devices are paired in their order",
            where="devices.assign",
            hint="pair them by name: devices.assign: by_name",
        )


@PLANNED
def unused_latency(world: World) -> Iterator[UserError]:
    """The trace has round-trip times, but every client has the default latency."""
    params, bundle = world.scenario.devices.network.params, world.devices.bundle("network")
    is_default = isinstance(params, AccessParams) and "latency" not in params.model_fields_set
    if bundle is None or not is_default or bundle.where.startswith(bundled.PREFIX):
        return
    if bundle.has("network", "rtt_s") and not np.isnan(bundle.numpy("network", "rtt_s")).all():
        yield UserError(
            "every client has the default of 40 ms, but the trace has round-trip times",
            where="devices.network.latency",
            hint="give bundle, to use half of a device's round-trip time, or a duration",
        )


@PLANNED
def implausible_times(world: World) -> Iterator[UserError]:
    """The times of the availability trace were probably read in a wrong unit.

    Its median interval is shorter than 1 s or longer than 10 days, or the trace lasts for more than 5 years. If it was
    imported with a ``time_unit``: or its intervals are shorter than a minute, in less than 3 hours.
    """
    yield from _of_trace(world, "availability", doubt_of_times)


@PLANNED
def implausible_rates(world: World) -> Iterator[UserError]:
    """The rates, or the times of round trips and steps, of a trace were probably read in a wrong unit.

    Their median is below 50 kbit/s or above 2 Gbit/s; of servers, below 1 Mbit/s or above 400 Gbit/s; of round trips,
    below 10 us or above 5 s; of steps, below 1 us or above 1 h.
    """
    parts: tuple[PartName, ...] = ("network", "compute")
    for part in parts:
        yield from _of_trace(world, part, partial(doubt_of_rates, part=part))


def _of_trace(
    world: World, part: PartName, doubt_of: Callable[[TraceBundle], UserError | None]
) -> Iterator[UserError]:
    bundle = world.devices.replayed_trace(part)
    if bundle is not None and (doubt := doubt_of(bundle)):
        where = world.devices.trace_key(part)
        yield UserError(f"{doubt.where}: {doubt.message}", where=where, hint=doubt.hint)


@PLANNED
def invalid_devices(world: World) -> Iterator[UserError]:
    """Clients are devices that the trace marks as invalid."""
    devices = world.devices
    bundle = devices.replayed_trace("availability")
    if bundle is None:
        return
    if invalid := int(np.count_nonzero(~bundle.valid[devices.device_rows("availability")])):
        yield UserError(
            f"{format_count(invalid)} of {format_counted(world.task.clients, 'client')} are devices that the trace "
            "marks as invalid",
            where=devices.trace_key("availability"),
            hint="'fedsim traces sample' takes only usable devices",
        )


# -- what is learned and measured --------------------------------------------------------------------------------------


@PLANNED
def doubtful_task(world: World) -> Iterator[UserError]:
    """The task doubts its data or its model.

    Labels that begin at 1, classes whose names differ only in upper and lower case, or a module that ends with a
    softmax, whose loss expects logits.
    """
    yield from world.task.doubts()


@PLANNED
def nothing_measured(world: World) -> Iterator[UserError]:
    """The run trains a model, but measures no metric, because the data set has no test samples."""
    if world.learns and not world.measured:
        yield UserError(
            "the data set has no test samples, so the run measures no metric",
            where="task.dataset",
            hint="give it test samples, or give clients their own: task.partition.test: split with "
            "evaluation.per_client: true",
        )


@PLANNED
def seldom_evaluated(world: World) -> Iterator[UserError]:
    """The run ends before its first periodic evaluation."""
    evaluation, stop = world.scenario.evaluation, world.scenario.stop
    models = "the initial and the final model" if evaluation.at_start else "the final model"
    for key, end in (("every", stop.simulated_time), ("every_rounds", stop.rounds)):
        if world.learns and (getattr(evaluation, key) or 0) > (end or math.inf):
            yield UserError(
                f"only {models} will be evaluated, because the run ends before the first interval does",
                where=f"evaluation.{key}",
                hint="evaluate more often, or leave the setting out",
            )


@PLANNED
def undeclared_direction(world: World) -> Iterator[UserError]:
    """A run stops at a target of your own metric, which does not declare whether higher values are better.

    Without a declaration, higher values are better, so that an error of 0.5 meets a target of 0.1.
    """
    target = world.scenario.stop.target
    for metric in world.metrics if world.learns else ():
        if metric.column in target and not declares_direction(metric):
            yield UserError(
                f"the metric {metric.column} does not declare whether higher values are better, which is assumed: the "
                f"target is met at {target[metric.column]:g} and above",
                where=f"stop.target.{metric.column}",
                hint="write higher_is_better = True, or False, in the class, or as an attribute of the function",
            )


@PLANNED
def unmeasured_personal_models(world: World) -> Iterator[UserError]:
    """Clients have personal models, but only the shared model is measured, because they have no test samples."""
    method, task = world.method, world.task
    if not (world.learns and method.personal) or world.scenario.evaluation.objective:
        return
    of_all = task.evaluation_passes(per_client=False, objective=False)
    of_clients = task.evaluation_passes(per_client=True, objective=False) - of_all
    if of_all and not of_clients:
        yield UserError(
            f"{method.title or method.name} trains a personal model for each client, but only the shared model will "
            "be measured, because the clients have no test samples",
            where="task.partition.test",
            hint="give them test samples: split, or same_distribution",
        )


@PLANNED
def unusual_schedule(world: World) -> Iterator[UserError]:
    """The paper of the method uses a different schedule, so results are not those of the published method.

    Your own schedules are never unusual, nor are schedules of your own methods, unless they give ``paper_schedules``.
    """
    method, server = world.method, world.server
    schedule, of_paper = server.schedule.type.name, method.paper_schedules
    if not of_paper or not schedule or schedule in of_paper or server.schedule.user is not None:
        return
    if server.method.user is not None and "paper_schedules" not in vars(type(method)):
        return  # inherited from a built-in method, whose paper describes a different one
    title = method.title or method.name
    yield UserError(
        f"{title} was not designed for the {schedule} schedule; its paper uses {' or '.join(of_paper)}",
        where=f"{server.section_of_devices}.schedule",
        hint=f"results are not those of {title} as published",
    )


@PLANNED
def unused_setting(world: World) -> Iterator[UserError]:
    """A setting changes nothing, because another one on which it depends is missing."""
    server, devices = world.server, world.scenario.devices
    section, failures, energy = server.section_of_devices, devices.failures, devices.energy
    schedule, given = server.schedule, server.schedule.params
    is_sync, sends = isinstance(given, Sync.Params), server.partial_work == "send"
    draws_all = "cohort" in type(server.selection.params).model_fields
    draws_all &= world.cohort is None
    # What a schedule of the user announces is unknown.
    announces = schedule.user is not None or (
        issubclass(schedule.type, Sync)
        and (not schedule.type.patience or given.deadline is not None)
    )
    rows = (
        (
            is_sync and draws_all and given.over_selection > 1,
            f"{section}.schedule.over_selection",
            "a round without a cohort selects all available clients, and no more",
            f"give {section}.selection.cohort",
        ),
        (
            is_sync and given.grace > 0 and given.quorum is None,
            f"{section}.schedule.grace",
            "without a quorum, no round waits for it",
            f"give {section}.schedule.quorum",
        ),
        (
            sends and not announces,
            "server.partial_work",
            "the schedule announces no deadline, so no client stops to send what it has",
            f"give a deadline: {section}.schedule: {{name: sync, deadline: 10min}}",
        ),
        (
            server.foresight and not sends,
            "server.foresight",
            "only clients that send partial work use it",
            "set server.partial_work: send",
        ),
        (
            failures.upload_retries > 0 and not failures.upload_loss,
            "devices.failures.upload_retries",
            "no upload is lost",
            "give devices.failures.upload_loss",
        ),
        *(
            (
                getattr(energy, name) != type(energy).model_fields[name].default
                and not energy.has_batteries,
                f"devices.energy.{name}",
                "devices have no battery",
                "give devices.energy.battery_j",
            )
            for name in ("battery_floor", "recharge_w")
        ),
    )
    for is_unused, where, why, hint in rows:
        if is_unused:
            yield UserError(
                f"it changes nothing: {why}", where=where, hint=f"{hint}, or leave it out"
            )


@PLANNED
def plain_fedavg(world: World) -> Iterator[UserError]:
    """With its parameters, and the work and the clients of the rounds, the method does what FedAvg does."""
    scenario, prospects = world.scenario, world.prospects
    server, devices, training = scenario.server.of_devices, scenario.devices, scenario.training
    schedule, drawn = server.schedule, server.selection
    method = server.method.type
    # A class of the user's changes what it inherits.
    if schedule.type is not Sync or not (is_bundled(method) or "is_fedavg" in vars(method)):
        return
    full = (
        server.partial_work != "send"
        and training.limited is None
        and training.time_budget is None
        and devices.availability.params.on_disconnect != "send_partial"
    )
    draws_all = "cohort" in type(drawn.params).model_fields and not drawn.type.with_replacement
    failures, loses = devices.failures, devices.energy.has_batteries
    loses |= bool(failures.crash_rate or failures.upload_loss or schedule.params.deadline)
    because = world.method.is_fedavg(
        Rounds(
            full_work=full,
            equal_work=full and len(np.unique(world.task.local_steps(training))) == 1,
            all_clients=draws_all
            and (world.cohort or world.task.clients) >= world.task.clients
            and prospects.count == world.task.clients
            and devices.availability.name == "always"
            and schedule.params.quorum is None
            and not loses,
        )
    )
    if because:
        yield UserError(
            f"{world.method.title} is FedAvg here: {because}",
            where=f"{scenario.server.section_of_devices}.method",
            hint="call it fedavg, or change that",
        )


@PLANNED
def absent_clients_weigh(world: World) -> Iterator[UserError]:
    """Clients that are offline keep a weight in the model of this method, and fewer than half of them are online."""
    method, availability = world.method, world.population.availability
    if not method.weight_of_absent:
        return
    end_ns = min(to_ns(method.context.availability_cycle_s), availability.horizon_ns)
    share = float(availability.online_between_ns(0, end_ns).mean()) / max(1, end_ns)
    if share < _FEW_ONLINE:
        yield UserError(
            f"{method.title} {method.weight_of_absent}, but on average only {format_share(share)} of the clients are "
            "online, so each version moves the model little",
            where=f"{world.server.section_of_devices}.method",
            hint="use a method that averages over the received updates, such as fedavg, fedbuff (scale: mean) or fedat "
            "(silent_tiers: skip), or a trace with more clients online",
        )


# -- what the clients can do -------------------------------------------------------------------------------------------


@PLANNED
def large_cohort(world: World) -> Iterator[UserError]:
    """A round selects more clients than can ever be given work."""
    prospects, cohort = world.prospects, world.cohort
    if cohort is None or world.server.selection.type.with_replacement:
        return
    selected = math.ceil(cohort * prospects.demands.over_selection - 1e-9)
    if selected > prospects.count:
        yield UserError(
            f"{format_count(selected)} clients should work at once, but {prospects.available}",
            where=f"{world.server.section_of_devices}.selection.cohort",
            hint="rounds will have fewer clients than the scenario requests",
        )


@PLANNED
def slow_clients(world: World) -> Iterator[UserError]:
    """More than a tenth of the clients need longer than the schedule waits, at nominal speed.

    Their updates are late in every round. A few stragglers are usually intended.
    """
    prospects = world.prospects
    late = _if_many(world, prospects.late)
    if late:
        slowest = prospects.needed_s.max()
        yield UserError(
            f"at nominal speed, {format_count(late)} of {prospects.those} cannot {prospects.finish}; the slowest needs "
            f"{shown_duration(slowest)}",
            where=prospects.limit_key,
            hint=prospects.more_time(slowest),
        )


@PLANNED
def frequent_crashes(world: World) -> Iterator[UserError]:
    """Clients crash so often that fewer than 1 in 1,000 of their dispatches finish."""
    rate, prospects = world.scenario.devices.failures.crash_rate, world.prospects
    survives = np.exp(-rate * prospects.compute_s / _HOUR_S)
    if crashing := int(np.count_nonzero(survives < _RARELY)):
        yield UserError(
            f"for {format_count(crashing)} of {format_count(prospects.count)} clients, fewer than 1 in 1,000 "
            "dispatches finish before a crash",
            where="devices.failures.crash_rate",
            hint="it is the number of crashes per hour of computing",
        )


@PLANNED
def short_run(world: World) -> Iterator[UserError]:
    """``stop.simulated_time`` is so short that most clients cannot finish one dispatch."""
    until_s, prospects = world.scenario.stop.simulated_time, world.prospects
    longer = 0 if until_s is None else int(np.count_nonzero(prospects.needed_s > until_s))
    if until_s is not None and longer > prospects.count / 2:
        yield UserError(
            f"at nominal speed, {format_count(longer)} of {prospects.those} need longer for one dispatch than the run "
            f"lasts, {format_duration(until_s)}; the fastest needs {shown_duration(prospects.needed_s.min())}",
            where="stop.simulated_time",
            hint="a time without a unit is in seconds; write, for example, 2d",
        )


@PLANNED
def long_latency(world: World) -> Iterator[UserError]:
    """The latency of more than a tenth of the clients is above 5 s, or that of a link of the topology above 1 s.

    The unit of a number without one is seconds: write ``40ms``.
    """
    network = world.population.network
    latencies_s = network.latencies_ns(Direction.DOWN)[world.prospects.usable] / NS_PER_S
    if far := _if_many(world, latencies_s > _LONGEST_LATENCY_S):
        yield UserError(
            f"the latency of {format_count(far)} of {world.prospects.those} is above "
            f"{format_duration(_LONGEST_LATENCY_S)}",
            where="devices.network",
            hint="a latency without a unit is in seconds; write, for example, 40ms",
        )
    if isinstance(network, SharedNetwork):
        far_links = network.topology.latency_ns / NS_PER_S > _LONGEST_LATENCY_OF_LINK_S
        yield from _of_topology(
            network,
            far_links,
            "a latency above 1 s",
            "a latency without a unit is in seconds; write 5ms",
        )


@PLANNED
def fast_links(world: World) -> Iterator[UserError]:
    """The links of more than a tenth of the clients have more than 100 Gbit/s, which only data centers have."""
    yield from _links(
        world,
        lambda bps: np.isfinite(bps) & (bps > _FASTEST_LINK_BPS),
        "more than 100 Gbit/s",
        "check the unit of the rates, of an imported trace that of its source",
    )


@PLANNED
def slow_links(world: World) -> Iterator[UserError]:
    """The links of more than a tenth of the clients have less than 1 kbit/s, or a link of the topology 10 kbit/s.

    The unit of a number without one is bits per second: write ``5Mbps``.
    """
    network = world.population.network
    if isinstance(network, SharedNetwork):
        capacity_bps = network.topology.capacity_bps
        yield from _of_topology(
            network,
            (capacity_bps > 0) & (capacity_bps < _SLOWEST_LINK_OF_TOPOLOGY_BPS),
            "less than 10 kbit/s",
            "a capacity without a unit is in bits per second; write 1Gbps",
        )
    yield from _links(
        world,
        lambda bps: (bps > 0) & (bps < _SLOWEST_LINK_BPS),
        "less than 1 kbit/s",
        "a rate without a unit is in bits per second; write, for example, 5Mbps",
    )


@PLANNED
def high_power(world: World) -> Iterator[UserError]:
    """A device draws more than 1 kW, which only servers do; power is in watts, not milliwatts."""
    energy = world.scenario.devices.energy
    of_kinds = {f"devices.energy.classes.{kind}": each for kind, each in energy.classes.items()}
    for where, power in {"devices.energy": energy, **of_kinds}.items():
        for key in ("compute_w", "download_w", "upload_w"):
            if (watts := getattr(power, key)) > _MOST_WATTS:
                yield UserError(
                    f"{format_number(watts)} W is more than a phone or a PC draws",
                    where=f"{where}.{key}",
                    hint="it is in watts, not milliwatts; a phone that trains draws about 2.5",
                )


@PLANNED
def small_battery(world: World) -> Iterator[UserError]:
    """A full battery of more than a tenth of the clients does not last for a dispatch, so each of them is dropped."""
    prospects = world.prospects
    if prospects.batteries is None:
        return
    needed_j, full_j, _ = prospects.batteries
    lasts = needed_j <= full_j
    if empty := _if_many(world, ~lasts):
        worst = int(np.where(lasts, -np.inf, needed_j).argmax())
        yield UserError(
            f"for {format_count(empty)} of {prospects.those}, a full battery ({format_energy(full_j[worst])}) does not "
            f"last for a dispatch, which needs up to {format_energy(needed_j[worst])}",
            where=prospects.energy_key(worst, "battery_j"),
            hint="it is in joules, 3,600 per watt-hour; a phone's battery has about 50 kJ",
        )


@PLANNED
def low_battery_floor(world: World) -> Iterator[UserError]:
    """More than a tenth of the clients accept work with a charge that does not last for it, so it is dropped."""
    prospects = world.prospects
    if prospects.batteries is None:
        return
    needed_j, full_j, floor_j = prospects.batteries
    is_low = (needed_j <= full_j) & (needed_j > floor_j)
    if low := _if_many(world, is_low):
        share = np.divide(needed_j, full_j, out=np.zeros_like(needed_j), where=is_low)
        worst = int(share.argmax())
        floor = math.ceil(share[worst] * 100) / 100
        yield UserError(
            f"for {format_count(low)} of {prospects.those}, a battery at its floor ({format_energy(floor_j[worst])}) "
            f"does not last for a dispatch, which needs up to {format_energy(needed_j[worst])}, so that dispatches are "
            "dropped",
            where=prospects.energy_key(worst, "battery_floor"),
            hint=f"set at least {floor:g}" if floor < 1 else "raise battery_j, or give less work",
        )


@PLANNED
def drifting_hours(world: World, until_s: float | None = None) -> Iterator[UserError]:
    """Availability repeats within the run, but at other hours of the day, because its period is not a number of days.

    If the scenario does not give the length of the run, the warning comes at its end.
    """
    until_s = until_s or world.scenario.stop.simulated_time
    if until_s is None:
        return
    clients = world.population.clients
    count, period_s = world.population.availability.drifting(to_ns(until_s))
    if count > _MANY * clients:
        yield UserError(
            f"the availability of {format_count(count)} of {format_counted(clients, 'client')} repeats "
            f"every {format_duration(period_s)}, which is not a whole number of days, so their hours of the day drift",
            where="devices.availability",
            hint="end the run within the trace, import the trace with a window of whole days, or set on_end",
        )


@PLANNED
def unobserved_time(world: World, until_s: float | None = None) -> Iterator[UserError]:
    """The run touches times at which its devices were not observed, and no ``on_end`` says what they do then.

    If the scenario does not give the length of the run, the warning comes at its end.
    """
    until_s = until_s or world.scenario.stop.simulated_time
    params: Any = world.scenario.devices.availability.params
    if until_s is None or params.on_end is not None:
        return
    share = world.population.availability.unobserved_share(to_ns(until_s))
    if share > _UNOBSERVED:
        yield UserError(
            f"{format_share(share)} of the clients' time in this run was not observed in their trace, and is filled in "
            "by its rule for such times (on_end)",
            where="devices.availability",
            hint="start within the observation (start: 8h), or say what devices do outside it: on_end: wrap, hold, "
            "unavailable or error; 'fedsim traces inspect' shows what was observed",
        )


def _if_many(world: World, affected: Bools) -> int:
    """The number of affected clients among those that can be given work; 0 if they are only a few."""
    number = int(np.count_nonzero(affected))
    return number if number > _MANY * world.prospects.count else 0


def _links(
    world: World, is_affected: Callable[[Any], Bools], what: str, hint: str
) -> Iterator[UserError]:
    """The warnings about links whose rates satisfy ``is_affected``, if many clients have one."""
    for direction in Direction:
        rates_bps = world.population.network.rates_bps(direction)[world.prospects.usable]
        if count := _if_many(world, is_affected(rates_bps)):
            yield UserError(
                f"the {direction.name.lower()}link of {format_count(count)} of {world.prospects.those} has {what}",
                where="devices.network",
                hint=hint,
            )


def _of_topology(
    network: SharedNetwork, affected: Bools, what: str, hint: str
) -> Iterator[UserError]:
    if affected.any():
        source, target = network.topology.links[int(affected.argmax())]
        count = int(np.count_nonzero(affected))
        yield UserError(
            f"{format_count(count)} of {format_counted(len(affected), 'link')} of the topology "
            f"{'has' if count == 1 else 'have'} {what}, the first from {source} to {target}",
            where="devices.network.topology",
            hint=hint,
        )
