"""What commands may import: heavy libraries only where they are used."""

import subprocess
import sys
from pathlib import Path

import pytest

import fedsim

SCENARIOS = Path(__file__).parents[2] / "scenarios"
HEAVY = {"torch", "sklearn", "scipy", "scipy.stats", "networkx", "matplotlib", "pandas", "pyarrow", "ray"}  # fmt: skip


def imported_by(*arguments: str | Path, exit_code: int = 0) -> set[str]:
    """The heavy libraries that a new process has imported at the end of a command."""
    code = (
        "import sys\n"
        "from fedsim.cli import command_line\n"
        "try: sys.exit(command_line())\n"
        f"except SystemExit as end: assert end.code in {(None, exit_code)}, end.code\n"
        f"print('imported:', *[name for name in {sorted(HEAVY)} if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("imported:")[2].split())


@pytest.fixture(scope="module")
def timing_run(tmp_path_factory: pytest.TempPathFactory, with_reports: None) -> Path:
    """The folder of a short run without learning."""
    folder = tmp_path_factory.mktemp("imports") / "run"
    overrides = ["task.clients=100", "stop.simulated_time=1h", "server.selection.cohort=5"]
    fedsim.run(SCENARIOS / "timing_million.yaml", folder, overrides=overrides)
    return folder


def test_help_and_version_import_nothing_heavy() -> None:
    assert not imported_by("--help")
    assert not imported_by("run", "--help")
    assert not imported_by("--version")


def test_modules_of_traces_import_no_scipy() -> None:
    modules = ("statistics", "fitting", "combine", "inspection", "synthesis", "importers.table")
    code = f"import sys, {', '.join(f'fedsim.traces.{name}' for name in modules)}; "
    code += "assert 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_part_is_imported_without_the_other_families() -> None:
    code = (
        "import sys; from fedsim.parts.catalog import CATALOG; CATALOG.parts('method')['fedadam']; "
        "assert not {'fedsim.methods.control_variates', 'fedsim.methods.personal'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("model", ["logistic_regression", "mlp", "cnn"])
def test_a_check_of_layers_imports_no_torch_right_or_wrong(model: str) -> None:
    check = ("scenario", "check", SCENARIOS / "fedcompass.yaml", "-s", f"task.model={model}")
    assert "torch" not in imported_by(*check)
    cohort = "server={method: fedavg, selection: {name: uniform, cohort: 100}}"
    assert "torch" not in imported_by(*check, "-s", cohort, exit_code=2)


def test_a_run_without_learning_and_its_report_import_no_torch(
    timing_run: Path, tmp_path: Path
) -> None:
    assert imported_by("report", timing_run) <= {"pandas", "pyarrow"}
    run = ("run", timing_run / "scenario.yaml", "-o", tmp_path / "again")
    assert imported_by(*run) <= {"pandas", "pyarrow", "scipy"}


def test_every_module_is_imported_without_what_only_posix_has() -> None:
    code = """
import importlib, os, pkgutil, signal, sys
import pandas, sklearn, torch  # Other libraries have guards of their own.

for name in ("sysconf", "sched_getaffinity", "register_at_fork", "O_NOFOLLOW", "O_DIRECTORY"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "siginterrupt", "setitimer", "pthread_sigmask"):
    delattr(signal, name)
sys.modules |= dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios"))
import fedsim

failed = []
for module in pkgutil.walk_packages(fedsim.__path__, "fedsim."):
    try:
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in {"fedsim", "fcntl", "resource", "pwd", "grp", "termios"}:
            failed.append((module.name, repr(error)))
    except AttributeError as error:
        failed.append((module.name, repr(error)))
assert not failed, failed
from fedsim.learning.memory import host_budget
assert host_budget(7) == 7
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
