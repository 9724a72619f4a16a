"""What the bridge takes from Flower exists, and is taken in one module."""

from __future__ import annotations

import importlib
import os
import re
from functools import reduce
from pathlib import Path

import pytest

from fedsim.flower import internals


@pytest.mark.parametrize("module", internals.INTERNAL)
def test_internal_names_of_flower_exist(module: str) -> None:
    for name in internals.INTERNAL[module]:
        assert reduce(getattr, name.split("."), importlib.import_module(module)) is not None


def test_the_installed_version_is_supported() -> None:
    assert internals.VERSION.rpartition(".")[0] in internals.SUPPORTED


def test_telemetry_is_off() -> None:
    from flwr.supercore import telemetry

    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
    assert telemetry.FLWR_TELEMETRY_ENABLED == "0"


def test_one_module_imports_flower_and_lists_what_is_internal(checkout: Path) -> None:
    package = checkout / "fedsim"
    importing = {
        path.relative_to(package).as_posix(): re.findall(r"^\s+from (flwr\S*) import", text, re.M)
        for path in package.glob("**/*.py")
        if re.search(r"^\s*(from|import) flwr", text := path.read_text(), re.M)
        and "templates" not in path.parts
    }
    assert list(importing) == ["flower/internals.py"]
    public = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}
    internal = {
        name if name in internals.INTERNAL else f"{name}.*"
        for name in importing["flower/internals.py"]
        if name not in public
    }
    # Modules that are imported whole are listed by what is used of them.
    assert internal - set(internals.INTERNAL) == {"flwr.app.message.*", "flwr.server.*"}
