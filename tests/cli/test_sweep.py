"""``fedsim sweep`` on the command line."""

import json
import sys
from pathlib import Path
from typing import Any

from fedsim.sweeps import Sweep
from tests.sweeps.worlds import SMALL, broken, command, scenario, write


def repaired(folder: Path) -> None:
    """The method of :func:`broken` works, and is imported anew."""
    broken(folder, "return super().aggregate(server, updates)")
    for module in [module for module in sys.modules if module.startswith("fedsim_user_broken")]:
        del sys.modules[module]


def test_what_is_complete_is_not_run_again_and_a_sweep_can_grow(tmp_path: Path) -> None:
    path = write(tmp_path / "s.yaml", SMALL)
    out = tmp_path / "sweep"
    first = json.loads(command("sweep", path, "-j", 1, "-o", out, "--json").stdout)
    assert (first["ran"], first["skipped"], first["failures"]) == (4, 0, {})
    written = {run: (Path(run) / "run.json").stat().st_mtime_ns for run in first["runs"]}
    args = ("sweep", path, "-j", 1, "-o", out, "-s", "sweep.seeds=[0, 1, 2]", "--json")
    second = json.loads(command(*args).stdout)
    assert (second["ran"], second["skipped"]) == (2, 4)
    assert {run: (Path(run) / "run.json").stat().st_mtime_ns for run in written} == written
    assert len(second["runs"]) == 6
    smaller = command(*args[:-3], "-s", "sweep.seeds=[0]")
    assert smaller.exit_code == 0, smaller.output
    left_out = ", ".join(f"lr{lr}_seed{seed}" for lr, seed in [(0.1, 1), (0.1, 2), (0.2, 1)])
    assert f"no longer contains them: {left_out} and 1 more\n" in smaller.stdout
    assert Sweep(out).index["run"].tolist() == ["lr0.1_seed0", "lr0.2_seed0"]


def test_a_failed_run_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    methods = [{"name": broken(tmp_path, "return 1 / 0")}, {"name": "fedavg"}]
    path = write(tmp_path / "s.yaml", scenario(grid={"server.method": methods}))
    out = tmp_path / "sweep"
    result = command("sweep", path, "-j", 1, "-o", out)
    # The part that failed is the user's own.
    assert result.exit_code == 2
    assert "ZeroDivisionError: division by zero" in result.stderr
    assert "1 run done, 1 failed" in result.stdout
    index = Sweep(out).index.set_index("run")
    assert index["status"].tolist() == ["failed", "complete"]
    name = index.index[0]
    assert index.loc[name, "error"].endswith("broken.py:7: ZeroDivisionError: division by zero")
    assert "1 / 0" in (out / "errors" / f"{name}.txt").read_text()
    # Once the reason is gone the run is tried again, and only that.
    repaired(tmp_path)
    again = json.loads(command("sweep", path, "-j", 1, "-o", out, "--json").stdout)
    assert (again["ran"], again["skipped"], again["failures"]) == (1, 1, {})


def test_an_error_that_runs_share_is_shown_once(tmp_path: Path) -> None:
    data = scenario(seeds=[0, 1, 2])
    data["server"]["method"] = {"name": broken(tmp_path, "return 1 / 0")}
    path, out = write(tmp_path / "s.yaml", data), tmp_path / "sweep"
    result = command("sweep", path, "-j", 1, "-o", out)
    assert result.exit_code == 2, result.output
    error = "ZeroDivisionError: division by zero"
    assert result.stderr.count(error) == 1
    lines = result.stderr.splitlines()
    assert f"failed: {out / 'seed0'}" in lines
    for seed in (1, 2):
        assert f"failed: {out / f'seed{seed}'}, with the same error as seed0" in lines
    assert Sweep(out).index["error"].str.contains("Zero").all()
    assert Sweep(out).index["status"].tolist() == ["failed"] * 3


def test_variants_that_cannot_run_are_found_before_the_first_run(tmp_path: Path) -> None:
    """Parts that do not fit, in one of two variants; a selection that needs what the devices lack, in one of two."""
    whole = {"name": "uniform", "cohort": 2}
    variants: list[tuple[str, list[Any], str, str]] = [
        ("server.schedule", ["sync", "compass"], "it takes no selection", "compass"),
        (
            "server.selection",
            [whole, {"name": "carbon_aware", "cohort": 2}],
            "carbon",
            "carbon_aware",
        ),
    ]
    for path, values, error, name in variants:
        data = scenario(seeds=[0, 1], grid={path: values})
        data["server"] = {"selection": whole}
        file, out = write(tmp_path / "s.yaml", data), tmp_path / "sweep"
        result = command("sweep", file, "-j", 1, "-o", out)
        assert result.exit_code == 2, result.output
        assert result.stderr.count("error: ") == 1
        assert error in result.stderr
        assert f"this is the variant {name}" in result.stderr
        assert not out.exists()


def test_the_comparison_of_an_interrupted_sweep_continues_it(tmp_path: Path) -> None:
    """Whatever the options of the first command were, and with the tables of the paper beside its scenario."""
    methods = [{"name": broken(tmp_path, "raise KeyboardInterrupt")}]
    path = write(tmp_path / "s.yaml", scenario(grid={"server.method": methods}))
    out = tmp_path / "sweep"
    options = ("-s", "sweep.seeds=[0, 1, 2, 3, 4]", "-j", 1, "-o", out)
    assert command("sweep", path, *options).exit_code == 130
    refused = command("compare", out)
    assert refused.exit_code == 2
    again = f"fedsim sweep {out / 'scenario.yaml'} -o {out}"
    assert refused.stderr.splitlines() == [
        f"error: {out}: there is no complete run to compare",
        f"  {out / 'Broken_seed0'} was interrupted; repeat the sweep with its options: {again}",
    ]
    repaired(tmp_path)
    finished = command(*again.split()[1:], "-j", 1)
    assert finished.exit_code == 0, finished.output
    assert "5 runs done" in finished.stdout
    assert Sweep(out).record["scenario"] == str(path)
