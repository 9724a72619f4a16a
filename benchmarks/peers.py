"""The common work on fedsim and on other simulators of federated learning, side by side.

    python benchmarks/peers.py --folder DIR [--only NAME ...] [--models linear mlp cnn] [--repeats 3] [--cores 1]

100 clients with 200 synthetic images of 28 x 28 in 10 classes, 10 clients per round drawn at random, 20 rounds, one
local epoch of plain SGD (rate 0.1, batches of 20: 10 steps per client), federated averaging, evaluation only after
the last round. Models: ``linear`` 784-10; ``mlp`` 784-200-200-10 with ReLU; ``cnn`` conv 5x5 (32) - ReLU - pool 2 -
conv 5x5 (64) - ReLU - pool 2 - linear 512 - ReLU - linear 10, without padding.

Each peer gets a separate environment in the folder (created once, several gigabytes in total) and an adapter in
``benchmarks/peers``: a script that does the work through the peer's own interface, in the single-process mode that a
user who cares about speed would choose. If a peer leaves local training or the batches to its users, it gets the
fastest that torch offers. Runs take place one after the other, peer by peer within a repeat, and the lowest of the
repeats counts. The time of a round is the mean over rounds 2 to 20, in processor seconds of the process and its
children (other work on the machine hardly counts) and in wall-clock seconds. Everything up to the end of the first
round is start-up. A peer that cannot be installed or run is in the table with the reason.

With one core, processor seconds are compared. With more, every simulator uses them in its own way (threads for
clients, worker processes; torch's own threads if it has neither), and wall-clock seconds are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ADAPTERS = Path(__file__).resolve().parent / "peers"
CLIENTS, SAMPLES, TEST_SAMPLES, CLASSES, ROUNDS = 100, 200, 1000, 10, 20
TORCH = "torch==2.13.0"
TIMEOUT_S = 1800
MODELS = ("linear", "mlp", "cnn")
REFERENCES = ("fedsim", "bare_loop")


@dataclass(frozen=True)
class Peer:
    """A simulator and what pip installs for it.

    Attributes:
        name: name of its adapter.
        requirements: requirements for pip; without any, it runs in this interpreter.
        alone: a package that is installed after them without its requirements, even if it requires another Python.
    """

    name: str
    requirements: tuple[str, ...] = ()
    alone: str = ""


PEERS = (
    Peer("fedsim"),
    Peer("bare_loop"),
    Peer("fedjax", ("fedjax==0.0.17", "jax==0.10.2")),
    Peer("pfl", (TORCH, "pfl==0.6.0")),
    Peer("fedlab", (TORCH, "fedlab==1.3.0")),
    # It requires Python 3.12 (later versions 3.14), but works on 3.11.
    Peer("blazefl", (TORCH, "numpy", "tqdm"), alone="blazefl==2.0.3"),
    Peer("flgo", (TORCH, "flgo==0.4.4")),
    Peer("appfl", (TORCH, "appfl==1.12.0")),
    Peer("flower", (TORCH, "flwr[simulation]==1.41.0", "psutil")),
)


def write_data(path: Path) -> None:
    """Images of a class share a coarse picture, 7 x 7 squares of N(0, 0.15^2); every pixel has noise N(0, 1)."""
    rng = np.random.default_rng(0)
    pictures = 0.15 * np.kron(rng.standard_normal((CLASSES, 7, 7)), np.ones((4, 4)))
    train = CLIENTS * SAMPLES
    labels = rng.integers(CLASSES, size=train + TEST_SAMPLES)
    images = pictures[labels] + rng.standard_normal((len(labels), 28, 28))
    number = np.arange(len(labels))
    np.savez(
        path,
        x=images[:, None].astype(np.float32),
        y=labels,
        group=np.minimum(number // SAMPLES, CLIENTS - 1),
        is_test=number >= train,
    )


def interpreter(peer: Peer, folder: Path) -> Path:
    """The Python that has this peer, which is installed if necessary.

    Raises:
        subprocess.CalledProcessError: pip failed.
    """
    if not peer.requirements:
        return Path(sys.executable)
    home = folder / "environments" / peer.name
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    installed = home / "installed.txt"
    requested = f"{peer.requirements} {peer.alone}"
    if installed.exists() and installed.read_text(encoding="utf-8") == requested:
        return python
    print(f"installing {peer.name}", flush=True)
    venv.create(home, with_pip=True, clear=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    steps = [[*pip, *peer.requirements]]
    if TORCH in peer.requirements:
        # torch comes first and by itself, so that no later package installs another build of it.
        steps.insert(0, [*pip, TORCH])
    if peer.alone:
        steps.append([*pip, "--no-deps", "--ignore-requires-python", peer.alone])
    for step in steps:
        subprocess.run(step, check=True, capture_output=True, text=True)
    installed.write_text(requested, encoding="utf-8")
    return python


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def measure(
    peer: Peer, python: Path, model: str, data: Path, folder: Path, cores: int
) -> dict[str, Any]:
    """The report of the peer's adapter, or the reason why there is none."""
    own = Path(tempfile.mkdtemp(prefix=f"{peer.name}-", dir=folder / "runs"))
    report = own / "report.json"
    command = [python, ADAPTERS / f"run_{peer.name}.py", "--data", data, "--model", model]
    command += ["--rounds", ROUNDS, "--folder", own, "--report", report]
    environment = os.environ | {"OMP_NUM_THREADS": str(cores), "MKL_NUM_THREADS": str(cores)}
    begin_s = time.time()
    with (own / "output.txt").open("w+", encoding="utf-8") as output:
        try:
            subprocess.run(
                [str(part) for part in command],
                cwd=own,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"reason": f"took longer than {TIMEOUT_S} s"}
        output.seek(0)
        if not report.exists():
            return {"reason": last_line(output.read())}
    measured: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    measured["startup_wall_s"] = measured.pop("startup_ends_s") - begin_s
    return measured


