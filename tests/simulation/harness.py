"""A tiny world for exact tests of the time plane: every time in whole seconds, every figure on paper."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from fedsim.devices import DeviceContext
from fedsim.devices.battery import Batteries, Power
from fedsim.devices.compute.known import Values
from fedsim.devices.compute.times import ComputeTimes
from fedsim.devices.population import Population
from fedsim.network.base import Network
from fedsim.network.exchanges.collectives import Exchange
from fedsim.network.shared import SharedNetwork
from fedsim.network.static import StaticNetwork
from fedsim.network.topology import Topology
from fedsim.parts.catalog import CATALOG
from fedsim.runs.schema import DISPATCHES
from fedsim.scenario.model import Energy, Failures, Stop
from fedsim.scheduling.base import Dispatch, Schedule, Selection, ServerPort
from fedsim.simulation.evaluations import Evaluations
from fedsim.simulation.facts import Clients, Work
from fedsim.simulation.simulation import Simulation
from fedsim.simulation.updates import Ended, dispatch_columns
from fedsim.simulation.workload import History, Workload, Workloads
from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.bundle import TraceBundle
from fedsim.units import to_ns
from fedsim.vocabulary.outcomes import Outcome
from fedsim.vocabulary.timeline import Aggregate, LearningPlane
from tests.traces.cases import bundle_of

COLUMNS = [
    name.removesuffix("_s").removesuffix("_j").replace("client_id", "client")
    for name in DISPATCHES.schema.names
]
"""Names of the columns of ``dispatches`` without their units."""


@dataclass
class Book:
    """What the time plane wrote."""

    power: Power
    ended: list[Ended] = field(default_factory=list)
    of_edges: list[Ended] = field(default_factory=list)
    aggregates: list[Aggregate] = field(default_factory=list)

    def append_dispatch(self, ended: Ended) -> None:
        """Keep a dispatch."""
        self.ended.append(ended)

    def append_edge_dispatch(self, ended: Ended) -> None:
        """Keep a dispatch of the cloud."""
        self.of_edges.append(ended)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of all dispatches that have ended, in the order of their ends."""
        if not self.ended:
            return []
        columns = dispatch_columns(self.power, self.ended)
        values = (columns[name].tolist() for name in DISPATCHES.schema.names)
        return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*values, strict=True)]

    def append_aggregation(self, aggregate: Aggregate) -> None:
        """Keep a server update."""
        self.aggregates.append(aggregate)

    def row(self, dispatch_id: int) -> dict[str, Any]:
        """The row of a dispatch."""
        return next(row for row in self.rows if row["dispatch_id"] == dispatch_id)

    def table(self, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of the rows in order of dispatching, NaN as None, the outcome last."""
        outcomes, rows = self.outcomes(), {row["dispatch_id"]: row for row in self.rows}
        return [
            (*(None if row[name] != row[name] else row[name] for name in columns), outcomes[number])
            for number, row in sorted(rows.items())
        ]

    def outcomes(self) -> dict[int, str]:
        """Outcome of each dispatch, in order of dispatching."""
        rows = sorted(self.rows, key=lambda row: int(row["dispatch_id"]))
        return {row["dispatch_id"]: Outcome(row["outcome"]).label for row in rows}


def online_bundle(
    *clients: list[tuple[float, float]], horizon_s: float = 1e6, on_end: str = "unavailable"
) -> TraceBundle:
    """A trace bundle from intervals in seconds, one list per client."""
    intervals = {
        f"d{i}": [(round(a * 1e6), round(b * 1e6)) for a, b in spans]
        for i, spans in enumerate(clients)
    }
    return bundle_of(intervals, horizon_s / 86_400, name="hand", on_end=on_end)


def online(*clients: list[tuple[float, float]]) -> AvailabilityIndex:
    """Availability from intervals in seconds, one list per client."""
    return AvailabilityIndex.from_bundle(online_bundle(*clients))


def star() -> Topology:
    """One hub between the server and all clients, with capacity for all of them."""
    graph = nx.Graph()
    graph.add_edge("server", "hub", capacity_bps=1e15, latency_s=0.0)
    return Topology.from_graph(graph, server="server", access=["hub"])


def make_population(
    step_s: list[float],
    network: Network | SharedNetwork,
    availability: AvailabilityIndex | None = None,
    on_disconnect: Any = "drop",
    *,
    compute: dict[str, Any] | None = None,
    energy: dict[str, Any] | None = None,
    seed: int = 0,
) -> Population:
    """Clients with these seconds per step."""
    clients = len(step_s)
    context = DeviceContext(
        clients=clients,
        seed=seed,
        folder=Path(),
        bundle=None,
        device_rows=np.empty(0, dtype=np.int64),
        batch_samples=np.ones(clients, dtype=np.int64),
        flops_per_sample=None,
        eligible=np.ones(clients, dtype=np.bool_),
    )
    params = Values.Params(step=step_s, **(compute or {}))
    return Population(
        clients=clients,
        availability=availability
        if availability is not None
        else AvailabilityIndex.always(clients),
        on_disconnect=on_disconnect,
        compute=ComputeTimes(Values(params, context)),
        network=network,
        power=Power(np.array([[1.0, 2.0, 3.0]]), np.zeros(clients, dtype=np.uint8)),
        batteries=Batteries(Energy(**energy), np.zeros(clients, np.uint8)) if energy else None,
        short_of_memory=~context.eligible,
        excluded=~context.eligible,
    )


def handed_out(client: int, start_ns: int, steps: int, sequence: int = 0) -> Dispatch:
    """A dispatch of version 0 that has just been handed out."""
    return Dispatch(0, client, sequence, 0, 0, steps, start_ns, client)


def simulate(
    *,
    step_s: list[float],
    steps: int | list[int] = 10,
    availability: AvailabilityIndex | None = None,
    latency_s: float = 0.0,
    down_bps: float = 8e6,
    up_bps: float = 8e6,
    bytes_down: float = 1e6,
    bytes_up: float = 1e6,
    schedule: dict[str, Any] | None = None,
    selection: dict[str, Any] | None = None,
    on_disconnect: Any = "drop",
    failures: dict[str, Any] | None = None,
    partial_work: str = "drop",
    foresight: bool = False,
    until_s: float | None = None,
    rounds: int | None = None,
    dispatches: int | None = None,
    arrivals: int | None = None,
    stalled_after: int | None = None,
    failure_detection: Any = 0.0,
    aggregation_time: float = 0.0,
    compute: dict[str, Any] | None = None,
    energy: dict[str, Any] | None = None,
    seed: int = 0,
    samples: list[int] | None = None,
    shared: bool = False,
    server_down_bps: float = float("inf"),
    server_up_bps: float = float("inf"),
    plane: LearningPlane | None = None,
    observe: Callable[[Schedule, Simulation], None] | None = None,
    expected_s: list[float] | None = None,
    steps_ahead: int = 0,
    exchange: Exchange | None = None,
    network: Network | None = None,
) -> Book:
    """Rows and server updates of a run of the time plane, alone or with a learning plane.

    With the default rates a transfer of 1 MB takes exactly 1 s. ``observe`` sees schedule and server before the start.
    The schedule expects clients to need ``expected_s``, or the time of one step.
    """
    clients = len(step_s)
    counts = np.asarray(samples if samples is not None else [1] * clients, dtype=np.int64)
    links = {"latency_s": latency_s, "down_bps": down_bps, "up_bps": up_bps}
    if network is not None:
        pass
    elif shared:
        network = SharedNetwork(
            star(),
            attachment=np.zeros(clients, dtype=np.int64),
            server_down_bps=server_down_bps,
            server_up_bps=server_up_bps,
            **links,
        )
    else:
        network = StaticNetwork(clients=clients, **links)
    population = make_population(
        step_s, network, availability, on_disconnect, compute=compute, energy=energy, seed=seed
    )
    workload = Workload(
        population,
        Failures(**(failures or {})),
        bytes_down,
        bytes_up,
        send_partial_work=partial_work == "send",
        foresight=foresight,
        seed=seed,
        steps_ahead=steps_ahead,
    )
    schedule = dict(schedule or {"name": "sync"})
    selection = dict(selection or {"name": "uniform"})
    schedule_class = schedule.pop("name")
    if isinstance(schedule_class, str):
        schedule_class = CATALOG.parts("schedule")[schedule_class]
    selection_class = CATALOG.parts("selection")[selection.pop("name")]
    made: list[Schedule] = []

    def make_schedule(server: ServerPort, picker: Selection) -> Schedule:
        made.append(schedule_class(schedule_class.Params(**schedule), server, picker))
        return made[0]

    book = Book(population.power)
    server = Simulation(
        Clients(
            population,
            counts,
            Work(np.broadcast_to(np.asarray(steps, dtype=np.int64), (clients,)).copy()),
            lambda client: float((expected_s or step_s)[client]),
            partial(selection_class, selection_class.Params(**selection)),
            make_schedule,
            failure_detection_ns=None if failure_detection == "never" else to_ns(failure_detection),
            aggregation_ns=to_ns(aggregation_time),
            exchange=exchange,
        ),
        Workloads(
            [workload],
            history=History(population.availability.online_until, continues=True, differs=False)
            if steps_ahead
            else None,
        ),
        Stop.model_construct(
            simulated_time=until_s,
            rounds=rounds,
            dispatches=dispatches,
            arrivals=arrivals,
            stalled_after=stalled_after,
        ),
        Evaluations(),
        plane,
        book,
        seed=seed,
    )
    if observe is not None:
        observe(made[0], server)
    server.run()
    return book
