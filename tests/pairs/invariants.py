"""What must hold for every run, whatever its values; each check computes on its own what it compares.

A check yields a sentence for everything that is wrong.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsim.vocabulary.outcomes import Outcome
from tests.pairs.parameters import CLIENTS
from tests.pairs.running import Finished, Local, Step, again, left, written

Wrong = Iterator[str]
WATTS = {"download_s": 0.8, "compute_s": 2.5, "upload_s": 1.2}
"""The defaults of ``devices.energy``."""


def differ(one: Any, other: Any, tolerance: float) -> bool:
    """Whether arrays differ by more than rounding; NaN differs from everything."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    scale = 1 + max(np.abs(one).max(initial=0), np.abs(other).max(initial=0))
    return one.shape != other.shape or not bool((np.abs(one - other) <= tolerance * scale).all())


# -- the time plane ----------------------------------------------------------------------------------------------------


def time_adds_up(run: Finished) -> Wrong:
    """The parts of a dispatch are not negative and not longer than it; nothing else if its client never leaves."""
    table = run.columns()
    parts = np.stack([table[name] for name in WATTS])
    whole = table["ended_s"] - table["dispatched_s"]
    if (parts < 0).any():
        yield "a part of a dispatch has a negative duration"
    if run.method.steps_ahead():
        return
    if (parts.sum(0) > whole + 1e-9).any():
        yield "the parts of a dispatch are longer than it"
    edges = run.content["server"].get("edges") or {}
    if "availability" not in run.content["devices"] and "availability" not in edges:
        arrived = np.isfinite(table["arrived_s"])
        if differ(parts.sum(0)[arrived], whole[arrived], 1e-8):
            yield "the parts of a dispatch do not add up to it"


def energy_follows_from_time(run: Finished) -> Wrong:
    """Joules are watts times seconds."""
    table = run.columns()
    joules = sum(watts * table[name] for name, watts in WATTS.items())
    if differ(table["energy_j"], joules, 1e-8) and not run.method.steps_ahead():
        yield "energy is not power times time"


def outcomes_agree(run: Finished) -> Wrong:
    """Every dispatch ends once, and is aggregated once if its outcome says so."""
    has_edges = run.content["server"].get("edges") is not None
    levels = [(run.rows.ended, has_edges)] + ([(run.rows.of_edges, False)] if has_edges else [])
    for ended, is_edge in levels:
        numbers = [one.dispatch.dispatch_id for one in ended]
        if sorted(numbers) != list(range(len(numbers))):
            yield "dispatches do not end once each"
        made: dict[int, int] = {}
        for aggregate in run.rows.aggregates:
            if (aggregate.edge >= 0) == is_edge:
                for item in aggregate.contributions:
                    if item.dispatch_id in made:
                        yield f"dispatch {item.dispatch_id} is aggregated twice"
                    made[item.dispatch_id] = aggregate.version
        said = {
            one.dispatch.dispatch_id: one.version
            for one in ended
            if one.outcome == Outcome.AGGREGATED
        }
        if said != made:
            yield "outcomes and contributions disagree"


def bits(kind: Mapping[str, Any], elements: int, entry: int) -> float:
    """Bits of a vector of ``elements`` entries, by the table in docs/compression.md; NaN for ``powersgd``."""
    share, chunk = kind.get("share", 1), kind.get("chunk", 1)
    count = max(1, round(share * elements))
    index = math.ceil(math.log2(elements)) if elements > 1 and count < elements else 0
    if kind["name"] == "qsgd":
        level = math.ceil(math.log2(kind["levels"] + 1))
        return elements * (1 + level) + entry * math.ceil(elements / kind["bucket"])
    if kind["name"] == "sparseloco":
        whole, rest = divmod(elements, chunk)
        kept = sum(max(1, round(share * size)) for size in [chunk] * whole + [rest] if size)
        return kept * (2 + math.ceil(math.log2(chunk))) + 4 * entry
    blocks = math.ceil(elements / 4096)
    size = 4096 if elements > 4096 else 2 ** math.ceil(math.log2(elements))
    return {
        "none": entry * elements,
        "factor": entry * elements * kind.get("factor", 1),
        "cast": 16 * elements,
        "eden": blocks * (size * kind.get("bits", 1) + entry),
        "topk": count * (entry + index),
        "randk": count * (entry + (0 if kind.get("shared_seed") else index)),
        "signsgd": elements + entry,
    }.get(kind["name"], math.nan)


