"""Small run folders made by hand: a plain event loop that knows nothing of fedsim's time plane."""

import heapq
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedsim.analysis.run import Run, load_run
from fedsim.runs import RunFolder, RunWriter, Status
from fedsim.runs.clients import clients_table
from fedsim.runs.critical import critical_path
from fedsim.runs.phases import phases
from fedsim.runs.schema import CLIENTS, CRITICAL, ONLINE, PARTITION, PAUSES, PRESENCE
from fedsim.runs.tables import from_columns, write_parquet
from fedsim.vocabulary.outcomes import Outcome
from fedsim.vocabulary.timeline import Aggregate, Contribution
from tests.runs.written import columns_of

NAN = float("nan")


class World:
    """Clients with speeds, rates and day/night availability."""

    def __init__(self, clients: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.clients = clients
        self.step_s = self.random.lognormal(2.0, 0.8, clients)
        self.down_bps = self.random.lognormal(16, 0.6, clients)
        self.up_bps = self.down_bps / 3
        self.samples = self.random.integers(20, 200, clients)
        self.phase_s = self.random.normal(0, 5400, clients)

    def online(self, time_s: float) -> npt.NDArray[np.bool_]:
        hour = ((time_s + self.phase_s) / 3600) % 24
        return (hour < 7) | (hour > 22)


def build_run(
    path: Path,
    *,
    clients: int = 40,
    hours: float = 48,
    cohort: int = 12,
    seed: int = 0,
    asynchronous: bool = False,
    learning: bool = True,
    model_bytes: int = 2_000_000,
    classes: int = 10,
    finish: bool = True,
) -> Run:
    """Simulate and write a run: synchronous with deadline and over-selection, or buffered asynchronous."""
    world = World(clients, seed)
    random = world.random
    duration_s = hours * 3600
    folder = RunFolder(path)
    folder.path.mkdir(parents=True, exist_ok=True)
    scenario = SCENARIO.format(clients=clients, seed=seed, cohort=cohort, hours=hours)
    folder.begin(scenario, {"seed": seed, "versions": {"fedsim-des": "0.0.0"}})
    writer = RunWriter(folder, clients=clients, columns=columns_of)

    sequence = np.zeros(clients, np.int64)
    busy_until = np.zeros(clients)
    version, round_number, now, number = 0, 0, 0.0, 0
    last_evaluation = 0.0

    def plan(client: int, start: float, limit: float) -> dict[str, float]:
        nonlocal number
        number += 1
        sequence[client] += 1
        steps = int(random.integers(10, 30))
        downloaded = start + model_bytes * 8 / world.down_bps[client]
        computed = downloaded + steps * world.step_s[client] * random.lognormal(0, 0.1)
        arrived = computed + model_bytes * 8 / world.up_bps[client]
        gone = start + random.exponential(3000) if random.random() < 0.3 else np.inf
        end = min(arrived, gone, limit)
        causes = {arrived: Outcome.AGGREGATED, gone: Outcome.DROPPED}
        done = int(steps * np.clip((end - downloaded) / (computed - downloaded), 0, 1))
        return {
            "id": number - 1,
            "client": client,
            "round": round_number,
            "sequence": int(sequence[client]) - 1,
            "version": version,
            "start": start,
            "downloaded": downloaded if downloaded <= end else NAN,
            "computed": computed if computed <= end else NAN,
            "arrived": arrived if arrived <= end else NAN,
            "end": end,
            "steps": steps,
            "done": done,
            "cause": causes.get(end, Outcome.CUT),
            "up": int(model_bytes * np.clip((end - computed) / (arrived - computed), 0, 1)),
        }

    def write(p: dict[str, float], outcome: Outcome, staleness: int, into: int, group: int) -> None:
        names = ("id", "client", "version", "round", "start", "downloaded", "computed", "arrived")
        traffic = (model_bytes, p["up"], 0.4 * p["done"])
        row = (*(p[name] for name in (*names, "steps", "done")), outcome, staleness, into, *traffic)
        writer.append_dispatch((*row, p["sequence"], group, p["end"]))

    def evaluate(time_s: float) -> None:
        if learning:
            accuracy = 0.9 * (1 - np.exp(-version / 25)) + 0.02 * random.standard_normal()
            accuracy = float(np.clip(accuracy, 0, 1))
            writer.append_metrics(
                time_s, version, round_number, {"accuracy": accuracy, "loss": 2.3 * (1 - accuracy)}
            )

    evaluate(0.0)
    if not asynchronous:
        while now < duration_s:
            candidates = np.flatnonzero(world.online(now) & (busy_until <= now))
            if len(candidates) < 3:
                now += 600.0
                continue
            chosen = random.choice(candidates, min(cohort, len(candidates)), replace=False)
            plans = [plan(int(client), now, np.inf) for client in chosen]
            arrivals = sorted(p["arrived"] for p in plans if not np.isnan(p["arrived"]))
            quorum = int(cohort * 0.7)
            deadline = now + 900
            close = min(deadline, arrivals[quorum - 1] if len(arrivals) >= quorum else deadline)
            close = min(close, duration_s)
            ended = close >= duration_s
            taken = sorted(
                (p for p in plans if p["arrived"] <= close), key=lambda p: (p["arrived"], p["id"])
            )
            if taken and not ended:
                version += 1
            taken_ids = {p["id"] for p in taken}
            for p in plans:
                busy_until[p["client"]] = p["end"]
                if p["id"] in taken_ids and not ended:
                    write(p, Outcome.AGGREGATED, 0, version, 0)
                elif (
                    p["end"] > close
                    and p["cause"] is not Outcome.DROPPED
                    and p["id"] % 3
                    and p["end"] < duration_s
                ):
                    write(p, Outcome.LATE, version - int(p["version"]), -1, 0)
                elif p["end"] >= close:
                    for mark in ("downloaded", "computed", "arrived"):
                        if p[mark] > close:
                            p[mark] = NAN
                    p["end"] = min(p["end"], close)
                    busy_until[p["client"]] = p["end"]
                    if not np.isnan(p["arrived"]):
                        p["end"] = p["arrived"]
                    write(p, Outcome.UNFINISHED if ended else Outcome.CUT, -1, -1, 0)
                else:
                    arrived = not np.isnan(p["arrived"])
                    write(p, Outcome.UNFINISHED if arrived else Outcome.DROPPED, -1, -1, 0)
            if taken and not ended:
                contributions = tuple(Contribution(p["id"], p["client"], 0) for p in taken)
                online = {"online": float(len(candidates))}
                writer.append_aggregation(
                    Aggregate(version, close, round_number, contributions, online)
                )
            now = close + 1.0
            round_number += 1
            if now - last_evaluation >= 1800 and not ended:
                last_evaluation = close
                evaluate(close)
    else:
        flights: list[tuple[float, int, dict[str, float]]] = []
        buffer: list[tuple[dict[str, float], int]] = []

        def refill(time_s: float) -> None:
            candidates = np.flatnonzero(world.online(time_s) & (busy_until <= time_s))
            room = cohort - len(flights)
            if room <= 0 or not len(candidates):
                return
            for client in random.choice(candidates, min(room, len(candidates)), replace=False):
                p = plan(int(client), time_s, duration_s)
                busy_until[client] = p["end"]
                heapq.heappush(flights, (p["end"], p["id"], p))

        refill(0.0)
        tick = 300.0
        while now < duration_s:
            if not flights or flights[0][0] > tick:
                now = tick
                tick += 300.0
                if now < duration_s:
                    refill(now)
                continue
            now, _, p = heapq.heappop(flights)
            if now >= duration_s:
                heapq.heappush(flights, (now, p["id"], p))
                break
            if np.isnan(p["arrived"]):
                write(p, Outcome.DROPPED, -1, -1, 0)
            elif version - p["version"] > 12:
                write(p, Outcome.DISCARDED, version - int(p["version"]), -1, 0)
            else:
                buffer.append((p, version - int(p["version"])))
            if len(buffer) == 5:
                version += 1
                for q, staleness in buffer:
                    write(q, Outcome.AGGREGATED, staleness, version, q["client"] % 2)
                contributions = tuple(
                    Contribution(q["id"], q["client"], s, q["client"] % 2) for q, s in buffer
                )
                writer.append_aggregation(Aggregate(version, now, version - 1, contributions))
                buffer.clear()
                round_number = version
                if now - last_evaluation >= 1800:
                    last_evaluation = now
                    evaluate(now)
            refill(now)
        for _, _, p in flights:
            write(p, Outcome.UNFINISHED, -1, -1, 0)
        for p, staleness in buffer:
            write(p, Outcome.UNFINISHED, staleness, -1, 0)

    if not finish:
        writer.flush()
        return load_run(path)
    writer.finish()
    run = load_run(path)
    grid = np.arange(0.0, duration_s + 1, 600.0)
    counts = np.array([world.online(t).sum() for t in grid])
    fraction = np.mean([world.online(t) for t in grid], axis=0)
    write_parquet(
        folder.parquet("clients"),
        CLIENTS,
        clients_table(
            run.dispatches,
            phases(run.dispatches, run.aggregations, duration_s),
            duration_s=duration_s,
            samples=world.samples,
            step_s=world.step_s,
            down_bps=world.down_bps,
            up_bps=world.up_bps,
            online_fraction=fraction,
        ),
    )
    write_parquet(
        folder.parquet("online"), ONLINE, from_columns(ONLINE, {"time_s": grid, "online": counts})
    )
    away = {"client_id": np.arange(3), "from_s": np.zeros(3), "to_s": np.full(3, duration_s)}
    write_parquet(folder.parquet("presence"), PRESENCE, from_columns(PRESENCE, away))
    nothing: dict[str, list[float]] = {name: [] for name in PAUSES.schema.names}
    write_parquet(folder.parquet("pauses"), PAUSES, from_columns(PAUSES, nothing))
    columns = {str(name): column.to_numpy() for name, column in critical_path(run).items()}
    write_parquet(folder.parquet("critical"), CRITICAL, from_columns(CRITICAL, columns))
    shares = random.dirichlet(np.full(classes, 0.3), clients)
    table = {
        "client_id": np.repeat(np.arange(clients), classes),
        "label": np.tile(np.arange(classes), clients),
        "count": np.round(shares * world.samples[:, None]).astype(np.int64).ravel(),
    }
    if learning:
        write_parquet(folder.parquet("partition"), PARTITION, from_columns(PARTITION, table))
    folder.close(
        Status.COMPLETE,
        simulated_s=duration_s,
        wall_s=7.0,
        wall_learning_s=6.2 if learning else 0.0,
        wall_time_plane_s=0.41,
    )
    return load_run(path)


SCENARIO = """\
name: night-shift
seed: {seed}
task:
  dataset: {{name: digits}}
  partition: {{name: dirichlet, alpha: 0.3, clients: {clients}}}
  model: {{name: mlp, hidden: [64]}}
training:
  optimizer: {{name: sgd, lr: 0.05}}
  batch_size: 32
  local_steps: 20
server:
  method: {{name: fedavg}}
  selection: {{name: uniform, cohort: {cohort}}}
  schedule: {{name: sync, deadline: 900, over_selection: 1.3}}
stop:
  simulated_time: {hours}
  target: {{accuracy: 0.8}}
evaluation: {{every: 3600}}
"""
