"""Kills runs, damages their files and takes away their disk space, and counts the results that are wrong.

``python -m benchmarks.chaos [--minutes M | --rounds N | --small] [--seed S]`` prints one row per kind of disturbance.
In 70 rounds, runs of all kinds are killed 210 times, and every file is damaged in every way.

- **kill**: kill -9 at a random moment, then ``resume`` (or ``run`` if the run had not begun), as often as necessary;
- **kill twice**: the resumed run is killed, too;
- **damage**: a bit of a file is flipped, its end is cut off, or it is deleted: in a complete run, a sweep and a bundle,
  which are then read, and in an interrupted run, which is then resumed;
- **two processes**: ``resume`` and ``run --overwrite`` during a run in progress;
- **no room**: a limit on the size of files (and a small file system, if one can be mounted) in the middle of a run.

Outcomes: *survived* (the result has the bits of the undisturbed run), *detected* (an error message for the user),
*wrong* (different bits, without a message), *traceback* (an internal error).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
OUTCOMES = ("survived", "detected", "wrong", "traceback")
PHONES = ROOT / "traces" / "phones_mostly_on_week"
DAMAGES_PER_ROUND = 4
UNCHECKED = ("report.html", "index.csv", ".lock", ".owner.json")
_FORK = multiprocessing.get_context("fork")


def scenarios(length: int = 60) -> dict[str, dict[str, Any]]:
    """Sixteen kinds of run with ``length`` rounds; 60 rounds take about a second."""
    digits: dict[str, Any] = {
        "task": {
            "dataset": {"name": "digits"},
            "partition": {"name": "dirichlet", "alpha": 0.5, "clients": 12},
            "model": {"name": "mlp", "hidden": [16]},
        },
        "training": {"local_steps": 5, "batch_size": 16, "threads": 1},
        "devices": {
            "compute": {"name": "lognormal", "median": "0.1s", "jitter": {"cv": 0.2}},
            "network": {"name": "static", "latency": "40ms", "down": "20Mbps", "up": "5Mbps"},
        },
        "server": {"selection": {"name": "uniform", "cohort": 4}},
        "stop": {"rounds": length},
        "evaluation": {"every_rounds": 10},
    }
    timing: dict[str, Any] = {
        **digits,
        "task": {"name": "timing", "clients": 300},
        "training": {"local_steps": 5},
        "stop": {"dispatches": 1000 * length},
    }

    def variant(base: dict[str, Any], **sections: Any) -> dict[str, Any]:
        return {**base, **{key: {**base.get(key, {}), **value} for key, value in sections.items()}}

    def server(base: dict[str, Any], **parts: Any) -> dict[str, Any]:
        return {**base, "server": parts}

    concurrent = {"concurrency": 4}
    return {
        "sync": digits,
        "deadline": variant(digits, server={"schedule": {"name": "sync", "deadline": "0.9s"}}),
        "async": server(digits, schedule={"name": "async", **concurrent}),
        "buffered": server(digits, schedule={"name": "buffered", "buffer_size": 3, **concurrent}),
        "tiered": server(digits, method={"name": "fedat"}, schedule={"name": "tiered"}),
        "compass": server(digits, method={"name": "fedcompass"}),
        "scaffold": server(digits, method={"name": "scaffold"}),
        "mifa": server(digits, method={"name": "mifa"}),
        "personal": server(digits, method={"name": "fedavg_p"}),
        "adaptive server": server(digits, method={"name": "fedadam"}),
        "oort": variant(digits, server={"selection": {"name": "oort", "cohort": 4}}),
        "phones": variant(digits, devices={"trace": str(PHONES)}, stop={"rounds": length // 2}),
        "failures": variant(digits, devices={"failures": {"crash_rate": 200, "upload_loss": 0.2}}),
        "edge servers": server(
            digits,
            method={"name": "mtgc"},
            edges={
                "count": 3,
                "rounds": 2,
                "method": {"name": "mtgc"},
                "network": {"name": "static", "latency": "40ms", "down": "1Gbps", "up": "1Gbps"},
            },
        ),
        "timing": timing,
        "timing async": server(timing, schedule={"name": "async", "concurrency": 50}),
    }


def content(run: Path) -> str:
    """A digest of a run's result: its tables and its model."""
    digest = hashlib.sha256()
    for name in ("dispatches", "aggregations", "metrics", "clients"):
        digest.update(str(pq.read_table(run / f"{name}.parquet").to_pydict()).encode())
    model = run / "model.safetensors"
    digest.update(model.read_bytes() if model.exists() else b"")
    return digest.hexdigest()