def _trainable(run: Finished, elements: int) -> int:
    """Entries of a vector of this length that are not buffers, which come last."""
    layout, split = run.method.context.layout, getattr(run.method, "split", None)
    if split is not None and elements == split.shared_size:
        return int(split.shared_trainable)
    return layout.trainable if elements == layout.size else elements


def bytes_follow_from_vectors(run: Finished) -> Wrong:
    """An update that arrived has sent the bytes of its vectors, as the documentation counts them."""
    server = run.content["server"]
    retried = run.content["devices"].get("failures", {}).get("upload_retries")
    if server["submodels"]["name"] != "whole" or retried or run.method.prologue():
        return
    if server.get("exchange", "server") != "server":
        return  # tests/simulation/test_exchange.py counts the bytes of rings and trees
    if "transfer" in server and "optimizer_state" not in run.content["training"]:
        return
    item = 64 if run.content["training"]["dtype"] == "float64" else 32
    expected = 0.0
    for vector in run.method.upload():
        if vector.bits is not None or vector.share != 1:
            return
        kind = {"name": "none"} if vector.name == "optimizer" else server["compression"]["up"]
        # Buffers are sent as they are.
        buffers = vector.elements - _trainable(run, vector.elements)
        expected += (bits(kind, vector.elements - buffers, item) + item * buffers) / 8
    if "size" in run.content["task"]:
        expected *= 300 / (run.method.context.layout.size * item / 8)
    table = run.columns()
    arrived = np.isfinite(table["arrived_s"])
    sizes = table["bytes_up"][arrived]
    known = math.isfinite(expected) and not run.world.task.fixed_elements
    if known and (np.abs(sizes - expected) > 0.5).any():
        yield f"updates have {sizes.tolist()} bytes, not {expected}"


# -- the learning plane ------------------------------------------------------------------------------------------------


def everything_is_finite(run: Finished) -> Wrong:
    """No NaN in a model, a state or a memory."""
    for name, value in left(run.learner).items():
        if not torch.isfinite(value).all():
            yield f"{name} is not finite"


def _by_client(run: Finished) -> dict[tuple[int, int], tuple[Local, Local, int]]:
    """Of each dispatch that was used, its group without and with what happens on the way, and its row in both."""
    return {
        (int(client), int(number)): (inner, outer, row)
        for inner, outer in zip(run.inner, run.outer, strict=True)
        for row, (client, number) in enumerate(
            zip(outer.cohort.clients, outer.cohort.sequences, strict=True)
        )
        if run.trains[int(client), int(number)].used
    }


def sent_and_remembered_is_the_sum(run: Finished) -> Wrong:
    """With error feedback, what was sent and what is remembered is what was to be sent, in every entry."""
    up = run.content["server"]["compression"]["up"]
    decay = {"sparseloco": 0.95}.get(up["name"], 1.0)
    names = [name for name in run.learner.store._stores if name.startswith("error of ")]
    parts = run.method.parts
    for stored in names:
        name = stored.removeprefix("error of ")
        errors: dict[int, Tensor] = {}
        # An error decays with every later update that is used. Of a client that has moved, the new edge server may use
        # an update before the old one uses an earlier one.
        used = [*_by_client(run).items()]
        if "members" not in run.content["server"].get("edges", {}):
            used.sort(key=lambda one: one[0])
        for (client, _), (inner, outer, row) in used:
            if name not in inner.vectors:
                continue
            meant, sent = inner.vectors[name][row], outer.vectors[name][row]
            error = errors.setdefault(client, torch.zeros_like(sent))
            at: Any = slice(None)
            if parts is not None:
                cohort = inner.cohort
                at = parts.positions(cohort.clients, cohort.rounds, sent.device)[row]
                at = at[: parts.sent(int(parts.level[client]))]
                meant = meant[: len(at)]
            error[at] = decay * error[at] + meant - sent[at]
        for client, error in errors.items():
            entries = slice(0, _trainable(run, len(error)))
            kept = run.learner.store[stored].get([client])[0]
            if differ(kept[entries], error[entries], run.tolerance * 10):
                yield f"sent and remembered '{name}' of client {client} is not the sum of its updates"


STATES: Mapping[str, tuple[str, str, Callable[[Tensor], Tensor], str, float]] = {
    "scaffold": ("control", "control", lambda rows: rows.mean(0), "control", 1),
    "scaffold_p": ("control", "control", lambda rows: rows.mean(0), "control", 1),
    "feddyn": ("h", "gradient", lambda rows: rows.mean(0), "delta", -0.1),
    **dict.fromkeys(
        ("fedsum", "fedsum_b", "fedsum_cr"),
        ("merged", "gradient", lambda rows: rows.sum(0), "delta", 1),
    ),
    **dict.fromkeys(
        ("mifa", "ace", "ca2fl", "fedvarp"), ("mean", "latest", lambda rows: rows.mean(0), "", 0)
    ),
}
"""Of each method whose server keeps a sum over the clients: the server's vector, the clients' memory, and the sum; the
vector that moves both, and the factor with which the memory follows it."""


