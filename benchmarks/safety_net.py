"""Digests of what fedsim computes, to compare a changed tree with.

``python -m benchmarks.safety_net check`` runs every bundled scenario (shortened), every method under every schedule and
a few variants of every section of a scenario, and compares the final model, ``dispatches``, ``aggregations`` and
``metrics`` with ``safety_net.json``. ``write`` replaces that file.

The time plane must agree on every machine. What was learned (model, metrics, and the time plane of the few cases in
which it depends on them) is compared only on a machine like the one that wrote the table. Only the public interface is
used, so that the script survives changes of the code that it checks.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import itertools
import json
import multiprocessing
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "benchmarks" / "safety_net.json"
TABLES = {"dispatches": "dispatch_id", "aggregations": "version", "metrics": None}
PROCESSES = 2

ADAPTERS = {"ffa_lora", "flexlora", "flora", "hetlora"}
PERSONAL = {"fedavg_p", "scaffold_p", "fedper", "fedrep", "fedsim", "fedalt", "lg_fedavg"}


@dataclass(frozen=True)
class Case:
    """One run to compare.

    Attributes:
        name: its name in the table and for ``--only``.
        scenario: a file, or its content as a mapping.
        overrides: values by dotted path.
        timing_only: simulate only time.
        learned: the time plane depends on learned values, so it is compared only on a similar machine.
        data: needs the data sets of ``FEDSIM_DATA``.
    """

    name: str
    scenario: Path | Mapping[str, Any]
    overrides: tuple[str, ...] = ()
    timing_only: bool = False
    learned: bool = False
    data: bool = False


# -- cases -----------------------------------------------------------------------------------------

BUNDLED: Mapping[str, tuple[str, ...]] = {
    "quickstart": ("stop={rounds: 8}",),
    "real_trace": ("stop={rounds: 8}",),
    "timing_million": ("stop={rounds: 40}", "task.clients=50000"),
    "shared_uplink": ("stop={rounds: 6}",),
    "edge_servers": ("stop={rounds: 3}",),
    "fedcompass": ("stop={simulated_time: 5min}",),
    "fedlga": ("stop={rounds: 12}",),
    "fedsum": ("stop={rounds: 40}",),
    "generalized_fedavg": ("stop={simulated_time: 2d}",),
    "partial_personalization": ("stop={rounds: 15}",),
}

# Overrides that shorten the papers' sweeps: by folder, then by the beginning of the file's name.
PAPERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "compression": {"": ("stop={rounds: 6}",)},
    "submodels": {"": ("stop={rounds: 4}", "evaluation.every_rounds=2")},
    "fedcompass": {"": ("stop={simulated_time: 5min}",)},
    "timing": {"": ("stop={simulated_time: 1h}",)},
    "fedlga": {"": ("stop={rounds: 8}",)},
    "fedsum": {"": ("stop={rounds: 12}", "evaluation.every_rounds=4")},
    "generalized_fedavg": {
        "": ("stop={simulated_time: 300s}", "evaluation.every=100s"),
        "trace": ("stop={simulated_time: 2d}", "evaluation.every=12h"),
    },
    "time": {"": ("stop={simulated_time: 30s}",), "links": ("stop={rounds: 3}",)},
    "partial_personalization": {"": ("stop={rounds: 6}", "evaluation.every_rounds=3")},
}


def bundled() -> Iterator[Case]:
    """The scenarios under ``scenarios/``; of each sweep, runs that use every value of every path once."""
    for path in sorted((ROOT / "scenarios").glob("*.yaml")):
        yield Case(f"scenarios/{path.stem}", path, BUNDLED[path.stem])
    for path in sorted((ROOT / "scenarios" / "papers").rglob("*.yaml")):
        if path.name == "reference.yaml":
            continue
        cuts = PAPERS[path.parent.name]
        cut = next(cuts[key] for key in sorted(cuts, reverse=True) if path.stem.startswith(key))
        name = "/".join((*path.relative_to(ROOT).parts[:-1], path.stem))
        runs = list(_diagonal(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))))
        if "cifar" in path.stem:
            cut = (*cut, "task.dataset.batches=[1, 2]")
        # The full sizes take long to train, and most need data sets that do not come with fedsim.
        if path.stem.endswith(("_full", "_gpu")):
            for number in (0, len(runs) - 1):
                yield Case(
                    f"{name}/{number}", path, runs[number] + cut, timing_only=True, data=True
                )
        elif path.stem == "table1_mnist" or path.stem.endswith("_long"):
            yield Case(f"{name}/0", path, (*runs[0], "stop={simulated_time: 40s}"), data=True)
        else:
            for number, run in enumerate(runs):
                yield Case(f"{name}/{number}", path, run + cut)


def _diagonal(content: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Overrides of one run after another, until every listed value of every path has been used."""
    sweep = content["sweep"]
    grid: list[list[tuple[tuple[str, Any], ...]]] = [
        [((path, value),) for value in values] for path, values in sweep.get("grid", {}).items()
    ]
    if sweep.get("zip"):
        rows = zip(*sweep["zip"].values(), strict=True)
        grid.append([tuple(zip(sweep["zip"], row, strict=True)) for row in rows])
    for number in range(max(len(values) for values in grid)):
        chosen = itertools.chain(*(values[number % len(values)] for values in grid))
        yield ("sweep=null", *(f"{path}={json.dumps(value)}" for path, value in chosen))


