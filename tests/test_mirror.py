"""Tests mirror the tree: the test of ``fedsim/network/fair.py`` is ``tests/network/test_fair.py``."""

from pathlib import Path

import pytest

import fedsim

PRODUCT, TESTS = Path(fedsim.__file__).parent, Path(__file__).parent

TOGETHER = {
    "devices/availability": "a few lines per model",
    "devices/compute": "a few lines per model",
    "learning/compression": "the same properties of all",
    "learning/metrics": "a few lines per metric",
    "learning/optimizers": "the same oracle, torch, for each",
    "methods": "one harness runs all, and papers' algorithms are compared side by side",
    "learning/submodels": "the same rounds, by brute force, of all",
    "learning/kernels": "the same oracles of all",
    "learning/rates": "a few lines per schedule of the learning rate",
    "scheduling/schedules": "versions by hand in one table",
    "scheduling/selections": "the same worlds, and rounds by hand in one table",
    "tasks/datasets": "a few lines per generated data set",
    "tasks/partitions": "a few lines per partition; the same properties of all",
    "tasks/models": "a few lines per model; the same checks of all",
    "network/kinds": "a few lines per kind",
    "traces/importers": "a few lines per format",
    "tasks/modules": "a few lines per module",
    "tasks/reading": "read by the same data sets",
}
"""Packages whose parts share the file named after the package, and why."""

ELSEWHERE = {
    "composition/devices.py": ("devices/test_population.py", "which device a client has"),
    "composition/planes.py": ("composition/test_world.py", "each is built once"),
    "composition/submodels.py": ("learning/submodels/test_submodels.py", "which part a client has"),
    "tasks/losses.py": ("tasks/models/test_models.py", "losses of the models"),
    "tasks/model.py": ("tasks/models/test_models.py", "what all models share"),
    "tasks/partition.py": ("tasks/partitions/test_partitions.py", "what all partitions share"),
    "tasks/exits.py": ("learning/submodels/test_submodels.py", "exits by brute force"),
    "learning/kernels/nested.py": ("learning/submodels/test_submodels.py", "rounds by brute force"),
    "cli/what_if.py": ("composition/test_what_if.py", "the command only calls it"),
    "cli/calibrate.py": ("calibration/test_calibrating.py", "the command only calls it"),
    "devices/__init__.py": ("devices/compute/test_compute.py", "a record of inputs"),
    "flower/__init__.py": ("flower/test_running.py", "imports"),
    "scheduling/port.py": ("scheduling/schedules/test_schedules.py", "interfaces"),
    "simulation/simulation.py": ("simulation/test_story.py", "every test there runs one"),
    "parts/extras.py": ("tasks/datasets/test_torchvision.py", "imports an optional package"),
    "traces/parameters.py": ("composition/test_needs.py", "declarations"),
}
"""Modules whose test has another name: it, and why."""

FEW_LINES = 14
"""Files with at most this many lines import, or run, what other files define."""


def modules() -> list[str]:
    """The files of the product that have more than a few lines, without the templates of users' projects."""
    return [
        str(path.relative_to(PRODUCT))
        for path in sorted(PRODUCT.rglob("*.py"))
        if "templates" not in path.parts and len(path.read_text().splitlines()) > FEW_LINES
    ]


def mirrored(module: str) -> str:
    """The test that the path of a module names."""
    path = Path(module)
    stem = path.parent.name if path.stem == "__init__" else path.stem.lstrip("_")
    return str(path.parent / f"test_{stem or 'fedsim'}.py")


@pytest.mark.parametrize("module", modules())
def test_every_module_has_its_test(module: str) -> None:
    own_test = TESTS / mirrored(module)
    package = str(Path(module).parent)
    if module in ELSEWHERE:
        assert not own_test.exists(), "no longer an exception"
        assert (TESTS / ELSEWHERE[module][0]).is_file()
    elif not own_test.exists():
        assert package in TOGETHER, f"write tests/{mirrored(module)}"
        assert (TESTS / package / f"test_{Path(package).name}.py").is_file()


def test_exceptions_name_modules_and_packages() -> None:
    assert set(ELSEWHERE) <= set(modules())
    assert all((PRODUCT / package).is_dir() for package in TOGETHER)
