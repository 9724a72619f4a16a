"""The edge servers of a scenario: where the clients are, the method of the cloud, and what cannot work so."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.composition.devices import Devices
from fedsim.composition.needs import missing_tables, unmet_requirements
from fedsim.composition.world import World, expected_transfers_s
from fedsim.devices import DeviceContext
from fedsim.devices.battery import Power
from fedsim.devices.compute.known import Values
from fedsim.devices.compute.times import ComputeTimes
from fedsim.devices.population import Population
from fedsim.errors import UserError, raise_all, refused
from fedsim.files.cells import Bounds
from fedsim.files.checksums import require_regular
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import Sources
from fedsim.methods.base import Method
from fedsim.methods.mixins import STATE, with_averaged_buffers
from fedsim.network.base import Direction
from fedsim.network.kinds.shared import Shared
from fedsim.parts.component import Component
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import EdgeColumn, EdgeFile, EdgeNearest, Edges, Failures, Scenario
from fedsim.scheduling.base import cohort_of
from fedsim.simulation.edges import Hierarchy
from fedsim.simulation.facts import Clients, Work
from fedsim.simulation.workload import Workload
from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.bundle import TraceBundle
from fedsim.units import LONGEST_S, NEVER, NS_PER_S, to_ns
from fedsim.vocabulary.arrays import Floats, Ints
from fedsim.vocabulary.formatting import format_count, format_counted, format_names

if TYPE_CHECKING:
    import torch

    from fedsim.runs.run import Run


_WHERE = "server.edges"


@dataclass(frozen=True)
class Stays:
    """Where the clients are: one row per stay of a client at an edge server, by client and time.

    Attributes:
        client, edge: their numbers, (S,).
        since_ns, until_ns: simulated time, (S,); the last stay of a client lasts until NEVER.
        drops: whether a client that moves loses its work.
        names: of the edge servers; empty if they have none.
    """

    client: Ints
    edge: Ints
    since_ns: Ints
    until_ns: Ints
    drops: bool = False
    names: Sequence[str] = ()

    @property
    def moves(self) -> list[tuple[int, int, int]]:
        """Time (ns), client and new edge server of each move, in order."""
        stays = np.stack([self.since_ns, self.client, self.edge], axis=1)[self.since_ns > 0]
        return [tuple(move) for move in stays[np.argsort(stays[:, 0], kind="stable")].tolist()]

    @property
    def of_client(self) -> Ints:
        """The first edge server of each client, (N,)."""
        first: Ints = self.edge[self.since_ns == 0]
        return first

    @cached_property
    def members(self) -> list[Ints]:
        """The clients that are ever at each edge server, ascending."""
        order = np.lexsort((self.client, self.edge))
        cuts = np.searchsorted(self.edge[order], np.arange(1, self.edge.max() + 1))
        return [np.unique(part) for part in np.split(self.client[order], cuts)]

    def samples(self, of_client: Ints, end_ns: int | None) -> Floats:
        """Training samples at each edge server, in the mean over the run, (E,)."""
        weights = of_client[self.client].astype(np.float64)
        if end_ns is not None:
            stays_ns = np.minimum(self.until_ns, end_ns) - np.minimum(self.since_ns, end_ns)
            weights = weights * (stays_ns / end_ns)
        return np.bincount(self.edge, weights).astype(np.float64, copy=False)

    def availability(self, population: Population, end_ns: int) -> list[AvailabilityIndex]:
        """When the members of each edge server are online and there, until the end of the run."""
        order = np.lexsort((self.since_ns, self.client, self.edge))
        pair = self.edge[order] * population.clients + self.client[order]
        _, first, counts = np.unique(pair, return_index=True, return_counts=True)
        bounds_us = np.minimum(np.stack([self.since_ns, self.until_ns], axis=1)[order], NEVER // 2)
        zeros = np.zeros_like(first)
        there = AvailabilityIndex(
            bounds_us.reshape(-1) // 1000, 2 * first, 2 * (first + counts), zeros, zeros
        )
        both = population.availability.of(self.client[order][first])
        beyond_ns = beyond(end_ns, population.availability)
        both = both.within(there, np.arange(len(first)), beyond_ns)
        ends = np.cumsum([0, *map(len, self.members)]).tolist()
        return [both.of(np.arange(*span)) for span in pairwise(ends)]


@dataclass(frozen=True)
class EdgeServers:
    """The edge servers of a run: clients of the cloud, whose local work is a server's rounds.

    Attributes:
        section: the scenario's section.
        stays: where the clients are.
        cloud: the method of the cloud.
        population: the edge servers as the cloud sees them; None until the clients' devices are known.
    """

    section: Edges
    stays: Stays
    cloud: Method
    population: Population | None = None


def edge_stays(devices: Devices, section: Edges) -> Stays:
    """Where the clients are."""
    members, clients, names = section.members, devices.task.clients, list[str]()
    if isinstance(members, EdgeFile):
        return _of_file(devices, members)
    edge = order = np.arange(clients)
    if isinstance(members, EdgeColumn):
        column = devices.trace_column(members.column, f"{_WHERE}.members.column")
        different, edge = np.unique(column, return_inverse=True)
        names = different.tolist()
    elif isinstance(members, EdgeNearest):
        where, network = f"{_WHERE}.members.nodes", devices.scenario.devices.network.create()
        if not isinstance(network, Shared):
            raise UserError(
                "edge servers at nodes need a graph",
                where=where,
                hint="set devices.network to {name: shared, topology: ...}",
            )
        names, edge = members.nodes, network.nearest(devices.network_context())
        if idle := set(range(len(names))).difference(edge.tolist()):
            name = names[min(idle)]
            raise UserError(f"no client is nearest to '{name}'", where=where, hint="leave it out")
    else:
        assert section.count is not None
        if section.count > clients:
            raise UserError(
                f"{format_count(section.count)} edge servers for {format_counted(clients, 'client')}",
                where=f"{_WHERE}.count",
                hint=f"set it to at most {clients}",
            )
        if members == "random":
            order = np.argsort(Stream(devices.scenario.seed, Purpose.EDGES, 0).uniforms(order))
        counts = list(map(len, np.array_split(order, section.count)))
        edge = np.empty_like(order)
        edge[order] = np.repeat(np.arange(section.count), counts)
    until_ns = np.full(clients, NEVER)
    return Stays(np.arange(clients), edge, np.zeros_like(until_ns), until_ns, names=names)


def _of_file(devices: Devices, source: EdgeFile) -> Stays:
    """Where the clients are, by the scenario's file."""
    path = devices.folder / source.path
    hint = (
        "write a table with the columns client and edge, or device_id and edge, and a row for each"
    )
    with refused(f"{path} cannot be used", f"{_WHERE}.members.path", hint):
        require_regular(path)
    frame = Frame([TableFile(file) for file in Sources([path])])
    key = "device_id" if "device_id" in frame else "client"
    if missing := [name for name in (key, "edge") if name not in frame]:
        raise frame.error(f"has no column '{missing[0]}'", hint)
    frame.load((key, "edge", "time_s", "latency_s"), (key, "edge"))
    texts, seconds = [], []
    for name in (key, "edge"):
        codes, words = frame.ids(name)
        frame.refuse(codes < 0, f"{name} is {{}}", hint, name)
        texts.append([words[code] for code in codes])
    for name in ("time_s", "latency_s"):
        values = np.zeros(len(frame))
        if name in frame:
            values = frame.number(name, 1.0, None)
            bounds = Bounds(0, LONGEST_S)
            wrong = ~bounds.contain(values)
            frame.refuse(wrong, f"{name} is {{}}", f"it must be {bounds}", name)
        seconds.append(values.tolist())
    since_ns = [to_ns(each) // 1000 * 1000 for each in seconds[0]]
    rows = sorted(zip(texts[0], since_ns, seconds[1], texts[1], strict=True))
    found: dict[str, dict[int, str]] = {}
    for name, since, _, edge in rows:
        found.setdefault(name, {}).setdefault(since, edge)
    if "latency_s" not in frame:
        moments = [*zip(texts[0], since_ns, strict=True)]
        again = np.array([*map(Counter(moments).__getitem__, moments)]) > 1
        frame.refuse(again, f"{key} is {{}} in two rows for the same time", hint, key)
    names = list(map(str, range(devices.task.clients)))
    if key == "device_id" and "device" not in devices.names:
        raise frame.error("has device_id, but without a trace, devices have none", hint)
    if key == "device_id":
        names = devices.names["device"].to_pylist()
    elif len(found) > len(names):
        raise frame.error(f"has {len(found)} clients, the scenario has {len(names)}", hint)
    if missing := [name for name in names if 0 not in found.get(name, ())]:
        raise frame.error(f"does not say where {key} {missing[0]} is at time 0", hint)
    edges = {edge for stays in found.values() for edge in stays.values()}
    by = int if all(edge.isdecimal() and len(edge) < 19 for edge in edges) else str
    section = devices.scenario.server.edges
    if section and section.trace and by is int and {*map(int, edges)} != {*range(len(edges))}:
        message = f"numbers its edge servers {format_names(sorted(edges, key=by))}"
        raise frame.error(
            message, "number them 0, 1, 2, ...: edge server i is device i of edges.trace"
        )
    number = {edge: i for i, edge in enumerate(sorted(edges, key=by))}
    table = [
        (client, number[edge], since)
        for client, name in enumerate(names)
        for since, edge in found[name].items()
    ]
    client, at, since_ns = np.array(table, dtype=np.int64).T
    begins = np.append(True, (np.diff(client) != 0) | (np.diff(at) != 0))
    client, at, since_ns = client[begins], at[begins], since_ns[begins]
    until_ns = np.append(np.where(np.diff(client) == 0, since_ns[1:], NEVER), NEVER)
    return Stays(client, at, since_ns, until_ns, source.on_move == "drop", list(number))


def beyond(end_ns: int, *known: AvailabilityIndex) -> int:
    """An instant after the end of the run, so that nobody goes offline because of it, if it is known so long."""
    horizon_ns = min(each.horizon_ns for each in known)
    return max(end_ns, min(end_ns + NS_PER_S, horizon_ns))


def edge_servers(devices: Devices, method: Method) -> EdgeServers | None:
    """The edge servers of a scenario, whose method is ``method``; None if it has none.

    The method of the cloud computes in double precision, so that the change of an edge server's model leads back to
    that model.
    """
    server, length_ns = devices.scenario.server, devices.scenario.stop.until_ns
    section, context = server.edges, method.context
    if section is None:
        return None
    stays = edge_stays(devices, section)
    samples = stays.samples(devices.task.samples, length_ns)

    def tensors() -> tuple[torch.dtype, torch.device]:
        import torch

        return torch.float64, context.device

    cloud = replace(
        context,
        clients=len(samples),
        samples=samples,
        local_steps=np.full(len(samples), section.rounds),
        # A step of the cloud is a round, which is as long as the clients' local steps.
        learning_rate=lambda *at: context.learning_rate(*at) * context.local_steps.mean(),
        tensors=tensors,
    )
    kind = with_averaged_buffers(server.method.type, context.layout)
    return EdgeServers(section, stays, replace(server.method, component=kind).create(cloud))


def with_edges(world: World) -> World:
    """The world with its edge servers between clients and cloud; as it is if there are none."""
    servers = world.edges
    if servers is None:
        return world
    edges = _population(world, servers)
    population = _reachable(world.population, edges, servers.stays, world.scenario.stop.until_ns)
    return replace(world, population=population, edges=replace(servers, population=edges))


def hierarchy(world: World) -> Hierarchy | None:
    """The edge servers for the time plane; None without."""
    edges, scenario = world.edges, world.scenario
    if edges is None:
        return None
    population, stays, server = edges.population, edges.stays, scenario.server
    assert population is not None
    count, rounds, moves = population.clients, edges.section.rounds, stays.moves
    down, up = map(world.bytes_of, (edges.cloud.download(), edges.cloud.upload()))

    def expected_duration_s(edge: int) -> float:
        transfers_s = expected_transfers_s(population.network, edge, (down, up))
        return transfers_s + rounds * float(population.compute.step_s[edge])

    return Hierarchy(
        clients=Clients(
            population,
            edges.cloud.context.samples,
            Work(np.full(count, rounds, dtype=np.int64)),
            expected_duration_s,
            server.selection.create,
            server.schedule.create,
            failure_detection_ns=server.failure_detection_ns,
            aggregation_ns=to_ns(server.aggregation_time),
        ),
        workload=Workload(
            population, Failures(), down, up, send_partial_work=False, seed=scenario.seed
        ),
        members=stays.members,
        moves=moves,
        online=stays.availability(world.population, scenario.stop.until_ns or 0) if moves else (),
        drops=stays.drops,
        aggregation_ns=to_ns(edges.section.aggregation_time),
        sends_partial_work=edges.section.partial_work == "send",
    )


def unmet_with_edges(
    scenario: Scenario, servers: EdgeServers | None, edge: Method
) -> Iterator[UserError]:
    """What keeps a scenario from working through two levels; ``edge`` is the method of clients and edge servers."""
    if servers is None:
        return
    server, stays, cloud = scenario.server, servers.stays, servers.cloud
    assert server.edges is not None
    network = scenario.devices.network.params
    if any(getattr(network, name, None) for name in ("server_down", "server_up")):
        yield UserError(
            "the link of the server would be one link of all edge servers",
            where="devices.network",
            hint="leave out server_down and server_up, and give each edge server a link in the topology",
        )
    if server.submodels.name != "whole":
        yield UserError(
            "clients of edge servers train the whole model",
            where="server.submodels",
            hint="leave out submodels, or edges",
        )
    # What a method needs of local steps concerns the clients.
    yield from (
        error for error in unmet_requirements(cloud, server) if error.where != "training.optimizer"
    )
    for section, where in ((server, "server"), (server.edges, _WHERE)):
        selection = section.selection.type
        if selection.needs_client_tests or (selection.needs_training and section is server):
            yield UserError(
                f"the {selection.name} selection learns from clients of one server, not of edge servers",
                where=f"{where}.selection",
                hint="choose another selection",
            )
    if server.edges.availability.params.on_disconnect == "send_partial":
        yield UserError(
            "an edge server sends whole rounds",
            where=f"{_WHERE}.availability.on_disconnect",
            hint="use drop, pause, or finish (its clients go on while it is cut off from the cloud)",
        )
    if getattr(server.edges.schedule.params, "min_updates", 1) == 0:
        yield UserError(
            "an edge server needs updates to close a round",
            where=f"{_WHERE}.schedule.min_updates",
            hint="set it to at least 1",
        )
    yield from _too_few_members(server.edges, stays)
    for method, part, where in (
        (edge, server.edges.method, _WHERE),
        (cloud, server.method, "server"),
    ):
        if any(vector.name == STATE for vector in method.upload()):
            yield UserError(
                "edge servers do not send the state of the clients' optimizers to the cloud",
                where="training.optimizer_state",
                hint="use kept or reset",
            )
        elif reason := _beyond_one_model(method, part.type, is_cloud=method is cloud):
            yield UserError(
                f"{method.title or method.name} does not work with edge servers: {reason}",
                where=f"{where}.method",
                hint="use mtgc at both levels, which corrects gradients through both, or a method that only sends "
                "models or their changes, such as fedavg, fedprox or fedavgm",
            )
    if cloud.spans_edges or edge.spans_edges:
        if cloud.name != edge.name:
            name, missing = (cloud, _WHERE) if cloud.spans_edges else (edge, "server")
            yield UserError(
                f"{name.name} works through both levels",
                where=f"{missing}.method",
                hint=f"set it to {name.name}, too",
            )
        elif stays.moves:
            yield UserError(
                f"{edge.name} corrects the gradients of clients that stay",
                where=f"{_WHERE}.members",
                hint="use fedavg, or a file without the column time_s",
            )
    elif cloud.vector_operations() or np.any(cloud.compute_factor() != 1) or cloud.extra_passes():
        yield UserError(
            f"{cloud.title or cloud.name} changes local steps, but edge servers do rounds for the cloud",
            where="server.method",
            hint="name it in server.edges.method, and use fedavg at the cloud",
        )


def relocated(error: UserError) -> UserError:
    """An error about the section of the server, as it concerns edge servers."""
    where = re.sub(r"^server\.(?=method|selection|schedule)", f"{_WHERE}.", error.where or "")
    return UserError(error.message, where=where, hint=error.hint)


@contextmanager
def relocating(scenario: Scenario) -> Iterator[None]:
    """Relocate an error that is raised, if there are edge servers."""
    try:
        yield
    except UserError as error:
        if scenario.server.edges is None:
            raise
        raise relocated(error) from error


def _too_few_members(section: Edges, stays: Stays) -> Iterator[UserError]:
    """Rounds that an edge server can never begin or fill, because it has too few clients."""
    counts = [len(clients) or math.inf for clients in stays.members]
    smallest, most = int(np.argmin(counts)), max(map(len, stays.members))
    cohort, params = cohort_of(section.selection.params), section.schedule.params
    if cohort is not None and cohort > most and not section.selection.type.with_replacement:
        yield UserError(
            f"a cohort of {cohort} cannot be drawn from {format_counted(most, 'client')}, the most that an edge server "
            "has",
            where=f"{_WHERE}.selection.cohort",
            hint=f"set at most {most}, or leave it out to select all clients that are available",
        )
    for name in ("min_cohort", "min_updates"):
        if (needed := getattr(params, name, 0)) > (fewest := len(stays.members[smallest])):
            yield UserError(
                f"a round needs {needed}, but edge server {smallest} has {format_counted(fewest, 'client')}",
                where=f"{_WHERE}.schedule.{name}",
                hint=f"set at most {fewest}, or give each edge server more clients",
            )


def _beyond_one_model(method: Method, kind: type[Component], *, is_cloud: bool) -> str:
    """Why a method needs more than the exchange of one model; empty if it does not."""
    down, up = ([vector.name for vector in way()] for way in (method.download, method.upload))
    if method.personal or method.continues_models:
        return "its clients keep models of their own"
    if method.prologue() is not None:
        return "it begins with a round of all clients"
    if method.spans_edges:
        return ""
    if down != ["model"] or len(up) != 1 or up[0] not in ("model", "delta"):
        others = dict.fromkeys(name for name in (*down, *up) if name not in ("model", "delta"))
        return f"it exchanges more than the model: {', '.join(others) or 'several vectors'}"
    own: Any = kind(method.params, method.context)  # type: ignore[call-arg]
    memories = own.memories().values()
    if any(memory.keeper != "server" for memory in memories):
        return "its clients keep vectors between their dispatches"
    if not is_cloud and (memories or own.weight_of_absent):
        return "its server weighs updates by all clients, of whom an edge server has only some"
    return ""


def _population(world: World, servers: EdgeServers) -> Population:
    """The edge servers as the cloud sees them; a round lasts as long as a dispatch to its slowest client."""
    devices, section, members = world.devices, servers.section, servers.stays.members
    count, seed = len(members), Stream(devices.scenario.seed, Purpose.EDGES, 1).hash(0) >> 1

    def bundle_of(part: str) -> TraceBundle | None:
        path = getattr(getattr(section, part).params, "trace", None) or section.trace
        bundle = None if path is None else devices.shared.trace(path)
        if bundle is not None and bundle.device_count < count:
            raise UserError(
                f"{bundle.where} has {format_counted(bundle.device_count, 'device')} for {count} edge servers",
                where=f"{_WHERE}.trace",
            )
        return bundle

    raise_all(
        problem
        for part in ("network", "availability")
        for problem in missing_tables(
            getattr(section, part).params, bundle_of(part), f"{_WHERE}.{part}"
        )
    )
    context = DeviceContext(
        clients=count,
        bundle=bundle_of("availability"),
        device_rows=np.arange(count),
        seed=seed,
        folder=devices.folder,
        batch_samples=np.ones(count, dtype=np.int64),
        flops_per_sample=None,
        eligible=np.ones(count, dtype=np.bool_),
    )
    availability = section.availability.create(context)
    links = replace(context, bundle=bundle_of("network"), offset_ns=availability.offset_ns())
    durations_s, nobody = world.durations_s, np.zeros(count, dtype=np.bool_)
    round_s = [float(durations_s[clients].max()) for clients in members]
    power = section.power
    watts = np.array([[power.download_w, power.rounds_w, power.upload_w]])
    return Population(
        clients=count,
        availability=availability.index(),
        on_disconnect=section.availability.params.on_disconnect,
        compute=ComputeTimes(Values(Values.Params(step=round_s), context)),
        network=section.network.create().build(links),
        power=Power(watts, np.zeros(count, dtype=np.uint8)),
        batteries=None,
        short_of_memory=nobody,
        excluded=nobody,
    )


def _reachable(
    population: Population, edges: Population, stays: Stays, until_ns: int | None
) -> Population:
    """The clients while their edge servers are up, in a run that ends at ``until_ns``."""
    up, change_ns = edges.availability.state_many(np.arange(edges.clients), 0)
    end_ns = NEVER if until_ns is None else until_ns
    fail = edges.on_disconnect != "finish" and not (up & (change_ns >= end_ns)).all()
    if until_ns is None and (fail or stays.moves):
        raise UserError(
            f"{'clients that move' if stays.moves else 'edge servers that fail'} need the length of the run",
            where="stop.simulated_time",
            hint="give it, in addition to the other limits",
        )
    if not fail:
        return population
    if stays.moves:
        raise UserError(
            "clients cannot move between edge servers that fail",
            where=f"{_WHERE}.availability.on_disconnect",
            hint="use finish (edge servers are then only cut off from the cloud)",
        )
    beyond_ns = beyond(end_ns, population.availability, edges.availability)
    availability = population.availability.within(edges.availability, stays.of_client, beyond_ns)
    return replace(population, availability=availability)


def write_edges(run: Run, servers: EdgeServers) -> None:
    """Write the table of the edge servers of a finished run."""
    # These import pandas, which a check does without.
    from fedsim.runs.clients import clients_table
    from fedsim.runs.schema import EDGES
    from fedsim.runs.tables import write_parquet

    edges, stays = servers.population, servers.stays
    assert edges is not None
    members = np.array([len(clients) for clients in stays.members])
    end_ns = round(run.simulated_s * NS_PER_S)
    online_ns = edges.availability.online_between_ns(0, end_ns)
    table = clients_table(
        run.edge_dispatches,
        run.edge_phases,
        duration_s=run.simulated_s,
        samples=servers.cloud.context.samples,
        step_s=edges.compute.step_s,
        down_bps=edges.network.rates_bps(Direction.DOWN),
        up_bps=edges.network.rates_bps(Direction.UP),
        online_fraction=online_ns / max(1, end_ns),
        known={"members": members, **({"name": stays.names} if stays.names else {})},
        table=EDGES,
    )
    write_parquet(run.folder.parquet(EDGES.name), EDGES, table)