def quadratic(**server: Any) -> dict[str, Any]:
    """Six clients with quadratic objectives, gradient noise, links and unequal speeds."""
    return {
        "name": "quadratic",
        "seed": 3,
        "task": {
            "name": "quadratic",
            "centers": [[1, -1, 2], [2, 0, 1], [-1, 3, 0], [0, 1, -2], [4, -2, 1], [1, 1, 1]],
            "curvatures": [[1, 2, 1], [2, 1, 1], [1, 1, 3], [1, 0.5, 1], [2, 2, 2], [1, 1, 1]],
            "names": {"body": 2, "head": 1},
            "samples": [10, 20, 30, 40, 50, 60],
            "noise_std": 0.1,
        },
        "training": {
            "optimizer": {"name": "sgd", "lr": 0.05},
            "batch_size": 10,
            "local_steps": 4,
            "threads": 1,
        },
        "devices": {
            "compute": {"name": "values", "step": [1, 1.5, 2, 3, 5, 8], "jitter": {"cv": 0.1}},
            "network": {"name": "static", "latency": "20ms", "down": "1Mbps", "up": "1Mbps"},
        },
        "server": server,
        "stop": {"arrivals": 30, "simulated_time": "10min"},
        "evaluation": {"every": "20s"},
    }


def supervised(**server: Any) -> dict[str, Any]:
    """Twelve phones of a bundled trace that learn a small classifier."""
    return {
        "name": "supervised",
        "seed": 5,
        "task": {
            "dataset": {"name": "gaussian_mixture", "samples": 600},
            "partition": {"name": "dirichlet", "alpha": 0.5, "clients": 12, "test": "split"},
            "model": {"name": "mlp", "hidden": [6]},
        },
        "training": {
            "optimizer": {"name": "sgd", "lr": 0.1},
            "batch_size": 8,
            "local_steps": 4,
            "threads": 1,
        },
        "devices": {
            "trace": str(ROOT / "traces" / "phones_mostly_on_week"),
            "compute": {"reference_step": "4s", "jitter": {"cv": 0.1}},
            "network": {"name": "static", "latency": "40ms"},
        },
        "server": server,
        "stop": {"arrivals": 24, "simulated_time": "3h"},
        "evaluation": {"every": "90s"},
    }


# Schedules of each task: a synchronous one, with a deadline, and the asynchronous ones.
SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "sync": {"name": "sync"},
    "async": {"name": "async"},
    "buffered": {"name": "buffered", "buffer_size": 3},
    "compass": {"name": "compass"},
    "tiered": {"name": "tiered"},
    "window": {"name": "window", "deadline": "2min"},
}
# Parameters of methods that do little with their defaults.
GIVEN: Mapping[str, Mapping[str, Any]] = {
    "generalized_fedavg": {"amplification": 2, "every_rounds": 2},
}


