"""The edge servers of a scenario: their clients, their devices, and the method of the cloud."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedsim.composition.needs import missing_tables, unmet_requirements
from fedsim.devices.compute.times import ComputeTimes
from fedsim.devices.compute.values import Values, ValuesParams
from fedsim.devices.context import DeviceContext
from fedsim.devices.population import Population, Power
from fedsim.errors import UserError, raise_all
from fedsim.methods.base import Method, MethodContext
from fedsim.network.base import Direction, NetworkContext
from fedsim.network.kinds.shared import Shared
from fedsim.parts.component import Component
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import EdgeColumn, EdgeFile, EdgeNearest, Edges, Failures, Scenario
from fedsim.simulation.edges import Hierarchy, Mobility
from fedsim.simulation.facts import Clients, Rules, Work
from fedsim.simulation.workload import Workload
from fedsim.tasks.base import ITEM_BYTES
from fedsim.traces.availability import AvailabilityIndex
from fedsim.units import NEVER, NS_PER_S, to_ns
from fedsim.vocabulary.formatting import format_count, format_counted

if TYPE_CHECKING:
    import torch

    from fedsim.composition.assembly import Assembly
    from fedsim.composition.world import World
    from fedsim.traces.bundle import TraceBundle

Int64Array = npt.NDArray[np.int64]

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

    client: Int64Array
    edge: Int64Array
    since_ns: Int64Array
    until_ns: Int64Array
    drops: bool = False
    names: Sequence[str] = ()

    @classmethod
    def fixed(cls, edge: Int64Array, names: Sequence[str] = ()) -> Stays:
        """Clients that stay at these edge servers, (N,)."""
        until_ns = np.full_like(edge, NEVER)
        return cls(np.arange(len(edge)), edge, np.zeros_like(edge), until_ns, names=names)

    @property
    def moves(self) -> list[tuple[int, int, int]]:
        """Time (ns), client and new edge server of each move, in order."""
        rows = np.flatnonzero(self.since_ns)
        rows = rows[np.argsort(self.since_ns[rows], kind="stable")]
        columns = (self.since_ns, self.client, self.edge)
        return list(zip(*(column[rows].tolist() for column in columns), strict=True))

    @property
    def of_client(self) -> Int64Array:
        """The first edge server of each client, (N,)."""
        first: Int64Array = self.edge[self.since_ns == 0]
        return first

    @cached_property
    def members(self) -> list[Int64Array]:
        """The clients that are ever at each edge server, ascending."""
        order = np.lexsort((self.client, self.edge))
        cuts = np.searchsorted(self.edge[order], np.arange(1, self.edge.max() + 1))
        return [np.unique(part) for part in np.split(self.client[order], cuts)]

    def samples(self, of_client: Int64Array, end_ns: int | None) -> Int64Array:
        """Training samples at each edge server, in the mean over the run, (E,)."""
        weights = of_client[self.client].astype(np.float64)
        if end_ns is not None:
            stays_ns = np.minimum(self.until_ns, end_ns) - np.minimum(self.since_ns, end_ns)
            weights = weights * (stays_ns / end_ns)
        return np.rint(np.bincount(self.edge, weights)).astype(np.int64)

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
        beyond_ns = _beyond(end_ns, population.availability)
        both = both.within(there, np.arange(len(first)), beyond_ns)
        ends = np.cumsum([0, *map(len, self.members)]).tolist()
        return [both.of(np.arange(*span)) for span in pairwise(ends)]


def edge_stays(world: World, section: Edges) -> Stays:
    """Where the clients are.

    Raises:
        UserError: there are more edge servers than clients, or the column or file does not say where each client is.
    """
    clients = world.task.clients
    edge: Int64Array
    if isinstance(section.members, EdgeFile):
        return _of_file(world, section.members)
    if isinstance(section.members, EdgeColumn):
        names = world.trace_column(section.members.column, f"{_WHERE}.members.column")
        different, edge = np.unique(names, return_inverse=True)
        return Stays.fixed(edge, different.tolist())
    if isinstance(section.members, EdgeNearest):
        nodes = section.members.nodes
        return Stays.fixed(_nearest(world, nodes), nodes)
    assert section.count is not None
    if section.count > clients:
        raise UserError(
            f"{format_count(section.count)} edge servers for {format_counted(clients, 'client')}",
            where=f"{_WHERE}.count",
            hint=f"set it to at most {clients}",
        )
    order = np.arange(clients)
    if section.members == "random":
        order = np.argsort(Stream(world.scenario.seed, Purpose.EDGES, 0).uniforms(order))
    edge = np.empty_like(order)
    for number, part in enumerate(np.array_split(order, section.count)):
        edge[part] = number
    return Stays.fixed(edge)


def _nearest(world: World, nodes: list[str]) -> Int64Array:
    """The nearest edge server of each client in the graph of their network, (N,)."""
    where, network = f"{_WHERE}.members.nodes", world.scenario.devices.network.create()
    if not isinstance(network, Shared):
        raise UserError(
            "edge servers at nodes need a graph",
            where=where,
            hint="set devices.network to {name: shared, topology: ...}",
        )
    edge = network.nearest(world.network_context())
    if idle := set(range(len(nodes))).difference(edge.tolist()):
        name = nodes[min(idle)]
        raise UserError(f"no client is nearest to '{name}'", where=where, hint="leave it out")
    return edge


def _of_file(world: World, source: EdgeFile) -> Stays:
    """Where the clients are, by the scenario's file."""
    path, rows, key = world.folder / source.path, [], "client"
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or ()
            key = "device_id" if "device_id" in columns else "client"
            for row in reader:
                since_ns = to_ns(float(row.get("time_s") or 0)) // 1000 * 1000
                rows.append((row[key], since_ns, float(row.get("latency_s") or 0), row["edge"]))
        found: dict[str, dict[int, str]] = {}
        for name, since_ns, _, edge in sorted(rows):
            found.setdefault(name, {}).setdefault(since_ns, edge)
        if "latency_s" not in columns and sum(map(len, found.values())) < len(rows):
            raise ValueError(f"a {key} has two rows for the same time")
        names = list(map(str, range(world.task.clients)))
        if key == "device_id":
            names = world.device_names["device"].to_pylist()
        elif len(found) > len(names):
            raise ValueError(f"it has {len(found)} clients, the scenario has {len(names)}")
        if missing := [name for name in names if 0 not in found.get(name, ())]:
            raise ValueError(f"it does not say where {key} {missing[0]} is at time 0")
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} cannot be used: {error}",
            where=f"{_WHERE}.members.path",
            hint=f"write a CSV file with the columns {key} and edge, and a row for each",
        ) from error
    edges = {edge for stays in found.values() for edge in stays.values()}
    numeric = all(edge.isdecimal() for edge in edges)
    number = {edge: i for i, edge in enumerate(sorted(edges, key=int if numeric else str))}
    table = [
        (client, number[edge], since_ns)
        for client, name in enumerate(names)
        for since_ns, edge in found[name].items()
    ]
    client, at, since_ns = np.array(table, dtype=np.int64).T
    begins = np.append(True, (np.diff(client) != 0) | (np.diff(at) != 0))
    client, at, since_ns = client[begins], at[begins], since_ns[begins]
    until_ns = np.append(np.where(np.diff(client) == 0, since_ns[1:], NEVER), NEVER)
    return Stays(client, at, since_ns, until_ns, source.on_move == "drop", list(number))


