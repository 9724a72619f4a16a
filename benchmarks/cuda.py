"""Runs the tests and benchmarks that need a GPU, and writes what passed, what failed and every ratio to a file.

    python -m benchmarks.cuda [--output FILE] [--minutes M]

Every step runs even if an earlier one has failed. The exit status is 1 if any failed, was cut off or had no device.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

STEPS = {
    "tests": ["pytest", "-n", "0", "-v", "tests/learning/test_cuda.py"],
    "kernels": ["benchmarks.learning_kernels", "--device", "cuda"],
    "deferral": ["benchmarks.learning_deferral", "--device", "cuda"],
    "deferral, 1,000 in flight": [
        *("benchmarks.learning_deferral", "--device", "cuda"),
        *("--in-flight", "1000", "--updates", "3000"),
    ],
}
_PROBE = """
import torch
print("torch", torch.__version__, "CUDA", torch.version.cuda)
print(torch.cuda.get_device_name(), torch.cuda.get_device_capability())
"""


def run(command: list[str], report: TextIO, limit_s: float) -> str:
    """Run a command, and copy its output to the terminal and the report; returns how it ended."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    timer = threading.Timer(limit_s, process.kill)
    timer.start()
    for line in process.stdout:
        sys.stdout.write(line)
        report.write(line)
    code = process.wait()
    timer.cancel()
    seconds = time.monotonic() - began
    if seconds > limit_s:
        return f"cut off after {seconds:.0f} s"
    return f"{'passed' if code == 0 else f'FAILED (exit status {code})'} in {seconds:.0f} s"


def main() -> None:
    """Run all steps and print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("cuda-report.txt"))
    parser.add_argument("--minutes", type=float, default=9.5, help="time for all steps together")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    results: dict[str, str] = {}
    with options.output.open("w", encoding="utf-8") as report:
        results["device"] = run(["-c", _PROBE], report, 60)
        if results["device"].startswith("passed"):
            for name, command in STEPS.items():
                left_s = max(until - time.monotonic(), 1)
                results[name] = run(["-m", *command], report, left_s)
        summary = "\n".join(f"{name:26} {result}" for name, result in results.items())
        report.write(f"\n{summary}\n")
    print(f"\n{summary}\nwritten to {options.output}")
    sys.exit(not all(result.startswith("passed") for result in results.values()))


if __name__ == "__main__":
    main()