def methods() -> Iterator[Case]:
    """Every method under every schedule, on both tasks; those of adapters on a model that has some."""
    from click.testing import CliRunner

    from fedsim.cli import cli

    listed = CliRunner().invoke(cli, ["describe", "method", "--json"])
    for name in sorted(json.loads(listed.stdout)):
        method = {"name": name, **GIVEN.get(name, {})}
        for schedule, given in SCHEDULES.items():
            for world in (supervised,) if name in ADAPTERS else (quadratic, supervised):
                server: dict[str, Any] = {"method": method, "schedule": dict(given)}
                if schedule == "sync":
                    server["selection"] = {"name": "uniform", "cohort": 4}
                    server["partial_work"] = "send"
                    server["schedule"]["deadline"] = "15s" if world is quadratic else "1min"
                parameters = dict(method)
                if world is quadratic and name in PERSONAL:
                    parameters["personal"] = ["head"]
                server["method"] = parameters
                content = world(**server)
                if name in ADAPTERS:
                    content["task"]["model"] = f"{ROOT / 'benchmarks' / 'adapted.py'}:Adapted"
                yield Case(f"methods/{name}/{schedule}/{world.__name__}", content)


SELECTIONS: tuple[dict[str, Any], ...] = (
    {"name": "uniform", "cohort": 3},
    {"name": "uniform_with_replacement", "cohort": 4},
    {"name": "bernoulli", "probability": 0.4},
    {"name": "cyclic", "cohort": 3},
    {"name": "reshuffled_cyclic", "cohort": 3},
    {"name": "round_robin", "cohort": 3},
    {"name": "sample_weighted", "cohort": 3},
    {"name": "scripted", "rounds": [[0], [1, 2], [3], [0, 4, 5]]},
    {"name": "periodic_groups", "cohort": 1, "groups": 3, "slot_rounds": 2},
    {"name": "oort", "cohort": 3},
    {"name": "refl", "cohort": 3},
    {"name": "tifl", "cohort": 3},
    {"name": "tifl_adaptive", "cohort": 3, "interval": 2},
)

# One override per variant of one of the two tasks, under FedAvg in rounds.
VARIANTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "optimizer/momentum": ("supervised", ("training.optimizer={lr: 0.05, momentum: 0.9}",)),
    "optimizer/adam": ("supervised", ("training.optimizer={name: adam, lr: 0.01}",)),
    "optimizer/adamw": ("supervised", ("training.optimizer={name: adamw, lr: 0.01}",)),
    "rate/inverse_sqrt": ("supervised", ("training.lr_schedule={name: inverse_sqrt}",)),
    "rate/exponential": ("supervised", ("training.lr_schedule={name: exponential, factor: 0.5}",)),
    "rate/cosine": ("supervised", ("training.lr_schedule={name: cosine, length: 5}",)),
    "rate/piecewise": (
        "supervised",
        ("training.lr_schedule={name: piecewise, points: [[0, 0.1], [3, 1]]}",),
    ),
    "rate/time": ("supervised", ("training.lr_schedule={name: inverse_sqrt, by: time}",)),
    "training/clip": ("supervised", ("training.clip_norm=0.5",)),
    "training/epochs": ("supervised", ("training.local_steps=null", "training.local_epochs=1.5")),
    "training/float64": ("supervised", ("training.dtype=float64",)),
    "training/plain": ("supervised", ("training.executor=plain",)),
    "training/parallel": ("supervised", ("training.executor=parallel",)),
    "training/time_budget": (
        "supervised",
        ("training.local_steps=null", "training.time_budget=20s"),
    ),
    "training/limited": ("quadratic", ("training.limited={share: 0.5, redraw: both}",)),
    "evaluation/objective": ("supervised", ("evaluation.objective=true",)),
    "evaluation/per_client": ("supervised", ("evaluation.per_client=true",)),
    "evaluation/rounds": ("supervised", ("evaluation={every_rounds: 2}",)),
    "partition/iid": ("supervised", ("task.partition={name: iid, clients: 12}",)),
    "partition/shards": ("supervised", ("task.partition={name: shards, clients: 12}",)),
    "partition/quantity_skew": (
        "supervised",
        ("task.partition={name: quantity_skew, clients: 12, alpha: 0.5}",),
    ),
    "partition/dual_dirichlet": (
        "supervised",
        ("task.partition={name: dual_dirichlet, clients: 12, alpha2: 0.5}",),
    ),
    "partition/majority_label": (
        "supervised",
        ("task.partition={name: majority_label, clients: 12}",),
    ),
    "dataset/digits_cnn": (
        "supervised",
        ("task.dataset={name: digits}", "task.model={name: cnn}", "stop.arrivals=8"),
    ),
    "dataset/synthetic": (
        "supervised",
        (
            "task.dataset={name: synthetic}",
            "task.partition={name: natural}",
            "task.model={name: logistic_regression}",
        ),
    ),
    "compute/normal": ("quadratic", ("devices.compute={name: normal, mean: 2s, cv: 0.3}",)),
    "compute/exponential": ("quadratic", ("devices.compute={name: exponential, mean: 2s}",)),
    "compute/lognormal": (
        "quadratic",
        ("devices.compute={name: lognormal, median: 2s, sigma: 0.5, jitter: {cv: 0.2}}",),
    ),
    "compute/uniform": ("quadratic", ("devices.compute={name: uniform, low: 1s, high: 4s}",)),
    "compute/stragglers": (
        "supervised",
        ("devices.compute={reference_step: 4s, stragglers: {probability: 0.3}}",),
    ),
    "availability/shift": ("supervised", ("devices.availability={shift: days}",)),
    "availability/start": ("supervised", ("devices.availability={start: 2d}",)),
    "availability/drop": ("supervised", ("devices.availability={on_disconnect: drop}",)),
    "availability/pause": ("supervised", ("devices.availability={on_disconnect: pause}",)),
    "availability/finish": ("supervised", ("devices.availability={on_disconnect: finish}",)),
    "availability/send_partial": (
        "supervised",
        ("devices.availability={on_disconnect: send_partial}",),
    ),
    "availability/always": ("supervised", ("devices.availability={name: always}",)),
    "devices/sample": ("supervised", ("devices.assign=sample",)),
    "devices/failures": ("supervised", ("devices.failures={crash_rate: 20}",)),
    "network/shared": (
        "supervised",
        (
            "devices.network={name: shared, latency: 10ms, server_up: 1Mbps,"
            " topology: {name: star, sites: 3, capacity: 1Mbps, latency: 5ms}}",
        ),
    ),
    "network/shared_server": (
        "quadratic",
        (
            "devices.network={name: shared, latency: 10ms, down: 10kbps, up: 10kbps,"
            " server_up: 10kbps, server_down: 10kbps}",
        ),
    ),
    "network/bundle_latency": ("supervised", ("devices.network={name: static, latency: bundle}",)),
    "sync/over_selection": (
        "supervised",
        ("server.schedule={name: sync, over_selection: 1.5, stragglers: cut, pause: 30s}",),
    ),
    "sync/drop": (
        "supervised",
        ("server.partial_work=drop", "server.schedule={name: sync, deadline: 25s}"),
    ),
    "sync/empty": (
        "supervised",
        ("server.schedule={name: sync, deadline: 10s, min_updates: 0}", "server.partial_work=drop"),
    ),
    "stop/target": ("supervised", ("stop={target: {accuracy: 0.5}, rounds: 20}",)),
    "timing_only": ("supervised", ()),
}


