"""Everything that needs a GPU, in the order of its value, for an opportunity of a few minutes.

    python -m benchmarks.cuda [--folder DIR] [--minutes M] [--only STEP ...]      run, and continue what was cut off
    python -m benchmarks.cuda --write [--folder DIR]                          put the tables into benchmarks/README.md

DIR is by default ``$OUT/cuda-report``. Each step has a limit of its own; what it prints goes to the terminal and to
DIR/<step>.txt as it comes, and rows of tables to DIR/rows.jsonl. Steps that passed are not repeated: the same command
again runs those that are missing. The exit status is 1 if a step failed, was cut off or did not begin. The checkout and
fedsim's requirements suffice for most steps; those that lack something are skipped and say what: ``tests`` needs
pytest, ``jax`` JAX, and ``paper``, ``fedlga`` and ``fedsum`` need MNIST, Fashion-MNIST and CIFAR-10 (``FEDSIM_DATA``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent / "README.md"
BEGIN, END = "<!-- gpu: begin -->", "<!-- gpu: end -->"
_PROBE = """
import torch
print("torch", torch.__version__, "CUDA", torch.version.cuda)
print(torch.cuda.get_device_name(), torch.cuda.get_device_capability())
"""
_GPU = ["-m", "benchmarks.gpu", "--json", "{folder}/rows.jsonl", "--seconds", "0.3"]
_SMALL, _LARGE = ["--model", "mlp", "cnn"], ["--model", "transformer", "resnet"]
_PAPER = "scenarios/papers/fedcompass/cnn_gpu.yaml"
_FEDLGA = "scenarios/papers/fedlga/drawn_work_full.yaml"
_FEDSUM = "scenarios/papers/fedsum/patterns_cifar_gpu.yaml"
_SWEEP = ["-m", "fedsim", "sweep", "-j", "12"]
_TORCH = ["--ways", "fedsim", "loop", "vmap"]
STEPS: dict[str, tuple[int, list[str]]] = {
    "device": (60, ["-c", _PROBE]),
    "tests": (
        120,
        ["-m", "pytest", "--noconftest", "-n", "0", "-v", "tests/learning/test_cuda.py"],
    ),
    "small": (90, [*_GPU, *_SMALL, "--ways", "fedsim", "loop", "vmap", "jax"]),
    "large": (120, [*_GPU, *_LARGE, *_TORCH]),
    "asynchronous": (60, [*_GPU, "--asynchronous", *_SMALL, "--precision", "tf32"]),
    "nccl": (
        60,
        [
            *(
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                "gpu",
                "-m",
                "fedsim",
            ),
            *("run", "scenarios/quickstart.yaml", "-s", "training.workers.name=distributed"),
            *("-o", "{folder}/nccl", "--overwrite"),
        ],
    ),
    "paper": (
        300,
        ["-m", "fedsim", "sweep", _PAPER, "-j", "12", "-o", "{folder}/fedcompass-cnn-gpu"],
    ),
    "fedlga": (
        300,
        [*_SWEEP, _FEDLGA, "-s", "task.partition.clients=100", "-o", "{folder}/fedlga"],
    ),
    "fedsum": (300, [*_SWEEP, _FEDSUM, "-o", "{folder}/fedsum"]),
    "compiled": (150, [*_GPU, "--ways", "fedsim", "compiled", "--clients", "50"]),
    "jax": (150, [*_GPU, *_LARGE, "--ways", "fedsim", "jax", "--clients", "50"]),
}
"""Seconds and command of each step. Steps of JAX and compilers come last, because they take minutes to compile."""

_DATA = ["-m", "fedsim", "data", "prepare"]
NEEDS = {
    "tests": ["-c", "import pytest, xdist, hypothesis"],
    "paper": [*_DATA, "mnist"],
    "fedlga": [*_DATA, "fashion_mnist"],
    "fedsum": [*_DATA, "cifar10"],
    "jax": ["-c", "import jax"],
}
"""A command that fails if a step lacks something; the last line that it prints says what."""


def lacking(name: str, limit_s: float) -> str:
    """What a step lacks on this machine; empty if it can run."""
    command = [sys.executable, *NEEDS.get(name, ["-c", ""])]
    try:
        probe = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"{' '.join(NEEDS[name])} takes more than {limit_s:.0f} s"
    lines = [line.strip() for line in (probe.stdout + probe.stderr).splitlines()]
    return next(filter(None, reversed(lines)), "?") if probe.returncode else ""


def run(name: str, folder: Path, limit_s: float) -> str:
    """Run a step, and copy its output to the terminal and its file; returns how it ended."""
    began = time.monotonic()
    if missing := lacking(name, limit_s):
        return f"skipped: {missing}"
    command = [
        part.format(folder=folder) if "{folder}" in part else part for part in STEPS[name][1]
    ]
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    timer = threading.Timer(limit_s - (time.monotonic() - began), process.terminate)
    timer.start()
    with (folder / f"{name}.txt").open("w", encoding="utf-8") as report:
        for line in process.stdout:
            sys.stdout.write(line)
            report.write(line)
            report.flush()
    code = process.wait()
    timer.cancel()
    seconds = time.monotonic() - began
    if seconds >= limit_s:
        return f"cut off after {seconds:.0f} s"
    return f"{'passed' if code == 0 else f'FAILED (exit status {code})'} in {seconds:.0f} s"


def tables(folder: Path) -> str:
    """The rows as Markdown; of rows with the same workload the last one that has a way counts."""
    rows: dict[tuple[str, int, str], dict[str, Any]] = {}
    throughput = []
    for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "steps_per_s" in row:
            throughput.append(row)
        elif "ms" in row:
            held = rows.setdefault((row["model"], row["clients"], row["precision"]), {})
            held.update(row | {"ms": held.get("ms", {}) | row["ms"]})
    ways = ("loop", "compiled", "vmap", "jax")
    lines = [
        "| model | clients | precision | fedsim, ms | "
        + " | ".join(ways)
        + " | busy | memory, GiB |",
        "|---|---:|---|---:|" + "---:|" * (len(ways) + 2),
    ]
    for (model, clients, precision), row in sorted(rows.items()):
        own_ms = row["ms"]["fedsim"]
        others = [f"{row['ms'][way] / own_ms:.2f}" if way in row["ms"] else "-" for way in ways]
        lines.append(
            f"| {model} | {clients} | {precision} | {own_ms:.1f} | {' | '.join(others)} | "
            f"{row['busy']:.0%} | {row['peak_gib']['fedsim']:.1f} |"
        )
    lines += [
        "",
        "| model | synchronous, steps per second | FedBuff | FedAsync |",
        "|---|---:|---:|---:|",
    ]
    for row in throughput:
        rates = row["steps_per_s"]
        shares = [f"{rates[name] / rates['synchronous']:.0%}" for name in ("fedbuff", "fedasync")]
        lines.append(f"| {row['model']} | {rates['synchronous']:,} | {' | '.join(shares)} |")
    device = (folder / "device.txt").read_text(encoding="utf-8").strip().replace("\n", ", ")
    return f"{device}, {time.strftime('%Y-%m-%d')}.\n\n" + "\n".join(lines)


def main() -> None:
    """Run all steps that have not passed, and print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(os.environ.get("OUT", ""), "cuda-report")
    parser.add_argument("--folder", type=Path, default=default)
    parser.add_argument("--minutes", type=float, default=8.0, help="time for all steps together")
    parser.add_argument("--only", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    folder: Path = options.folder
    if options.write:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        page = f"{before}{BEGIN}\n\n{tables(folder)}\n\n{END}{after}"
        PAGE.write_text(page, encoding="utf-8")
        return
    folder.mkdir(exist_ok=True)
    until = time.monotonic() + 60 * options.minutes
    summary = folder / "summary.json"
    results: dict[str, str] = json.loads(summary.read_text()) if summary.exists() else {}
    for name in [step for step in options.only if not results.get(step, "").startswith("passed")]:
        left_s = min(STEPS[name][0], until - time.monotonic())
        results[name] = run(name, folder, left_s) if left_s > 5 else "did not begin"
        summary.write_text(json.dumps(results, indent=1), encoding="utf-8")
        if name == "device" and not results[name].startswith("passed"):
            break
    print("\n" + "\n".join(f"{name:14} {results.get(name, 'did not begin')}" for name in STEPS))
    ended_well = ("passed", "skipped")
    sys.exit(not all(results.get(name, "").startswith(ended_well) for name in options.only))


if __name__ == "__main__":
    main()