def cloud_method(world: World, context: MethodContext, samples: Int64Array) -> Method:
    """The method of the cloud, whose clients are the edge servers.

    It computes in double precision, so that the change of an edge server's model leads back to that model.

    Args:
        world, context: the clients, and the context of their method.
        samples: training samples at each edge server, (E,).

    Raises:
        UserError: the method does not work with edge servers.
    """
    section = world.scenario.server

    def tensors() -> tuple[torch.dtype, torch.device]:
        import torch

        return torch.float64, context.device

    edges = section.edges
    assert edges is not None
    method: Method = section.method.create(
        replace(
            context,
            clients=len(samples),
            samples=samples,
            local_steps=np.full(len(samples), edges.rounds),
            # A step of the cloud is a round, which is as long as the clients' local steps.
            learning_rate=lambda *at: context.learning_rate(*at) * context.local_steps.mean(),
            tensors=tensors,
        )
    )
    return method


def unmet(
    scenario: Scenario, stays: Stays, edge: Method, cloud: Method, has_timeline: bool
) -> Iterator[UserError]:
    """What keeps a scenario from working through two levels; ``edge`` is the method of clients and edge servers."""
    server = scenario.server
    assert server.edges is not None
    if has_timeline:
        yield UserError("the timeline of a run with edge servers cannot be replayed", where=_WHERE)
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
    for error in unmet_requirements(cloud, server, len(cloud.context.samples)):
        # What a method needs of local steps concerns the clients.
        if error.where != "training.optimizer":
            yield error
    for selection, where in (
        (server.selection.type, "server.selection"),
        (server.edges.selection.type, f"{_WHERE}.selection"),
    ):
        if selection.needs_client_tests or (selection.needs_training and "edges" not in where):
            yield UserError(
                f"the {selection.name} selection learns from clients of one server, not of edge servers",
                where=where,
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
    for method, part, where in (
        (edge, server.edges.method, f"{_WHERE}.method"),
        (cloud, server.method, "server.method"),
    ):
        title = method.title or method.name
        if reason := _beyond_one_model(method, part.type):
            yield UserError(
                f"{title} does not work with edge servers: {reason}",
                where=where,
                hint="use mtgc at both levels, which corrects gradients through both, or a method that only sends "
                "models or their changes, such as fedavg, fedprox or fedavgm",
            )
    if cloud.spans_edges or edge.spans_edges:
        if cloud.name != edge.name:
            missing = f"{_WHERE}.method" if cloud.spans_edges else "server.method"
            name = cloud.name if cloud.spans_edges else edge.name
            yield UserError(
                f"{name} works through both levels", where=missing, hint=f"set it to {name}, too"
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
    where = error.where or ""
    for name in ("method", "selection", "schedule"):
        if where.startswith(f"server.{name}"):
            where = where.replace("server.", f"{_WHERE}.", 1)
    return UserError(error.message, where=where, hint=error.hint)


@contextmanager
def relocating(scenario: Scenario) -> Iterator[None]:
    """Relocate an error that is raised, if there are edge servers."""
    try:
        yield
    except UserError as error:
        raise error if scenario.server.edges is None else relocated(error) from error


def _beyond_one_model(method: Method, kind: type[Component]) -> str:
    """Why a method needs more than the exchange of one model; empty if it does not."""
    down, up = ([vector.name for vector in way()] for way in (method.download, method.upload))
    if method.personal or method.continues_models:
        return "its clients keep models of their own"
    if method.prologue() is not None:
        return "it begins with a round of all clients"
    if method.spans_edges:
        return ""
    if down != ["model"] or len(up) != 1 or up[0] not in ("model", "delta"):
        return "it exchanges control variates or other vectors besides the model"
    own: Any = kind(method.params, method.context)  # type: ignore[call-arg]
    if any(memory.keeper != "server" for memory in own.memories().values()):
        return "its clients keep vectors between their dispatches"
    return ""


def build_hierarchy(assembly: Assembly) -> Hierarchy:
    """The edge servers of an assembly, which has some, for the time plane."""
    scenario = assembly.scenario
    section, stays, population = scenario.server.edges, assembly.stays, assembly.edge_population
    assert section is not None
    assert stays is not None
    assert assembly.cloud is not None
    assert population is not None
    count, rounds, moves = population.clients, section.rounds, stays.moves
    down, up = assembly.backhaul_bytes

    def expected_duration_s(edge: int) -> float:
        network = population.network
        transfers = sum(
            network.latency_ns(edge, way) / 1e9 + network.nominal_wire_s(edge, way, size)
            for way, size in ((Direction.DOWN, down), (Direction.UP, up))
        )
        return transfers + rounds * float(population.compute.step_s[edge])

    server = scenario.server
    detection = server.failure_detection
    return Hierarchy(
        clients=Clients(
            population,
            assembly.cloud.context.samples,
            Work(np.full(count, rounds, dtype=np.int64)),
            expected_duration_s,
        ),
        rules=Rules(
            server.selection.create,
            server.schedule.create,
            failure_detection_ns=None if detection == "never" else to_ns(detection),
            aggregation_ns=to_ns(server.aggregation_time),
        ),
        workload=Workload(
            population, Failures(), down, up, send_partial_work=False, seed=scenario.seed
        ),
        members=stays.members,
        mobility=Mobility(
            moves,
            stays.availability(assembly.population, to_ns(scenario.stop.simulated_time or 0)),
            stays.drops,
        )
        if moves
        else None,
        aggregation_ns=to_ns(section.aggregation_time),
        sends_partial_work=section.partial_work == "send",
    )


def edge_population(
    world: World, section: Edges, members: list[Int64Array], durations_s: npt.NDArray[np.float64]
) -> Population:
    """The edge servers as the cloud sees them.

    Args:
        world: the clients.
        section: the scenario's section.
        members: the clients of each edge server.
        durations_s: expected duration of a dispatch to each client, (N,); a round lasts as long as the slowest.

    Raises:
        UserError: links or availability do not match the edge servers.
    """
    count, seed = len(members), Stream(world.scenario.seed, Purpose.EDGES, 1).hash(0) >> 1

    def bundle_of(part: str) -> TraceBundle | None:
        path = getattr(getattr(section, part).params, "trace", None) or section.trace
        bundle = None if path is None else world.shared.bundles.read(path)
        if bundle is not None and bundle.device_count < count:
            raise UserError(
                f"{bundle.where} has {format_counted(bundle.device_count, 'device')} for {count} edge servers",
                where=f"{_WHERE}.trace",
            )
        return bundle

    raise_all(
        UserError(
            problem.message,
            where=problem.where,
            hint=(problem.hint or "").replace("devices.", f"{_WHERE}."),
        )
        for part in ("network", "availability")
        for problem in missing_tables(
            getattr(section, part).params, bundle_of(part), f"{_WHERE}.{part}"
        )
    )
    rows = np.arange(count)
    context = DeviceContext(
        clients=count,
        bundle=bundle_of("availability"),
        device_rows=rows,
        seed=seed,
        folder=world.folder,
        batch_samples=np.ones(count, dtype=np.int64),
        flops_per_sample=None,
        eligible=np.ones(count, dtype=np.bool_),
    )
    availability = section.availability.create(context)
    offset_ns = availability.offset_ns()
    round_s = [float(durations_s[clients].max()) for clients in members]
    power = section.power
    watts = np.array([[power.download_w, power.rounds_w, power.upload_w]])
    return Population(
        clients=count,
        availability=availability.index(),
        on_disconnect=section.availability.params.on_disconnect,
        compute=ComputeTimes(Values(ValuesParams(step=round_s), context)),
        network=section.network.create().build(
            NetworkContext(
                count, bundle_of("network"), rows, seed, world.folder, offset_ns=offset_ns
            )
        ),
        power=Power(watts, np.zeros(count, dtype=np.uint8)),
        batteries=None,
        eligible=np.ones(count, dtype=np.bool_),
    )


def reachable(
    population: Population, edges: Population, stays: Stays, until_s: float | None
) -> Population:
    """The clients while their edge servers are up; ``until_s`` is the length of the run.

    Raises:
        UserError: an edge server may fail, or clients move, in a run of unknown length; or both happen.
    """
    if stays.moves and until_s is None:
        raise UserError(
            "clients that move need the length of the run",
            where="stop.simulated_time",
            hint="give it, in addition to the other limits",
        )
    up, change_ns = edges.availability.state_many(np.arange(edges.clients), 0)
    end_ns = NEVER if until_s is None else to_ns(until_s)
    if edges.on_disconnect == "finish" or bool((up & (change_ns >= end_ns)).all()):
        return population
    if until_s is None:
        raise UserError(
            "edge servers that fail need the length of the run",
            where="stop.simulated_time",
            hint="give it, in addition to the other limits",
        )
    if stays.moves:
        raise UserError(
            "clients cannot move between edge servers that fail",
            where=f"{_WHERE}.availability.on_disconnect",
            hint="use finish (edge servers are then only cut off from the cloud)",
        )
    beyond_ns = _beyond(end_ns, population.availability, edges.availability)
    availability = population.availability.within(edges.availability, stays.of_client, beyond_ns)
    return replace(population, availability=availability)


def _beyond(end_ns: int, *known: AvailabilityIndex) -> int:
    """An instant after the end of the run, so that nobody goes offline because of it, if it is known so long."""
    horizon_ns = min(each.horizon_ns for each in known)
    return max(end_ns, min(end_ns + NS_PER_S, horizon_ns))


def backhaul_bytes(cloud: Method, dtype: str, fixed_bytes: float) -> tuple[float, float]:
    """Bytes of a download and of an upload of an edge server."""
    item = ITEM_BYTES[dtype]
    down, up = (
        sum(vector.size_bytes(item) for vector in vectors) + fixed_bytes
        for vectors in (cloud.download(), cloud.upload())
    )
    return down, up