def variants() -> Iterator[Case]:
    """Every selection, and variants of every section of a scenario."""
    worlds = {"quadratic": quadratic, "supervised": supervised}
    for selection in SELECTIONS:
        for kind, world in worlds.items():
            server = {"method": {"name": "fedavg"}, "selection": selection}
            learned = selection["name"] in ("oort", "refl", "tifl", "tifl_adaptive")
            yield Case(f"selections/{selection['name']}/{kind}", world(**server), learned=learned)
    for name, (kind, overrides) in VARIANTS.items():
        server = {"method": {"name": "fedavg"}, "selection": {"name": "uniform", "cohort": 4}}
        yield Case(
            f"variants/{name}",
            worlds[kind](**server),
            overrides,
            timing_only=name == "timing_only",
            learned=name == "stop/target",
        )


def cases(patterns: list[str]) -> list[Case]:
    """The cases whose name matches a pattern; all without patterns."""
    every = [*bundled(), *methods(), *variants()]
    return [
        case
        for case in every
        if not patterns or any(fnmatch.fnmatch(case.name, one) for one in patterns)
    ]


# -- digests ---------------------------------------------------------------------------------------


def run_case(work: tuple[Case, Path]) -> tuple[str, dict[str, Any], float]:
    """Run a case; returns its name, its digests (or that it is refused), and its wall seconds."""
    import fedsim
    from fedsim.errors import UserError

    case, folder = work
    began = time.perf_counter()
    output = folder / case.name.replace("/", "_")
    try:
        fedsim.run(
            case.scenario,
            output,
            overrides=case.overrides,
            overwrite=True,
            timing_only=case.timing_only,
        )
        result = digests(output)
    except UserError as error:
        # Wording may change, so only the fact is compared; the message is for readers of the table.
        result = {"refused": True, "message": str(error)}
    except Exception as error:
        result = {"failed": f"{type(error).__name__}: {error}"}
    return case.name, result, time.perf_counter() - began