# -- in a separate process ------------------------------------------------------------------------------------------


def _call(function: Callable[..., None], arguments: tuple[Any, ...], errors: Path) -> None:
    """Call a function, and record how it ended: normally, with a user error, or with a traceback."""
    from fedsim.errors import UserError

    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        function(*arguments)
        note = "done"
    except UserError as error:
        note = f"detected: {error}"
    except KeyboardInterrupt:
        note = "interrupted"
    except BaseException as error:
        note = f"traceback: {type(error).__name__}: {error}"
    errors.write_text(note, encoding="utf-8")


def start(function: Callable[..., None], *arguments: Any, errors: Path) -> Any:
    """Call a function in a process forked from this one, which has everything imported."""
    errors.unlink(missing_ok=True)
    process = _FORK.Process(target=_call, args=(function, arguments, errors))
    process.start()
    return process


def call(function: Callable[..., None], *arguments: Any, errors: Path) -> str:
    """How a function ended in a separate process."""
    process = start(function, *arguments, errors=errors)
    process.join()
    return errors.read_text(encoding="utf-8") if errors.exists() else "killed"


def _often_checkpointing() -> None:
    """Let the learner rest after every few updates, and write a checkpoint at every rest."""
    import fedsim.composition.run as execution
    import fedsim.learning.learner as learner

    execution.CHECKPOINT_INTERVAL_S = 0.0
    learner._CPU_PENDING = 8


def run(scenario: dict[str, Any], path: Path, overwrite: bool = False) -> None:
    """Run a scenario with a checkpoint at every opportunity."""
    import fedsim

    _often_checkpointing()
    fedsim.run(scenario, path, overwrite=overwrite)


def resume(path: Path) -> None:
    """Resume a run with a checkpoint at every opportunity."""
    import fedsim

    _often_checkpointing()
    fedsim.resume(path)


def sweep(scenario: dict[str, Any], path: Path) -> None:
    """Run a sweep."""
    import fedsim

    fedsim.sweep(scenario, path, jobs=1)


def interrupt(scenario: dict[str, Any], path: Path, share: float) -> None:
    """Run a scenario up to a share of its limit."""
    import fedsim

    _often_checkpointing()

    def on_progress(progress: Any) -> None:
        if progress.share >= share:
            raise KeyboardInterrupt

    fedsim.run(scenario, path, on_progress=on_progress)


def read_run(path: Path) -> None:
    """Read every table, the scenario and the model of a run."""
    import fedsim

    opened = fedsim.load(path)
    _ = opened.dispatches, opened.aggregations, opened.metrics, opened.scenario
    if opened.status != "complete":
        return
    _ = opened.clients, opened.online, opened.partition, opened.presence
    _ = opened.pauses, opened.critical
    if opened.has_edges:
        _ = opened.edge_dispatches, opened.edge_aggregations, opened.edges
    if not opened.info.get("timing_only"):
        opened.model()


def verify(path: Path) -> None:
    """Compare every file of a run with its checksum."""
    from fedsim.errors import raise_all
    from fedsim.runs.verification import verify_folder

    raise_all(verify_folder(path).problems)


def read_sweep(path: Path) -> None:
    """Read the list and the index of a sweep, and compare its runs."""
    import fedsim
    from fedsim.runs.records import SWEEP
    from fedsim.sweeps import Sweep

    sweep = Sweep(path)
    _ = sweep.index
    for opened in sweep.runs:
        read_run(opened.path)
    fedsim.compare(path)
    # Only people read its scenario.yaml.
    SWEEP.require_intact(path, sweep.record, "scenario.yaml")