def servers_state_is_the_clients(run: Finished) -> Wrong:
    """What the server keeps is the mean or the sum of what the clients keep, without what they have still to send."""
    method, store, clients = run.method, run.learner.store, list(range(CLIENTS))
    if method.name == "mtgc":
        if all((step.facts["multiplicity"] == 1).all() for step in run.steps):
            rows = store["correction"].get(clients)
            if differ(rows.sum(0), torch.zeros_like(rows[0]), run.tolerance * 100):
                yield "the corrections of the clients do not cancel"
        return
    if method.name not in STATES:
        return
    kept, memory, total, vector, factor = STATES[method.name]
    rows = store[memory].get(clients)
    trainable = min(method.context.layout.trainable, rows.shape[1])
    if method.name == "scaffold_p":
        trainable = method.split.shared_trainable
        if run.section["method"].get("uplink") == 1 and "error of delta" in store._stores:
            return  # Errors of dispatches of different lengths have different factors.
    if (errors := f"error of {vector}") in store._stores:
        rows = rows - factor * store[errors].get(clients)
    state = run.learner._top.current[kept]
    if differ(state[:trainable], total(rows)[:trainable], run.tolerance * 100):
        yield f"the server's {kept} is not the mean or sum of the clients' {memory}"


def _mean(raw: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return raw / raw.sum()


def _samples(step: Step) -> np.ndarray[Any, Any]:
    return _mean(step.facts["multiplicity"] * step.facts["samples"])


def _uniform(step: Step) -> np.ndarray[Any, Any]:
    return _mean(step.facts["multiplicity"] * 1.0)


def _ages(step: Step, alpha: float) -> np.ndarray[Any, Any]:
    return alpha * (1.0 + step.facts["staleness"]) ** -0.5


def _distances(step: Step, momentum: float) -> np.ndarray[Any, Any]:
    return np.array(
        [
            sum((1 - momentum ** (steps - k)) / (1 - momentum) for k in range(steps))
            if momentum
            else steps
            for steps in step.facts["steps"].tolist()
        ]
    )


def _nova(step: Step, run: Finished) -> np.ndarray[Any, Any]:
    lengths = _distances(step, run.content["training"]["optimizer"].get("momentum", 0.0))
    return float(_samples(step) @ lengths) / lengths


def _one(step: Step, run: Finished) -> np.ndarray[Any, Any]:
    return np.ones(len(step.facts["clients"]))


Weights = Callable[[Step], np.ndarray[Any, Any]]
Factors = Callable[[Step, Finished], np.ndarray[Any, Any]]
MEANS: Mapping[str, tuple[Weights, Factors]] = {
    "fedavg": (_samples, _one),
    "fedavg/server_lr": (_uniform, lambda step, run: 0.5 * _one(step, run)),
    "fedprox": (_samples, _one),
    "fednova": (_samples, _nova),
    "rescale": (_samples, lambda step, run: step.facts["steps_assigned"] / step.facts["steps"]),
    "fedbuff": (_uniform, lambda step, run: _ages(step, 1.0)),
    "rennala": (_uniform, _one),
    "wait": (_uniform, _one),
    "ditto": (_uniform, _one),
    "ata": (lambda step: _mean(step.facts["multiplicity"] * step.facts["steps"]), _one),
}
"""Methods whose model moves by a weighted mean of changes: the weights, and the method's factor on each change."""


def _delta(step: Step) -> np.ndarray[Any, Any]:
    return step.rows["delta"].double().numpy()


def _move_by_momentum(step: Step) -> np.ndarray[Any, Any]:
    return 0.9 * step.before["momentum"].double().numpy() + _samples(step) @ _delta(step)


def _moved_diloco(step: Step) -> np.ndarray[Any, Any]:
    change = _uniform(step) @ _delta(step)
    momentum = 0.9 * step.before["momentum"].double().numpy() + change
    return 0.7 * (change + 0.9 * momentum)


def _moved_fedadam(step: Step) -> np.ndarray[Any, Any]:
    change = _samples(step) @ _delta(step)
    momentum = 0.9 * step.before["momentum"].double().numpy() + 0.1 * change
    second = 0.99 * step.before["second_moment"].double().numpy() + 0.01 * change**2
    return 0.01 * momentum / (np.sqrt(second) + 1e-3)


def _moved_fedasync(step: Step) -> np.ndarray[Any, Any]:
    model = step.before["model"].double().numpy()
    for row, age, times in zip(
        step.rows["model"].double().numpy(),
        _ages(step, 0.6),
        step.facts["multiplicity"],
        strict=True,
    ):
        for _ in range(times):
            model = (1 - age) * model + age * row
    return model - step.before["model"].double().numpy()


MOVES: Mapping[str, Callable[[Step], np.ndarray[Any, Any]]] = {
    "fedavgm": _move_by_momentum,
    "diloco": _moved_diloco,
    "fedadam": _moved_fedadam,
    "fedasync": _moved_fedasync,
    "async_sgd": lambda step: step.facts["multiplicity"] @ _delta(step),
    "ringmaster": lambda step: step.facts["multiplicity"] @ _delta(step),
}
"""Other methods whose move is a formula of one line."""


def samples_weigh_as_documented(run: Finished) -> Wrong:
    """A replay of the aggregations in NumPy gives the same models."""
    name = run.section["method"]["name"]
    if run.section["method"].get("server_lr") == 0.5:
        name += "/server_lr"
    yield from _replayed(run, name, run.steps, run.method.context.layout.trainable)
    cloud = run.world.edges and run.world.edges.cloud
    if cloud:
        for step in run.cloud_steps:
            expected = _samples_of_edges(run)[step.facts["clients"]]
            if differ(step.facts["samples"], expected, 1e-9):
                yield f"edge servers weigh {step.facts['samples']}, not {expected}"
        yield from _replayed(run, cloud.name, run.cloud_steps, cloud.context.layout.trainable)


def _replayed(run: Finished, name: str, steps: list[Step], trainable: int) -> Wrong:
    for step in steps:
        if not len(step.facts["clients"]):
            continue
        if name in MEANS:
            weights, factors = (MEANS[name][0](step), MEANS[name][1](step, run))
            covers = _coverage(run, step)
            changes = _delta(step) * (weights * factors)[:, None] * covers
            total = (covers * weights[:, None]).sum(0)
            moved = np.where(total > 0, changes.sum(0) / np.where(total > 0, total, 1), 0)
        elif name in MOVES and run.method.parts is None:
            moved = MOVES[name](step)
        else:
            return
        after = step.before["model"].double().numpy() + moved
        checked = slice(0, _checked(run, trainable))
        if differ(after[checked], step.after["model"].double().numpy()[checked], run.tolerance):
            yield f"version {step.facts['version']} is not the weighted mean of its updates"
            return


def _coverage(run: Finished, step: Step) -> np.ndarray[Any, Any]:
    """Which entries each contribution has trained, (C, P)."""
    covers = np.ones(step.rows["delta"].shape)
    if (parts := run.method.parts) is not None:
        covers[:] = 0
        for row, client in enumerate(step.facts["clients"].tolist()):
            train = next(
                one
                for one in run.trains.values()
                if one.client == client and one.version == step.facts["versions"][row] and one.used
            )
            at = parts.positions(np.array([client]), np.array([train.round]), torch.device("cpu"))
            covers[row, at[0, : parts.sent(int(parts.level[client]))].numpy()] = 1
    return covers


def _checked(run: Finished, trainable: int) -> int:
    """Entries before the output layer, if clients count there by their classes."""
    if run.method.parts is None or run.content["server"]["submodels"]["name"] == "depth":
        return trainable
    layout = run.method.context.layout
    names = [name for name in layout.names if name not in layout.buffers]
    return trainable - sum(layout.sizes[name] for name in names[-2:])


def _samples_of_edges(run: Finished) -> np.ndarray[Any, Any]:
    """Samples at each edge server: those of its clients, times the share of the time that they are there."""
    samples = run.world.task.samples.astype(float)
    members = run.content["server"]["edges"].get("members")
    if members is None:
        return samples.reshape(2, -1).sum(1)
    moves = defaultdict(list)
    with Path(members["path"]).open() as file:
        for row in csv.DictReader(file):
            moves[int(row["client"])].append((float(row["time_s"]), "ab".index(row["edge"])))
    until = float(run.content["stop"]["simulated_time"].removesuffix("s"))
    weights = np.zeros(2)
    for client, places in moves.items():
        ends = [time for time, _ in places[1:]] + [until]
        for (begin, edge), end in zip(places, ends, strict=True):
            weights[edge] += samples[client] * (end - begin) / until
    return weights


def buffers_are_averaged(run: Finished) -> Wrong:
    """Running statistics stay within the clients' values, and variances are not negative."""
    layout = run.method.context.layout
    first = layout.trainable
    # What adapters change comes last, too.
    if first == layout.size or run.method.merges:
        return
    states = [step.after["model"] for step in (*run.steps, *run.cloud_steps)]
    for state in states:
        for name, view in layout.views(state.float().contiguous()).items():
            if name.endswith("running_var") and (view < 0).any():
                yield "a variance is negative"
                return
    if run.method.parts is not None or not run.steps:
        return
    values = torch.cat([model[:, first:].double() for one in run.inner for model in one.models])
    # The initial statistics: mean 0 and variance 1.
    low = values.min(0).values.clamp(max=0)
    high = values.max(0).values.clamp(min=1)
    for state in states:
        buffers = state[first:].double()
        if (buffers < low - 1e-6).any() or (buffers > high + 1e-6).any():
            yield "an average of buffers is outside the clients' values"
            return


INVARIANTS: tuple[Callable[[Finished], Wrong], ...] = (
    time_adds_up,
    energy_follows_from_time,
    outcomes_agree,
    bytes_follow_from_vectors,
    everything_is_finite,
    sent_and_remembered_is_the_sum,
    servers_state_is_the_clients,
    samples_weigh_as_documented,
    buffers_are_averaged,
)
"""What must hold for all runs in memory."""


# -- another execution, and the run folder -----------------------------------------------------------------------------


def executions_agree(run: Finished, execution: str, folder: Path) -> Wrong:
    """Another execution of the same timeline has the same bits."""
    if execution == "once":
        return
    if execution == "folder":
        yield from _folder_agrees(run, folder)
        return
    learner, metrics = again(run, execution)
    one, other = left(run.learner), left(learner)
    for name, value in one.items():
        if name not in other or not torch.equal(value, other[name]):
            yield f"{execution}: {name} differs"
    if repr(metrics) != repr(run.metrics):
        yield f"{execution}: metrics differ"


def _folder_agrees(run: Finished, folder: Path) -> Wrong:
    """The run folder has the same dispatches and model; its sums by client, edge server and in total agree."""
    saved = written(run.content, folder)
    table = saved.dispatches
    columns = run.columns()
    order = np.argsort(columns["dispatch_id"])
    for name in ("client_id", "bytes_down", "bytes_up", "energy_j", "ended_s", "steps_done"):
        if differ(table[name], columns[name][order], 1e-12):
            yield f"folder: {name} differs"
    for name, value in run.learner.named_model().items():
        if not torch.equal(saved.model()[name], value):
            yield f"folder: {name} of the model differs"
    clients = saved.clients
    sums = {"bytes_down", "bytes_up", "energy_j", "gco2e", "cost"} & set(clients)
    for name in sums & set(table):
        per_client = np.bincount(table["client_id"], table[name], minlength=len(clients))
        if differ(clients[name], per_client, 1e-9):
            yield f"folder: {name} by client is not that by dispatch"
    for name in ("aggregated", "late", "dropped"):
        if name in clients:
            counts = table.loc[table["outcome"] == name, "client_id"]
            if differ(clients[name], np.bincount(counts, minlength=len(clients)), 0):
                yield f"folder: {name} by client is not that by dispatch"
    for name in {"gco2e", "cost"} & set(saved.info):
        if differ(saved.info[name], clients[name].sum(), 1e-9):
            yield f"folder: {name} in total is not that by client"
    if prices := run.content["devices"].get("cost"):
        hours = table[list(WATTS)].sum(axis=1) / 3600
        moved = table["bytes_down"] + table["bytes_up"]
        cost = prices["per_byte"] * moved + prices["per_device_hour"] * hours
        if differ(saved.info["cost"], cost.sum(), 1e-9):
            yield "folder: the cost is not what bytes and hours cost"
    if saved.info["dispatches"] != len(table):
        yield "folder: the number of dispatches differs"
    if run.rows.of_edges:
        for name in ("bytes_down", "bytes_up", "energy_j"):
            by_edge = saved.edge_dispatches.groupby("client_id")[name].sum()
            expected = by_edge.reindex(range(len(saved.edges)), fill_value=0)
            if differ(saved.edges[name], expected, 1e-9):
                yield f"folder: {name} by edge server is not that by dispatch"
    parts = clients[[f"{name}_s" for name in _STATES_OF_CLIENTS]].sum(axis=1)
    if differ(parts, np.full(len(clients), saved.info["simulated_s"]), 1e-8):
        yield "folder: the seconds of a client do not add up to the run's"


_STATES_OF_CLIENTS = ("download", "compute", "upload", "paused", "waiting", "idle", "offline")
