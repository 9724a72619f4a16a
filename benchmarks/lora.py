"""Full fine-tuning, LoRA, FFA-LoRA and unequal ranks on the phones of the template ``lora``, to an accuracy.

    python -m benchmarks.lora FOLDER [--rounds 20] [--target 0.36]

Writes the template into FOLDER, trains its base model, runs each variant unless its run is there, and prints the
table of README.md here. It needs the extra ``transformers``; a variant takes some minutes on one core.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fedsim
from benchmarks.tables import markdown
from fedsim.vocabulary.formatting import format_bytes

TEMPLATE = Path(fedsim.__file__).parent / "bundled" / "templates" / "lora"
RANKS = "server.submodels={name: ranks, rates: [1, 0.5, 0.25], by: speed}"
VARIANTS = {
    "FFA-LoRA": ("server.method=ffa_lora",),
    "FlexLoRA, ranks 8, 4, 2": ("server.method=flexlora", RANKS),
    "LoRA": (),
    "HetLoRA, ranks 8, 4, 2": ("server.method=hetlora", RANKS),
    "full": ("task.model.name=my_model.py:full", "training.optimizer.lr=0.0015"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--target", type=float, default=0.36)
    arguments = parser.parse_args()
    if not arguments.folder.exists():
        shutil.copytree(TEMPLATE, arguments.folder)
    os.chdir(arguments.folder)
    if not Path("base.safetensors").exists():
        subprocess.run([sys.executable, "pretrain.py"], check=True)
    rows = []
    for name, overrides in VARIANTS.items():
        folder = Path("runs") / f"{name.replace(', ', '-').replace(' ', '-')}-{arguments.rounds}"
        if (folder / "report.html").exists():
            run = fedsim.load(folder)
        else:
            stop = (f"stop.rounds={arguments.rounds}", "evaluation.every_rounds=3")
            run = fedsim.run("scenario.yaml", folder, overrides=[*stop, *overrides], overwrite=True)
        rows.append(_row(name, run, arguments.target))
        print(rows[-1], flush=True)
    header = [
        "",
        "accuracy: best, last",
        "rounds",
        "simulated time",
        "bytes, down and up",
        "local steps",
    ]
    print(markdown(header, rows))


def _row(name: str, run: fedsim.Run, target: float) -> list[str]:
    """Accuracies, and what it took until the first evaluation that reached the target."""
    accuracy = run.metrics["accuracy"]
    best = f"{accuracy.max():.1%}, {accuracy.iloc[-1]:.1%}"
    reached = run.metrics[accuracy >= target]
    if reached.empty:
        return [name, best, "not reached", "", "", ""]
    at = reached.iloc[0]
    table = run.dispatches
    until = table[table["dispatched_s"] <= at["time_s"]]
    moved = float(until["bytes_down"].sum() + until["bytes_up"].sum())
    return [
        name,
        best,
        str(int(at["round"])),
        f"{at['time_s']:.0f} s",
        format_bytes(moved),
        f"{(until['compute_s']).sum() / 60:.0f} min",
    ]


if __name__ == "__main__":
    main()
