"""What the bridge takes from Flower exists, and is taken in one module."""

import os
import re
from pathlib import Path

from fedsim.flower import internals


def test_the_installed_version_is_supported() -> None:
    assert internals.VERSION.rpartition(".")[0] in internals.SUPPORTED


def test_telemetry_is_off() -> None:
    from flwr.supercore import telemetry

    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
    assert telemetry.FLWR_TELEMETRY_ENABLED == "0"


def test_one_module_imports_flower(checkout: Path) -> None:
    package = checkout / "fedsim"
    importing = [
        path.relative_to(package).as_posix()
        for path in package.glob("**/*.py")
        if re.search(r"^\s*(from|import) flwr", path.read_text(), re.M)
        and "templates" not in path.parts
    ]
    assert importing == ["flower/internals.py"]
