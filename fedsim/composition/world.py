"""What is built from a scenario before its run, and what follows from it: bytes, durations, prospects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.composition.devices import Devices
from fedsim.composition.prospects import Bytes, Prospects, expected_transfers_s
from fedsim.composition.stays import EdgeServers
from fedsim.devices.population import Population
from fedsim.learning.metrics import Metric
from fedsim.learning.submodels.parts import Parts
from fedsim.methods.base import Method, Vector
from fedsim.network.base import Direction
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import Scenario
from fedsim.scenario.training import Training
from fedsim.scheduling.base import cohort_of
from fedsim.simulation.workload import History
from fedsim.tasks.base import Task
from fedsim.units import LONGEST_S, NS_PER_S
from fedsim.vocabulary.metrics import MetricDefinition


@dataclass(frozen=True)
class World:
    """The parts of a run that do not change during it; :func:`fedsim.composition.build.build` makes them.

    Attributes:
        loaded: the scenario.
        devices: the devices of the clients, as the scenario and its traces describe them.
        training: the scenario's section, with the threads of this process.
        learns: whether a model is trained; otherwise only time is simulated.
        method: the learning rules.
        population: the clients' devices, ready for the method.
        metrics: metrics besides those of every run.
        measured: the metrics that the run may measure, by name; empty if only time is simulated.
        parts: the parts of the model that clients train; None if all train the whole model.
        edges: the edge servers between the clients and the cloud; ``method`` is theirs and the clients'; None without.
    """

    loaded: LoadedScenario
    devices: Devices
    training: Training
    learns: bool
    method: Method
    population: Population
    metrics: tuple[Metric, ...] = ()
    measured: Mapping[str, MetricDefinition] = field(default_factory=dict)
    parts: Parts | None = None
    edges: EdgeServers | None = None

    @property
    def scenario(self) -> Scenario:
        """The scenario's sections."""
        return self.loaded.scenario

    @property
    def task(self) -> Task:
        """The task that is learned or timed."""
        return self.devices.task

    @cached_property
    def prospects(self) -> Prospects:
        """What the clients can do."""
        return Prospects(self)

    def names(self) -> dict[str, Any]:
        """What the clients are called: columns of their table, as far as known.

        Their names in the data set, the names and kinds of their devices, the part of the model that each trains, and
        their edge servers.
        """
        names: dict[str, Any] = dict(self.devices.names)
        if self.task.client_names:
            names["name"] = self.task.client_names
        if self.parts is not None:
            names["part"] = self.parts.of_clients(self.parts.rates)
        if self.edges is not None:
            names["edge"] = self.edges.stays.of_client
        return names

    @property
    def levels(self) -> range:
        """Numbers of the parts of the model; only 0 if all clients train the whole model."""
        return range(1 if self.parts is None else len(self.parts.rates))

    def traffic_bytes(self, level: int = 0) -> tuple[float, float]:
        """Bytes of the download and of the upload of a dispatch, of a part of the model; the largest has level 0."""
        return self.bytes_of(self.method.download(), level), self.bytes_of(
            self.method.upload(), level
        )

    @property
    def client_bytes(self) -> tuple[Bytes, Bytes]:
        """Bytes of the download and of the upload of a dispatch; one number, or one per client, (N,)."""
        if self.parts is None:
            return self.traffic_bytes()
        down, up = zip(*map(self.traffic_bytes, self.levels), strict=True)
        return self.parts.of_clients(down), self.parts.of_clients(up)

    @property
    def prologue_bytes(self) -> tuple[float, float] | None:
        """Bytes of the download and of the upload of the method's prologue; None without one."""
        prologue = self.method.prologue()
        if prologue is None:
            return None
        return self.bytes_of(prologue.download, fixed=True), self.bytes_of(prologue.upload)

    def first_download_bytes(self, level: int = 0) -> float:
        """Bytes of the download of a client's first dispatch, which includes what training does not change."""
        complete = (vector.in_full for vector in self.method.download())
        return self.bytes_of([*complete, *self.method.first_download()], level, fixed=True)

    def bytes_of(
        self, vectors: Iterable[Vector], level: int = 0, *, fixed: bool | None = None
    ) -> float:
        """Bytes on the network of the vectors of one transfer of a part of the model.

        ``fixed`` says whether they include what training does not change; by default as the scenario says.
        """
        if fixed is None:
            fixed = self.scenario.server.transfer == "all"
        return self.devices.bytes_of(vectors, self.method, self.parts, level, fixed=fixed)

    def history(self) -> History | None:
        """What clients have from earlier dispatches, before the first one; None if that does not matter."""
        continues = self.method.continues_models
        differs = any(vector.in_full is not vector for vector in self.method.download())
        online_until = self.population.availability.online_until
        if not (continues or differs):
            return None
        return History(online_until, continues=continues, differs=differs)

    @property
    def vectors(self) -> list[dict[str, Any]]:
        """The vectors of a dispatch and their bytes: without compression, as sent, and in a client's first dispatch."""
        item, wire_bytes = self.devices.item_bytes, self.devices.wire_bytes
        ways = (("down", self.method.download()), ("up", self.method.upload()))
        return [
            {
                "direction": direction,
                "vector": vector.name,
                "compression": vector.compression.name or type(vector.compression).__name__
                if vector.compression
                else "none",
                "bytes_raw": wire_bytes(vector.raw_bytes(item)),
                "bytes": wire_bytes(vector.size_bytes(item)),
                "bytes_first": wire_bytes(
                    (vector.in_full if direction == "down" else vector).size_bytes(item)
                ),
            }
            for direction, vectors in ways
            for vector in vectors
        ]

    @property
    def durations_s(self) -> npt.NDArray[np.float64]:
        """Duration of a full dispatch of each client at nominal speed and rates, without the transport's, (N,)."""
        network = self.population.network
        durations_s = self._compute_s + sum(
            network.latencies_ns(way) / NS_PER_S
            + size * 8 / np.maximum(network.rates_bps(way), np.finfo(float).tiny)
            for way, size in zip(Direction, self.traffic_bytes(), strict=True)
        )
        return np.minimum(durations_s, LONGEST_S)

    @property
    def part_rows(self) -> list[dict[str, float]]:
        """Each part of the model and what it costs; empty if all clients train the whole model."""
        parts = self.parts
        if parts is None:
            return []
        rows = []
        for level, rate in enumerate(parts.rates):
            memory_bytes = self.devices.memory_of_part(self.method, parts, level).max()
            down, up = self.traffic_bytes(level)
            rows.append(
                {
                    "rate": rate,
                    "parameters": parts.tasks[level].parameters,
                    "operations": parts.flops_shares[level],
                    "memory_bytes": float(memory_bytes),
                    "bytes_down": down,
                    "bytes_up": up,
                }
            )
        return rows

    def expected_duration_s(self, client: int) -> float:
        """Duration of a full dispatch of a client at its nominal speed and rates.

        If clients exchange their updates among themselves: among a cohort of clients that are like it.
        """
        parts = self.parts
        sizes = self.traffic_bytes(0 if parts is None else int(parts.level[client]))
        network = self.population.network
        if self._shares:
            latency_s = sum(int(network.latencies_ns(way)[client]) for way in Direction) / NS_PER_S
            transfers_s = sum(
                count
                * (
                    latency_s
                    + max(
                        network.nominal_wire_s(client, way, share * sizes[1]) for way in Direction
                    )
                )
                for share, count in self._shares.items()
            )
        else:
            transfers_s = expected_transfers_s(network, client, sizes)
        return transfers_s + float(self._compute_s[client])

    @cached_property
    def _shares(self) -> Counter[float]:
        """How many steps of an exchange among clients transfer which share of the update; empty without one."""
        section = self.scenario.server.of_devices
        members = cohort_of(section.selection.params) or self.population.clients
        return Counter(step.share for step in section.exchange.create().steps(members))

    @cached_property
    def _compute_s(self) -> npt.NDArray[np.float64]:
        """Duration of each client's full workload at its nominal speed, (N,)."""
        step_s = self.population.compute.step_s
        return self.devices.work.nominal_steps(step_s) * step_s