def digests(folder: Path) -> dict[str, Any]:
    """Digests of a run folder's tables (with the columns they cover) and of its model."""
    result: dict[str, Any] = {}
    for table, key in TABLES.items():
        data = pq.read_table(folder / f"{table}.parquet")
        result[table] = {
            "rows": data.num_rows,
            "columns": sorted(data.column_names),
            "sha256": table_digest(data, sorted(data.column_names), key),
        }
    model = folder / "model.safetensors"
    if model.exists():
        result["model"] = model_digest(model)
    return result


def table_digest(data: pa.Table, columns: list[str], key: str | None) -> str:
    """A digest of the values of these columns, regardless of the file's encoding and the width of its integers."""
    if key is not None:
        data = data.sort_by(key)
    digest = hashlib.sha256()
    for name in columns:
        column = data.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        digest.update(f"{name}\0".encode())
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            wide = pa.float64() if pa.types.is_floating(column.type) else pa.int64()
            digest.update(pc.is_null(column).to_numpy().tobytes())
            digest.update(pc.fill_null(column.cast(wide), 0).to_numpy().tobytes())
        else:
            digest.update(repr(column.to_pylist()).encode())
    return digest.hexdigest()[:20]


def model_digest(path: Path) -> str:
    """A digest of the names, types, shapes and bits of the tensors in a safetensors file."""
    import torch
    from safetensors.torch import load_file

    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(path).items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:20]


