"""fedsim: the same work as a scenario, run as ``fedsim run`` runs it.

Its learning plane runs behind the time plane and trains all 200 contributions at the end, so that no moment in between
is the end of a round. The time of a round is therefore the difference between a run of all rounds and a run of one,
divided by the number of rounds between them; the lowest of three counts for each. Start-up is the first run of one
round, with all imports and data.
"""

from __future__ import annotations

import time
from importlib.metadata import version

import torch
from safetensors.torch import load_file
from work import BATCH, COHORT, CORES, RATE, Work, read_work, write_report

import fedsim

torch.set_num_threads(1)
MODELS = {
    "linear": {"name": "logistic_regression"},
    "mlp": {"name": "mlp", "hidden": [200, 200]},
    "cnn": {"name": "fedcompass_cnn"},
}


def scenario(work: Work, rounds: int) -> dict[str, object]:
    """The common work; devices and links have no influence on the training."""
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
            "compute": {"name": "lognormal", "median": "0.1s"},
            "network": {"down": "20Mbps", "up": "5Mbps"},
        },
        "server": {
            "method": {"name": "fedavg"},
            "selection": {"name": "uniform", "cohort": COHORT},
            "schedule": {"name": "sync"},
        },
        "stop": {"rounds": rounds},
        "evaluation": {"every": "1000d"},
    }


work = read_work()
spent: dict[int, list[tuple[float, float]]] = {1: [], work.rounds: []}
startup = (0.0, 0.0)
for rounds in (1, *(1, work.rounds) * 3):
    cpu_s, wall_s = time.process_time(), time.time()
    run = fedsim.run(scenario(work, rounds), work.folder / "run", overwrite=True)
    if not startup[0]:
        startup = (time.process_time(), time.time())
    else:
        spent[rounds].append((time.process_time() - cpu_s, time.time() - wall_s))


def a_round(clock: int) -> float:
    lowest = {rounds: min(each[clock] for each in runs) for rounds, runs in spent.items()}
    return (lowest[work.rounds] - lowest[1]) / (work.rounds - 1)


write_report(
    work.report,
    startup_cpu_s=startup[0],
    startup_ends_s=startup[1],
    round_cpu_s=a_round(0),
    round_wall_s=a_round(1),
    steps=int(run.dispatches["steps_done"].sum()),
    parameters=sum(tensor.numel() for tensor in load_file(run.path / "model.safetensors").values()),
    accuracy=float(run.metrics["accuracy"].iloc[-1]),
    versions={"fedsim": version("fedsim-des"), "torch": torch.__version__},
)
