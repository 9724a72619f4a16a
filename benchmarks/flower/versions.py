"""Runs the tests of the Flower bridge with every supported version of Flower, each in a new environment.

Usage: python -m benchmarks.flower.versions [VERSION ...]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from fedsim.flower.internals import SUPPORTED

CHECKOUT = Path(__file__).resolve().parents[2]


def test(version: str) -> int:
    """Install a version, such as ``1.41``, and run the tests; their exit code."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        constraints = str(CHECKOUT / "constraints.txt")
        packages = ["-e", f"{CHECKOUT}[test]", f"flwr=={version}.*", "xgboost"]
        install = [python, "-m", "pip", "install", "-q", "-c", constraints, *packages]
        subprocess.run(install, check=True)
        return subprocess.run([python, "-m", "pytest", "tests/flower"], cwd=CHECKOUT).returncode


def main() -> None:
    """Print a line per version; exit with 1 if the tests fail with any."""
    codes = {version: test(version) for version in sys.argv[1:] or SUPPORTED}
    for version, code in codes.items():
        print(f"flwr {version}: {'failed' if code else 'passed'}")
    sys.exit(any(codes.values()))


if __name__ == "__main__":
    main()
