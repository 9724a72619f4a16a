"""fedsim: the common work as a scenario, run as ``fedsim run`` runs it, with everything that a user's run does.

Clients are phones of a trace, which come and go, compute at different speeds and have different links. A phone that
leaves goes on with its work when it is back, so that all updates arrive, as with the other simulators. An hour between
rounds brings other phones. Log, tables, checks and report are part of the run.
"""

from __future__ import annotations

import json

import pyarrow.compute as pc
import pyarrow.parquet as pq
from safetensors.numpy import load_file
from work import BATCH, COHORT, CORES, RATE, Work, read_work

from fedsim.cli import cli

MODELS = {
    "linear": {"name": "logistic_regression"},
    "mlp": {"name": "mlp", "hidden": [200, 200]},
    "cnn": {"name": "fedcompass_cnn"},
}
SERVERS = {
    "fedavg": {
        "method": {"name": "fedavg"},
        "schedule": {"name": "sync", "pause": "1h", "min_cohort": COHORT},
    },
    "fedbuff": {
        "method": {"name": "fedbuff"},
        "schedule": {"name": "buffered", "buffer_size": COHORT, "concurrency": COHORT},
    },
    "fedasync": {
        "method": {"name": "fedasync"},
        "schedule": {"name": "async", "concurrency": COHORT},
    },
}


def scenario(work: Work) -> dict[str, object]:
    """The common work on bundled phones."""
    updates = work.rounds * COHORT
    return {
        "name": "common-work",
        "task": {
            "dataset": {"name": "npz", "path": str(work.data)},
            "partition": {"name": "natural"},
            "model": MODELS[work.model],
        },
        "training": {
            "optimizer": {"name": "sgd", "lr": RATE},
            "batch_size": BATCH,
            "local_epochs": 1,
            "device": "cpu",
            "threads": CORES,
        },
        "devices": {
            "trace": "builtin:phones_week",
            "availability": {"name": "trace", "on_disconnect": "pause"},
            "compute": {"reference_step": "1min", "jitter": {"cv": 0.1}},
            "network": {"name": "static", "latency": "40ms"},
        },
        "server": SERVERS[work.method] | {"selection": {"name": "uniform", "cohort": COHORT}},
        "stop": {"rounds": updates if work.method == "fedasync" else work.rounds},
        "evaluation": {"every": "10000d"},
    }


work = read_work()
path, run = work.folder / "scenario.yaml", work.folder / "run"
path.write_text(json.dumps(scenario(work)), encoding="utf-8")  # JSON is YAML
try:
    cli.main(["run", str(path), "-o", str(run)], prog_name="fedsim")
except SystemExit as ended:
    if ended.code:
        raise
model = load_file(run / "model.safetensors")
dispatches = pq.read_table(run / "dispatches.parquet", columns=["outcome", "steps_done"])
work.hand_in(
    # Only what the server uses is trained.
    steps=pc.sum(dispatches.filter(pc.field("outcome") == "aggregated")["steps_done"]).as_py(),
    parameters=sum(array.size for array in model.values()),
    accuracy=pq.read_table(run / "metrics.parquet")["accuracy"][-1].as_py(),
    packages=["fedsim-des", "torch"],
)