def write_bundle(path: Path) -> None:
    """Write a trace bundle as this version does; the bundled ones are from 0.1 and have no checksum of the manifest."""
    from fedsim.traces.bundle import TraceBundle

    TraceBundle.read(PHONES).write(path)


def read_bundle(path: Path) -> None:
    """Read a trace bundle."""
    from fedsim.traces.bundle import TraceBundle
    from fedsim.traces.validation import require_sound

    require_sound(TraceBundle.read(path))


# -- disturbances -----------------------------------------------------------------------------------------------------


class Chaos:
    """Counts the outcomes of disturbances.

    Args:
        folder: folder of the runs; emptied between disturbances.
        seed: seed of all choices.
        length: rounds per run.
    """

    def __init__(self, folder: Path, seed: int, length: int = 60) -> None:
        self.folder = folder
        self.scenarios = scenarios(length)
        self.errors = folder / "error.txt"
        self.random = random.Random(seed)
        self.counts: dict[str, Counter[str]] = {}
        self.notes: list[str] = []
        self.expected: dict[str, tuple[str, float]] = {}
        self.begun: Counter[bool] = Counter()
        """Runs that were resumed, by whether there was a checkpoint."""

    def count(self, row: str, outcome: str, note: str = "") -> None:
        """Add one outcome to a row of the table."""
        self.counts.setdefault(row, Counter())[outcome] += 1
        if outcome in ("wrong", "traceback"):
            self.notes.append(f"{row}: {outcome}: {note}")

    def undisturbed(self, name: str) -> tuple[str, float]:
        """The digest of the result of a kind of run, and the seconds that it takes."""
        if name not in self.expected:
            path = self.fresh("undisturbed")
            began = time.perf_counter()
            ended = call(run, self.scenarios[name], path, errors=self.errors)
            assert ended == "done", (name, ended)
            self.expected[name] = content(path), time.perf_counter() - began
        return self.expected[name]

    def fresh(self, name: str) -> Path:
        """A path that does not exist."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def kill(self, name: str, kills: int = 1) -> None:
        """Kill a run (and the runs that resume it) at random moments, then let it finish."""
        expected, seconds = self.undisturbed(name)
        path = self.fresh("killed")
        action: tuple[Any, ...] = (run, self.scenarios[name], path)
        for _ in range(kills):
            process = start(*action, errors=self.errors)
            time.sleep(self.random.uniform(0.0, seconds))
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            action = self._next(name, path)
        row = "kill" if kills == 1 else "kill twice"
        ended = call(*action, errors=self.errors)
        if ended != "done":
            self.count(row, "traceback" if "traceback" in ended else "wrong", f"{name}: {ended}")
        else:
            outcome = "survived" if content(path) == expected else "wrong"
            self.count(row, outcome, f"{name}: other bits")

    def _next(self, name: str, path: Path) -> tuple[Any, ...]:
        from fedsim.runs import RunFolder

        if RunFolder(path).has_begun:
            self.begun[any(path.glob("checkpoint/[0-9]*"))] += 1
            return resume, path
        return run, self.scenarios[name], path

    def damage(self, damage: Damage, expected: str) -> None:
        """Damage one file of a folder, and read the folder, or resume the run in it.

        Args:
            damage: the damage, and the file.
            expected: the digest of the result if the run in the folder is resumed.
        """
        path = self.fresh("damaged")
        shutil.copytree(damage.folder, path, symlinks=True)
        target = path / damage.file
        before = target.read_bytes()
        if damage.way == "delete":
            target.unlink()
        elif damage.way == "truncate" or not before:
            target.write_bytes(before[: self.random.randrange(max(1, len(before)))])
        else:
            changed = bytearray(before)
            changed[self.random.randrange(len(changed))] ^= 1 << self.random.randrange(8)
            target.write_bytes(changed)
        ended = call(damage.act, path, errors=self.errors)
        row = f"damage, {damage.folder.name}"
        note = f"{damage.file} ({damage.way}): {ended}"
        if ended.startswith("detected"):
            self.count(row, "detected", note)
        elif ended != "done":
            self.count(row, "traceback", note)
        elif damage.act is resume and content(path) == expected:
            self.count(row, "survived", note)
        else:
            self.count(row, "wrong", note)

    def two_processes(self, name: str) -> None:
        """Start a second process in the folder of a run in progress."""
        expected, seconds = self.undisturbed(name)
        path = self.fresh("shared")
        first = start(run, self.scenarios[name], path, errors=self.folder / "first.txt")
        time.sleep(self.random.uniform(0.2, 0.6) * seconds)
        second: tuple[Any, ...] = (resume, path)
        if self.random.random() < 0.5:
            second = (run, self.scenarios[name], path, True)
        ended = call(*second, errors=self.errors)
        first.join()
        if ended.startswith("traceback"):
            self.count("two processes", "traceback", f"{name}: {ended}")
        else:
            outcome = "survived" if content(path) == expected else "wrong"
            self.count("two processes", outcome, f"{name}: {ended}")

    def no_room(self, name: str) -> None:
        """Run under a limit on the size of files, then resume without it."""
        expected, _ = self.undisturbed(name)
        path = self.fresh("full")
        limit = self.random.choice((2_000, 8_000, 20_000, 60_000))

        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            run(self.scenarios[name], path)

        ended = call(limited, errors=self.errors)
        if ended.startswith("traceback"):
            self.count("no room", "traceback", f"{name}, {limit} B: {ended}")
            return
        if ended != "done":
            ended = call(*self._next(name, path), errors=self.errors)
        outcome = "survived" if ended == "done" and content(path) == expected else "wrong"
        self.count("no room", outcome, f"{name}, {limit} B: {ended}")

    def small_file_system(self, name: str) -> None:
        """Run on a file system of 300 kB, then make room and resume; counts nothing if none can be mounted."""
        expected, _ = self.undisturbed(name)
        mount = self.fresh("mount")
        mount.mkdir()
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(mount)], capture_output=True
        ).returncode:
            return
        try:
            ballast = mount / "ballast"
            ballast.write_bytes(bytes(self.random.randrange(100_000, 280_000)))
            ended = call(run, self.scenarios[name], mount / "run", errors=self.errors)
            if ended.startswith("traceback"):
                self.count("small file system", "traceback", f"{name}: {ended}")
                return
            ballast.unlink()
            subprocess.run(["mount", "-o", "remount,size=20m", str(mount)], check=True)
            if ended != "done":
                ended = call(*self._next(name, mount / "run"), errors=self.errors)
            good = ended == "done" and content(mount / "run") == expected
            self.count("small file system", "survived" if good else "wrong", f"{name}: {ended}")
        finally:
            subprocess.run(["umount", "-l", str(mount)], check=True)

    def table(self) -> str:
        """The counts, one row per disturbance."""
        lines = [f"| {'disturbance':<24} | {' | '.join(OUTCOMES)} |", "|---|" + "---:|" * 4]
        for row, counts in self.counts.items():
            cells = " | ".join(f"{counts[outcome]:>8}" for outcome in OUTCOMES)
            lines.append(f"| {row:<24} | {cells} |")
        resumed = (
            f"{self.begun.total()} runs were resumed, {self.begun[True]} of them from a checkpoint."
        )
        return "\n".join([*lines, resumed])


@dataclass(frozen=True)
class Damage:
    """The damage to a file, and the command that reads its folder.

    Attributes:
        folder: the undamaged folder.
        file: the file, relative to the folder.
        way: flip (a bit), truncate (at a random place) or delete.
        act: what reads the folder.
    """

    folder: Path
    file: Path
    way: str
    act: Callable[[Path], None]


def damages(chaos: Chaos) -> list[Damage]:
    """Every way to damage every file of a complete run, an interrupted run, a sweep and a bundle, in random order."""
    sync = chaos.scenarios["sync"]
    paths = {name: chaos.fresh(name) for name in ("complete run", "interrupted run", "sweep")}
    short, swept = {**sync, "stop": {"rounds": 6}}, {**sync, "stop": {"rounds": 3}}
    short["checkpoint_models"] = {"every": "3 versions"}
    errors = chaos.errors
    # Never in this process: threads that torch has started would not survive a fork.
    assert call(run, short, paths["complete run"], errors=errors) == "done"
    assert call(interrupt, sync, paths["interrupted run"], 0.6, errors=errors) == "interrupted"
    assert len(list(paths["interrupted run"].glob("checkpoint/[0-9]*"))) == 2
    swept["sweep"] = {"seeds": [0, 1]}
    assert call(sweep, swept, paths["sweep"], errors=errors) == "done"
    paths["bundle"] = chaos.fresh("bundle")
    assert call(write_bundle, paths["bundle"], errors=errors) == "done"
    acts = {
        "complete run": read_run,
        "interrupted run": resume,
        "sweep": read_sweep,
        "bundle": read_bundle,
    }

    def read_by(name: str, file: Path) -> list[Callable[[Path], None]]:
        if file.parent.name == "models":
            return [verify]  # Only users read them.
        # The tables of an interrupted run can be read as they are, and resume writes them again.
        return [acts[name], *([read_run] if file.suffix == ".arrows" else [])]

    damages = [
        Damage(folder, file, way, act)
        for name, folder in paths.items()
        for file in files(folder)
        for way in ("flip", "truncate", "delete")
        for act in read_by(name, file)
        if (file.name, way) != ("facts.json", "delete")  # It is measured again.
    ]
    chaos.random.shuffle(damages)
    return damages


def files(folder: Path) -> list[Path]:
    """The files of a folder that have a checksum, relative to it."""
    return sorted(
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and path.name not in UNCHECKED
    )


def main() -> int:
    """Disturb runs until the time is up; the exit code is 1 if any outcome was wrong or a traceback."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=5.0)
    length.add_argument("--rounds", type=int, help="number of times of each disturbance")
    length.add_argument("--small", action="store_true", help="the selection that the tests contain")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chaos = Chaos(Path(folder), options.seed, 10 if options.small else 60)
        ends = time.monotonic() + 60 * options.minutes
        with contextlib.suppress(KeyboardInterrupt):
            for done in disturb_little(chaos) if options.small else disturb(chaos):
                if done == options.rounds or (options.rounds is None and time.monotonic() >= ends):
                    break
        print(chaos.table())
        for note in chaos.notes:
            print(note)
        return 1 if chaos.notes else 0