def lowest(repeats: list[dict[str, Any]]) -> dict[str, Any]:
    """The lowest time of each kind; a peer that failed in any repeat has failed."""
    for each in repeats:
        if "reason" in each:
            return each
    times = [key for key in repeats[0] if key.endswith("_s")]
    return repeats[0] | {key: min(each[key] for each in repeats) for key in times}


def table(model: str, results: dict[str, dict[str, Any]], clock: str) -> str:
    """One row per simulator, fastest first by ``clock``, a time per round."""
    own_s = results.get("fedsim", {}).get(clock, float("nan"))
    lines = [
        f"| {model} | CPU ms per round | ms per round | x fedsim | start-up, CPU s "
        "| accuracy | steps | parameters | versions |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    ran = [name for name, result in results.items() if "reason" not in result]
    for name in sorted(ran, key=lambda name: results[name][clock]):
        one = results[name]
        versions = ", ".join(f"{package} {number}" for package, number in one["versions"].items())
        lines.append(
            f"| {name} | {1000 * one['round_cpu_s']:.1f} | {1000 * one['round_wall_s']:.1f} | "
            f"{one[clock] / own_s:.2f} | {one['startup_cpu_s']:.1f} | {one['accuracy']:.3f} | "
            f"{one['steps']} | {one['parameters']} | {versions} |"
        )
    lines += [
        f"| {name} | not run: {one['reason']} |" for name, one in results.items() if name not in ran
    ]
    return "\n".join(lines)


def verdict(model: str, results: dict[str, dict[str, Any]], clock: str) -> str:
    """Whether it was the same work, and how fedsim compares with the fastest peer by ``clock``."""
    ran = {name: one for name, one in results.items() if "reason" not in one}
    same = len({(one["steps"], one["parameters"]) for one in ran.values()}) == 1
    accuracies = [one["accuracy"] for one in ran.values()]
    text = f"{model}: same steps and parameters: {same}; accuracy {min(accuracies):.3f} to {max(accuracies):.3f}"
    others = {name: one[clock] for name, one in ran.items() if name not in REFERENCES}
    if "fedsim" in ran and others:
        fastest = min(others, key=lambda name: others[name])
        text += f"; fastest peer {fastest}: {others[fastest] / ran['fedsim'][clock]:.2f} x fedsim's time"
    return text


def main() -> None:
    names = [peer.name for peer in PEERS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, help="folder of the environments; a new temporary one by default"
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cores", type=int, default=1, help="cores that a simulator may use")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="fedsim-peers-"))).resolve()
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    data = folder / "common_work.npz"
    write_data(data)
    clock = "round_cpu_s" if options.cores == 1 else "round_wall_s"
    peers = [peer for peer in PEERS if peer.name in options.only]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    pythons: dict[str, Path] = {}
    for peer in peers:
        try:
            pythons[peer.name] = interpreter(peer, folder)
        except subprocess.CalledProcessError as error:
            reason = {"reason": f"pip: {last_line(error.stderr)}"}
            found |= {(model, peer.name): [reason] for model in options.models}
    for repeat in range(options.repeats):
        for model in options.models:
            for peer in peers:
                if peer.name not in pythons:
                    continue
                measured = measure(peer, pythons[peer.name], model, data, folder, options.cores)
                found.setdefault((model, peer.name), []).append(measured)
                outcome = measured.get("reason") or f"{1000 * measured[clock]:.1f} ms per round"
                print(f"{repeat + 1} {model} {peer.name}: {outcome}", flush=True)
    verdicts = []
    for model in options.models:
        results = {peer.name: lowest(found[model, peer.name]) for peer in peers}
        print(f"\n{table(model, results, clock)}")
        verdicts.append(verdict(model, results, clock))
    print("\n" + "\n".join(verdicts))


if __name__ == "__main__":
    main()
