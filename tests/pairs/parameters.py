"""The parameters of the array, and their values: a feature joins the test of all pairs by a line in this file.

Methods, schedules, selections, compressions and submodel rules come from the catalog, so that a new part joins by
itself; :data:`GIVEN` has the parameters that make one fit into a run of a few seconds. A value is a mapping from dotted
paths to settings; the first value of a parameter changes least.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsim.parts.catalog import CATALOG
from tests.traces.cases import bundle_of

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = 4
SECOND = 1_000_000

Value = Mapping[str, Any]
Values = Mapping[str, Value]
Row = Mapping[str, str]
"""The name of the value of each parameter."""

GIVEN: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "method": {
        "aced": {"delay": 2},
        "ditto": {"attraction": 0.5},
        "fedasync": {"proximal": 0.1},
        "fedprox": {"mu": 0.1},
        "fedrep": {"personal_steps": 2},
        "generalized_fedavg": {"amplification": 2, "every_rounds": 2},
        "delayed_nesterov": {"momentum_every": 3},
        "streaming_diloco": {"fragments": 2},
    },
    "schedule": {
        "ata": {"tasks": 4},
        "buffered": {"buffer_size": 2},
        "compass": {"max_steps": 4, "min_steps": 2},
        "malenia": {"batch": 5},
        "rennala": {"batch": 3},
        "ringmaster": {"threshold": 2},
        "timely": {"share": 0.5},
        "window": {"deadline": "20s"},
    },
    "selection": {
        "bernoulli": {"probability": 0.6},
        "carbon_aware": {"cohort": 2, "wait": "5s"},
        "cyclic": {"cohort": 2},
        "oort": {"cohort": 2},
        "periodic_groups": {"cohort": 1, "groups": 2, "slot_rounds": 1},
        "refl": {"cohort": 2},
        "reshuffled_cyclic": {"cohort": 2},
        "round_robin": {"cohort": 2},
        "sample_weighted": {"cohort": 2},
        "scripted": {"rounds": [[0, 2], [1], [0, 1, 3], [2, 3], [0], [1, 2]]},
        "tifl": {"cohort": 2, "tiers": 2},
        "tifl_adaptive": {"cohort": 2, "tiers": 2, "interval": 1},
        "uniform_with_replacement": {"cohort": 3},
    },
    "compression": {
        "factor": {"factor": 0.5},
        "qsgd": {"levels": 2, "bucket": 4},
        "powersgd": {"rank": 1},
        "randk": {"share": 0.5},
        "sparseloco": {"share": 0.5, "chunk": 4},
        "topk": {"share": 0.4},
        "eden": {"bits": 2},
    },
    "submodels": {
        name: {"rates": [1, 0.5], "by": "speed"}
        for name in ("depth", "fedrolex", "fjord", "heterofl", "ranks")
    },
}
"""Parameters of parts that would do little, or nothing in time, with their defaults."""

VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "method": {
        "scaffold/one": {"uplink": 1},
        "scaffold_p/one": {"uplink": 1},
        "fedavg_p/kept": {"keep_v_on_drop": True},
        "fedavg/server_lr": {"server_lr": 0.5, "weights": "uniform"},
        "mtgc/kept": {"client_corrections": "kept"},
    },
    "schedule": {
        "sync/deadline": {"deadline": "9s", "min_updates": 0},
        "sync/cut": {"deadline": "9s", "stragglers": "cut", "pause": "1s"},
        "sync/over": {"over_selection": 1.5, "quorum": 2, "deadline": "12s"},
        "async/same": {"next_client": "same", "concurrency": 3, "max_staleness": 3},
    },
    "selection": {"uniform/cohort": {"cohort": 2}},
    "compression": {
        "randk/unbiased": {"share": 0.5, "error_feedback": False, "shared_seed": True},
        "topk/no_feedback": {"share": 0.4, "error_feedback": False},
    },
    "submodels": {"heterofl/static": {"rates": [1, 0.5], "by": "speed", "scaler": False}},
}
"""Further values of these kinds."""

FIRST = {"method": "fedavg", "schedule": "sync", "selection": "uniform", "submodels": "whole"}
NEEDED: Mapping[str, Value] = {
    "carbon_aware": {
        "devices.carbon": {"file": "builtin:carbon_week.csv", "region": {"FR": 0.5, "DE": 0.5}}
    },
}
"""Settings elsewhere that a part cannot do without."""


def parts(kind: str, path: str) -> dict[str, Value]:
    """Every bundled part of a kind as a value of the setting ``path``, and its variants."""
    given = {name: GIVEN[kind].get(name, {}) for name in sorted(CATALOG.parts(kind))}
    values: dict[str, Value] = {}
    first = FIRST.get(kind, "none")
    for name, params in sorted({**given, **VARIANTS[kind]}.items(), key=lambda x: x[0] != first):
        part = name.partition("/")[0]
        values[name] = {path: {"name": part, **params}, **NEEDED.get(part, {})}
    return values


def supervised(model: Any, samples: int = 72) -> Value:
    """A task of four clients with unequal data and test samples."""
    return {
        "task": {
            "dataset": {
                "name": "gaussian_mixture",
                "samples": samples,
                "test_samples": 12,
                "features": 3,
                "classes": 3,
            },
            "partition": {
                "name": "quantity_skew",
                "clients": CLIENTS,
                "alpha": 2,
                "test": "split",
            },
            "model": model,
        }
    }


TASKS: Values = {
    "quadratic": {
        "task": {
            "name": "quadratic",
            "centers": [[1, -1, 2], [2, 0, 1], [-1, 3, 0], [0, 1, -2]],
            "curvatures": [[1, 2, 1], [2, 1, 1], [1, 1, 3], [1, 0.5, 1]],
            "names": {"body": 2, "head": 1},
            "samples": [10, 20, 30, 41],
            "noise_std": 0.1,
        }
    },
    "mlp": supervised({"name": "mlp", "hidden": [4, 4]}),
    "linear": supervised("logistic_regression"),
    "normalized": supervised(f"{Path(__file__).parent / 'networks.py'}:Normed", 120),
    "adapters": supervised(f"{ROOT / 'benchmarks' / 'adapted.py'}:Adapted"),
}

_LINK = {"name": "static", "latency": "20ms", "down": "16kbps", "up": "8kbps"}
_EDGES = {"count": 2, "network": {**_LINK, "down": "32kbps"}, "power": {"upload_w": 1}}
_MEMBERS = {"name": "file", "path": "edges.csv"}
_MOVING = {"network": _LINK, "members": _MEMBERS}


def parameters() -> dict[str, Values]:
    """The parameters, by name; the largest first."""
    trace = {"name": "trace", "trace": "stays"}
    table: dict[str, Values] = {
        "method": parts("method", "server.method"),
        "schedule": parts("schedule", "server.schedule"),
        "selection": parts("selection", "server.selection"),
        "up": parts("compression", "server.compression.up"),
        "down": parts("compression", "server.compression.down"),
        "submodels": parts("submodels", "server.submodels"),
        "edges": {
            "none": {},
            "sync": {"server.edges": _EDGES},
            "partial": {
                "server.edges": {**_EDGES, "rounds": 2, "partial_work": "send"},
                "cloud.schedule": {"name": "sync", "deadline": "25s"},
            },
            "async": {
                "server.edges": {**_EDGES, "rounds": 2},
                "cloud.method": "fedasync",
                "cloud.schedule": "async",
            },
            "moving": {"server.edges": _MOVING},
            "moving/drop": {
                "server.edges": {**_MOVING, "members": {**_MEMBERS, "on_move": "drop"}},
                "cloud.method": "fedbuff",
                "cloud.schedule": {"name": "buffered", "buffer_size": 2},
            },
            "failing": {
                "server.edges": {**_EDGES, "availability": {**trace, "on_disconnect": "pause"}},
                "cloud.method": "fedadam",
            },
        },
        "task": TASKS,
        "size": {"counted": {}, "given": {"task.size": "0.3kB"}},
        "partial_work": {
            "drop": {},
            "send": {"server.partial_work": "send"},
            "send/foresight": {"server.partial_work": "send", "server.foresight": True},
            "send/epoch": {"server.partial_work": "send", "server.partial_unit": "epoch"},
        },
        "work": {
            "steps": {},
            "epochs": {"training.local_steps": None, "training.local_epochs": 1.5},
            "budget": {"training.local_steps": None, "training.time_budget": "5s"},
            "limited": {"training.limited": {"share": 0.5, "redraw": "both"}},
            "replacement": {"training.batches": "with_replacement"},
        },
        "optimizer": {
            "sgd": {},
            "momentum": {"training.optimizer.momentum": 0.8},
            "decay": {"training.optimizer.weight_decay": 0.01, "training.clip_norm": 1.0},
            "adam": {"training.optimizer.name": "adam"},
            "adamw": {"training.optimizer.name": "adamw"},
        },
        "optimizer_state": {
            one: {"training.optimizer_state": one} for one in ("reset", "kept", "sent")
        },
        "rate": {
            "constant": {},
            "cosine": {"training.lr_schedule": {"name": "cosine", "length": 2}},
            "time": {"training.lr_schedule": {"name": "inverse_sqrt", "by": "time"}},
        },
        "disconnect": {
            "always": {},
            **{
                one: {"devices.availability": {**trace, "on_disconnect": one}}
                for one in ("drop", "finish", "pause", "send_partial")
            },
        },
        "detection": {
            "at_once": {},
            "later": {"server.failure_detection": "3s", "server.aggregation_time": "1s"},
            "never": {"server.failure_detection": "never"},
        },
        "energy": {
            "none": {},
            "battery": {"devices.energy": {"battery_j": 40, "battery_floor": 0.3, "recharge_w": 2}},
            "cost": {
                "devices.cost": {"per_byte": 1e-6, "per_device_hour": 0.5},
                "devices.carbon": {"file": "builtin:carbon_week.csv", "region": "GB"},
            },
        },
        "exchange": {one: {"server.exchange": one} for one in ("server", "ring", "tree")},
        "network": {
            "static": {},
            "tcp": {"devices.network": {**_LINK, "transport": "tcp"}},
            "shared": {
                "devices.network": {
                    **_LINK,
                    "name": "shared",
                    "server_up": "12kbps",
                    "topology": {
                        "name": "star",
                        "sites": 2,
                        "capacity": "20kbps",
                        "latency": "5ms",
                    },
                }
            },
        },
        "failures": {
            "none": {},
            "jitter": {"devices.compute.jitter": {"cv": 0.3}},
            "crashes": {"devices.failures": {"crash_rate": 60}},
            "lost": {"devices.failures": {"upload_loss": 0.3}},
            "retried": {"devices.failures": {"upload_loss": 0.3, "upload_retries": 1}},
        },
        "dtype": {one: {"training.dtype": one} for one in ("float64", "float32")},
        "executor": {
            one: {"training.executor": one} for one in ("auto", "stacked", "parallel", "plain")
        },
        "evaluation": {
            "plain": {},
            "per_client": {"evaluation.per_client": True},
            "objective": {"evaluation.objective": True},
            "by_class": {"evaluation.by_class": True, "evaluation.every_rounds": 1},
            "time": {"evaluation.every_rounds": None, "evaluation.every": "7s"},
            "models": {"checkpoint_models": {"every": "1 versions"}},
        },
        "memory": {"any": {}, "disk": {"training.memory": "disk"}},
        "transfer": {"changed": {}, "all": {"server.transfer": "all"}},
        "execution": {one: {} for one in EXECUTIONS},
    }
    return table


EXECUTIONS = ("once", "eager", "two_threads", "resumed", "distributed", "folder")
"""A second execution, besides the deferred one with one thread in memory, whose results must be the same; ``once`` is
none."""

SLOW = {
    "execution": {"folder": 12.0, **dict.fromkeys(EXECUTIONS[1:5], 6.0)},
    "task": {"quadratic": 0.0, "normalized": 8.0, "adapters": 8.0, "mlp": 5.0, "linear": 4.0},
    "edges": {"none": 0.0, **dict.fromkeys(("sync", "partial", "async", "failing"), 2.0)},
}
"""How many new combinations a slow value must bring before it is preferred to a fast one."""

_AT_EDGES = ("method", "schedule", "selection")


def scenario(row: Row, table: Mapping[str, Values], folder: Path) -> dict[str, Any]:
    """The scenario of a row, as a mapping; ``folder`` has the files of :func:`write_files`."""
    content: dict[str, Any] = {
        "name": "pair",
        "seed": 7,
        "training": {
            "optimizer": {"name": "sgd", "lr": 0.05},
            "batch_size": 8,
            "local_steps": 3,
            "threads": 1,
        },
        "devices": {
            "compute": {"name": "values", "step": [1, 1.5, 2, 3]},
            "network": _LINK,
        },
        "server": {},
        "cloud": {},
        "stop": {"rounds": 3, "arrivals": 24, "simulated_time": "80s"},
        "evaluation": {"every_rounds": 2},
    }
    for name, value in row.items():
        for path, setting in table[name][value].items():
            *sections, key = path.split(".")
            section = content
            for one in sections:
                section = section.setdefault(one, {})
            section[key] = json.loads(json.dumps(setting))
    cloud, server = content.pop("cloud"), content["server"]
    if edges := server.get("edges"):
        edges |= {key: server.pop(key) for key in _AT_EDGES}
        server |= cloud
        if edges["method"]["name"] == "mtgc":
            server["method"] = edges["method"]
        _find(edges, folder)
    _find(content["devices"], folder)
    return content


def _find(section: Any, folder: Path) -> None:
    for key, value in section.items():
        if key in ("trace", "path") and isinstance(value, str):
            section[key] = str(folder / value)
        elif isinstance(value, dict):
            _find(value, folder)


def write_files(folder: Path) -> None:
    """Write the files that values name: when clients and edge servers are online, and where clients are."""
    spans = {
        f"d{i}": [(start * SECOND, (start + 9 + i) * SECOND) for start in range(0, 400, 13 + i)]
        for i in range(CLIENTS)
    }
    bundle_of(spans, days=430 / 86_400).write(folder / "stays")
    places = [
        (0, 0, "a"),
        (1, 0, "a"),
        (2, 0, "b"),
        (3, 0, "b"),
        (1, 11, "b"),
        (3, 14, "a"),
        (3, 31, "b"),
    ]
    with (folder / "edges.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("client", "time_s", "edge"), *places])