def disturb_little(chaos: Chaos) -> Iterator[int]:
    """Three runs killed, one file of each kind of folder damaged, and two processes in one folder."""
    _import_once()
    for name in ("sync", "timing"):
        chaos.kill(name)
    chaos.kill("sync", 2)
    of_folder = {damage.folder.name: damage for damage in damages(chaos)}
    expected, _ = chaos.undisturbed("sync")
    for damage in of_folder.values():
        chaos.damage(damage, expected)
    chaos.two_processes("sync")
    yield 1


def _import_once() -> None:
    """Import everything that the forked processes need; parts are otherwise imported on first use."""
    import torch  # noqa: F401

    import fedsim.analysis.report
    import fedsim.composition.run
    import fedsim.learning.learner
    import fedsim.parts.catalog
    import fedsim.sweeps  # noqa: F401


def disturb(chaos: Chaos) -> Iterator[int]:
    """Apply each disturbance once per round, in each round to another kind of run; yields the number of rounds."""
    _import_once()
    names = list(chaos.scenarios)
    chaos.random.shuffle(names)
    to_do = itertools.cycle(damages(chaos))
    expected, _ = chaos.undisturbed("sync")
    for done in itertools.count(1):
        name = names[done % len(names)]
        chaos.kill(name)
        chaos.kill(name, 2)
        for damage in itertools.islice(to_do, DAMAGES_PER_ROUND):
            chaos.damage(damage, expected)
        chaos.two_processes(name)
        chaos.no_room(name)
        chaos.small_file_system(name)
        yield done


if __name__ == "__main__":
    sys.exit(main())