def fingerprint() -> dict[str, str]:
    """The processor and the versions of the numeric libraries, on which floating-point results may depend."""
    import numpy
    import torch

    cpu = platform.processor()
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text(encoding="utf-8").splitlines()
        cpu = next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def run_cases(chosen: list[Case], output: Path) -> dict[str, Any]:
    """The digests of these cases, run by a few processes."""
    results: dict[str, Any] = {}
    slowest: list[tuple[float, str]] = []
    # New processes inherit this before they load a numeric library.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with multiprocessing.get_context("spawn").Pool(min(PROCESSES, len(chosen))) as pool:
        work = [(case, output) for case in chosen]
        for name, result, wall_s in pool.imap_unordered(run_case, work, chunksize=2):
            results[name] = result
            slowest.append((wall_s, name))
            if sys.stderr.isatty():
                print(f"\r\033[K{len(results)}/{len(chosen)} {name}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    for wall_s, name in sorted(slowest, reverse=True)[:5]:
        print(f"  {wall_s:5.1f} s  {name}")
    return dict(sorted(results.items()))


# -- comparing -------------------------------------------------------------------------------------


def differences(
    case: Case, earlier: Mapping[str, Any], now: Mapping[str, Any], folder: Path, *, alike: bool
) -> Iterator[str]:
    """The differences between the recorded and the present result of a case.

    Args:
        case: the case.
        earlier: its entry in the table.
        now: its present digests.
        folder: its run folder.
        alike: whether this machine is similar to the one that wrote the table.
    """
    # Some cases were recorded on another kind of machine than the table.
    alike = alike and "elsewhere" not in earlier
    for word in ("refused", "failed"):
        if word in now and word not in earlier:
            yield f"{word}: {now.get('message', now[word])}"
            return
        if word in earlier:
            if word not in now:
                yield f"was {word} ({earlier.get('message', '')}), runs now"
            return
    for table, key in TABLES.items():
        if not alike and (table == "metrics" or case.learned):
            continue
        was, is_now = earlier[table], now[table]
        missing = sorted(set(was["columns"]) - set(is_now["columns"]))
        if missing:
            yield f"{table}: columns are gone: {', '.join(missing)}"
        elif was["rows"] != is_now["rows"]:
            yield f"{table}: {is_now['rows']} rows, were {was['rows']}"
        else:
            data = pq.read_table(folder / f"{table}.parquet")
            if table_digest(data, was["columns"], key) != was["sha256"]:
                yield f"{table}: other values"
    if alike and earlier.get("model") != now.get("model"):
        yield "model: other values"


def check(chosen: list[Case], output: Path, *, everything: bool) -> int:
    """Run the cases and print the differences from the table; returns their number."""
    document = json.loads(TABLE.read_text(encoding="utf-8"))
    here = fingerprint()
    alike = here == document["fingerprint"]
    if not alike:
        print("This machine differs from the one that wrote the table:")
        print(f"  table  {document['fingerprint']}\n  here   {here}")
        print("  so models and metrics are NOT compared, only dispatches and aggregations.")
    table = recorded(document)
    compared = [case for case in chosen if case.name in table]
    for case in chosen:
        if case.name not in table:
            print(f"  not in the table: {case.name}")
    results = run_cases(compared, output) if compared else {}
    count = 0
    for case in compared:
        folder = output / case.name.replace("/", "_")
        for text in differences(case, table[case.name], results[case.name], folder, alike=alike):
            print(f"DIFFERENT {case.name}: {text}")
            count += 1
    if everything:
        names = {case.name for case in chosen}
        lacking = [name for name in table if name not in names and not table[name].get("data")]
        for name in lacking:
            print(f"DIFFERENT {name}: there is no such case any more")
        count += len(lacking)
    print(f"{len(compared)} cases, {count} differences")
    return count


def recorded(document: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of the table, with their lists of columns."""
    return {
        name: _unpacked(entry, document["columns"]) for name, entry in document["cases"].items()
    }


def _packed(entry: dict[str, Any], columns: list[list[str]]) -> dict[str, Any]:
    """An entry in which numbers stand for lists of columns, which many entries share."""
    for table in TABLES:
        if table in entry:
            if entry[table]["columns"] not in columns:
                columns.append(entry[table]["columns"])
            entry[table]["columns"] = columns.index(entry[table]["columns"])
    return entry


def _unpacked(entry: dict[str, Any], columns: list[list[str]]) -> dict[str, Any]:
    for table in TABLES:
        if table in entry:
            entry[table]["columns"] = columns[entry[table]["columns"]]
    return entry


def write(chosen: list[Case], output: Path, *, everything: bool) -> int:
    """Run the cases and write the table, or replace these entries; returns the number of cases that failed."""
    results = run_cases(chosen, output)
    columns: list[list[str]] = []
    entries: dict[str, Any] = {}
    if not everything and TABLE.exists():
        document = json.loads(TABLE.read_text(encoding="utf-8"))
        if document["fingerprint"] != fingerprint():
            sys.exit("part of a table of another machine cannot be replaced: write all of it")
        entries, columns = document["cases"], document["columns"]
    for case in chosen:
        entries[case.name] = _packed(results[case.name], columns)
        if case.data:
            entries[case.name]["data"] = True
    lines = [f"    {json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries)]
    shared = ",\n".join(f"    {json.dumps(one)}" for one in columns)
    TABLE.write_text(
        f'{{\n  "fingerprint": {json.dumps(fingerprint())},\n  "columns": [\n{shared}\n  ],\n'
        '  "cases": {\n' + ",\n".join(lines) + "\n  }\n}\n",
        encoding="utf-8",
    )
    failed = [name for name, result in results.items() if "failed" in result]
    for name in failed:
        print(f"FAILED {name}: {results[name]['failed']}")
    refused = [name for name, result in results.items() if "refused" in result]
    print(f"{len(results)} cases written, {len(refused)} of them refused, {len(failed)} failed")
    return len(failed)


def main() -> int:
    """Write or check the digests; returns 1 if anything differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=["write", "check"])
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="cases by name")
    parser.add_argument("--list", action="store_true", help="list the names of the cases")
    parser.add_argument("-o", "--output", type=Path, help="keep the run folders here")
    options = parser.parse_args()
    everything = not options.only
    chosen = cases(options.only)
    if not chosen:
        parser.error(f"no case matches {' or '.join(options.only)}; --list names them")
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    readable = bool(os.environ.get("FEDSIM_DATA")) and Path(os.environ["FEDSIM_DATA"]).is_dir()
    skipped = [case for case in chosen if case.data and not readable]
    if skipped:
        print(f"{len(skipped)} cases are left out: FEDSIM_DATA names no folder of real data")
        chosen = [case for case in chosen if case not in skipped]
    began = time.perf_counter()
    count = 0
    output = options.output or Path(tempfile.mkdtemp(prefix="safety_net_"))
    try:
        act = check if options.action == "check" else write
        count += act(chosen, output, everything=everything)
    finally:
        if options.output is None:
            shutil.rmtree(output, ignore_errors=True)
    print(f"{time.perf_counter() - began:.0f} s")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
