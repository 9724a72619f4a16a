"""The common work on fedsim and on other simulators of federated learning, side by side.

    python benchmarks/peers.py --folder DIR                       measure, then print the tables
    python benchmarks/peers.py --folder DIR --write               ... and put them into benchmarks/README.md
    python benchmarks/peers.py --folder DIR --seconds 80          measure for so long; the same command goes on

100 clients with 200 synthetic images of 28 x 28 in 10 classes; a round is 10 updates, each one local epoch of plain SGD
(rate 0.1, batches of 20: 10 steps). ``fedavg``: 10 clients drawn at random per round, equal weights. ``fedbuff`` and
``fedasync``: 10 clients always at work, a version per 10 updates or per update. Models: ``linear`` 784-10; ``mlp``
784-200-200-10 with ReLU; ``cnn`` conv 5x5 (32) - ReLU - pool 2 - conv 5x5 (64) - ReLU - pool 2 - linear 512 - ReLU -
linear 10, without padding.

Each peer gets its own environment in the folder (made once, some gigabytes in all) and an adapter in
``benchmarks/adapters``: a script that does the work through the peer's own interface, in the form in which it is
fastest among those that its documentation shows. If a peer leaves local training or the batches to its users, they are
the fastest that torch offers, the same for all; convolutions get channels-last images. fedsim runs as ``fedsim run``
does, on phones of a bundled trace.

Every measurement is a whole process, from its start to its end, with all of its children, pinned to ``--cpus``. A
repeat is one process of one round and one of all rounds, and repeats go around all simulators, so that a change of
the machine's speed meets all. A figure's two statistics are the lowest and the median of the repeats: a round's time
is that of the run of all rounds less that of the run of one round, over the rounds between; start-up is the run of one
round less a round. With one CPU, processor seconds are compared; with more, seconds of the clock, and each simulator
may use the CPUs in the way it has for that. A peer that cannot be installed or run is in the table with the reason.

Every repeat is a file in DIR/results. Those that exist are not measured again; delete what is to be repeated.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ADAPTERS = Path(__file__).resolve().parent / "adapters"
PAGE = ADAPTERS.parent / "README.md"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
CLIENTS, SAMPLES, TEST_SAMPLES, CLASSES = 100, 200, 1000, 10
TORCH = "torch==2.13.0"
TIMEOUT_S, ORPHANS_S = 1800.0, 30.0
REPEATS = 5
ALONE = 0.9  # share of the CPU that a process has if nothing else runs; it also waits for files
REFERENCES = ("fedsim", "bare_loop")
PR_SET_CHILD_SUBREAPER = 36

ROUNDS: dict[Work, int] = {
    ("fedavg", "linear"): 201,
    ("fedavg", "mlp"): 101,
    ("fedavg", "cnn"): 21,
    ("fedbuff", "linear"): 201,
    ("fedbuff", "mlp"): 101,
    ("fedasync", "linear"): 201,
    ("fedasync", "mlp"): 101,
}
"""Rounds of the longer run, by method and model."""

TITLES: dict[Work, str] = {
    ("fedavg", "linear"): "FedAvg, linear 784-10",
    ("fedavg", "mlp"): "FedAvg, MLP 784-200-200-10",
    ("fedavg", "cnn"): "FedAvg, CNN",
    ("fedbuff", "linear"): "FedBuff, linear",
    ("fedbuff", "mlp"): "FedBuff, MLP",
    ("fedasync", "linear"): "FedAsync, linear",
    ("fedasync", "mlp"): "FedAsync, MLP",
}

Work = tuple[str, str]
"""A method and a model."""

Repeat = dict[str, Any]
"""``short`` and ``long``: seconds and report of a process; or ``reason``, why there are none."""


@dataclass(frozen=True)
class Peer:
    """A simulator and what pip installs for it.

    Attributes:
        name: name of its adapter.
        title: its name in the table.
        requirements: requirements for pip; without any, it runs in this interpreter.
        alone: a package that is installed after them without its requirements, even if it requires another Python.
        methods: methods that its adapter runs.
    """

    name: str
    title: str
    requirements: tuple[str, ...] = ()
    alone: str = ""
    methods: tuple[str, ...] = ("fedavg",)


PEERS = (
    Peer("fedsim", "**fedsim**", methods=("fedavg", "fedbuff", "fedasync")),
    Peer("bare_loop", "bare loop"),
    Peer("fedjax", "FedJAX", ("fedjax==0.0.17", "jax==0.10.2")),
    Peer("pfl", "pfl-research", (TORCH, "pfl==0.6.0")),
    Peer("fedlab", "FedLab", (TORCH, "fedlab==1.3.0")),
    # It requires Python 3.12 (later versions 3.14), but works on 3.11.
    Peer("blazefl", "BlazeFL", (TORCH, "numpy", "tqdm"), alone="blazefl==2.0.3"),
    Peer("flgo", "FLGo", (TORCH, "flgo==0.4.4")),
    Peer(
        "appfl",
        "APPFL, virtual time",
        (TORCH, "appfl==1.12.0"),
        methods=("fedavg", "fedbuff", "fedasync"),
    ),
    Peer("flower", "Flower on Ray", (TORCH, "flwr[simulation]==1.41.0")),
)


def write_data(path: Path) -> None:
    """Images of a class share a coarse picture, 7 x 7 squares of N(0, 0.15^2); every pixel has noise N(0, 1)."""
    rng = np.random.default_rng(0)
    pictures = 0.15 * np.kron(rng.standard_normal((CLASSES, 7, 7)), np.ones((4, 4)))
    train = CLIENTS * SAMPLES
    labels = rng.integers(CLASSES, size=train + TEST_SAMPLES)
    images = pictures[labels] + rng.standard_normal((len(labels), 28, 28))
    number = np.arange(len(labels))
    np.savez(
        path,
        x=images[:, None].astype(np.float32),
        y=labels,
        group=np.minimum(number // SAMPLES, CLIENTS - 1),
        is_test=number >= train,
    )


def interpreter(peer: Peer, folder: Path) -> Path:
    """The Python that has this peer, which is installed if necessary.

    Raises:
        subprocess.CalledProcessError: pip failed.
    """
    if not peer.requirements:
        return Path(sys.executable)
    home = folder / "environments" / peer.name
    python = home / "bin" / "python"
    installed = home / "installed.txt"
    requested = f"{peer.requirements} {peer.alone}"
    if installed.exists() and installed.read_text(encoding="utf-8") == requested:
        return python
    print(f"installing {peer.name}", flush=True)
    venv.create(home, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    steps = [[*pip, *peer.requirements]]
    if TORCH in peer.requirements:
        # torch comes first and by itself, so that no later package installs another build of it.
        steps.insert(0, [*pip, TORCH])
    if peer.alone:
        steps.append([*pip, "--no-deps", "--ignore-requires-python", peer.alone])
    for step in steps:
        subprocess.run(step, check=True, capture_output=True, text=True)
    installed.write_text(requested, encoding="utf-8")
    return python


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def adopt_orphans() -> None:
    """Make descendants whose parents end children of this process, which then counts their time (Linux)."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def await_orphans() -> None:
    """Wait for adopted descendants; kill those that do not end."""
    deadline = time.monotonic() + ORPHANS_S
    while True:
        try:
            process, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if process:
            continue
        if time.monotonic() > deadline:
            thread = f"/proc/self/task/{os.getpid()}/children"
            for child in Path(thread).read_text(encoding="utf-8").split():
                os.kill(int(child), signal.SIGKILL)
        time.sleep(0.01)


def run_process(command: list[str], folder: Path, cores: int) -> tuple[dict[str, float], str]:
    """The seconds of a process and all of its descendants, and what it wrote.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
    """
    environment = os.environ | {"OMP_NUM_THREADS": str(cores), "MKL_NUM_THREADS": str(cores)}
    before, begin_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with (folder / "output.txt").open("w+", encoding="utf-8") as output:
        try:
            subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
            )
        finally:
            wall_s = time.monotonic() - begin_s
            await_orphans()
        output.seek(0)
        text = output.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"cpu_s": cpu_s, "wall_s": wall_s}, text


def measure(
    peer: Peer, python: Path, method: str, model: str, data: Path, folder: Path, cores: int
) -> Repeat:
    """A repeat: a process of one round and one of all rounds."""
    repeat: Repeat = {}
    for length, rounds in (("short", 1), ("long", ROUNDS[method, model])):
        with tempfile.TemporaryDirectory(prefix=f"{peer.name}-", dir=folder) as name:
            working, report = Path(name), Path(name) / "report.json"
            command = [python, ADAPTERS / f"run_{peer.name}.py", "--data", data, "--report", report]
            command += ["--method", method, "--model", model, "--rounds", rounds]
            command += ["--folder", working]
            try:
                seconds, text = run_process([str(part) for part in command], working, cores)
            except subprocess.TimeoutExpired:
                return {"reason": f"took longer than {TIMEOUT_S:g} s"}
            if not report.exists():
                return {"reason": f"failed: {last_line(text)}"}
            reported = json.loads(report.read_text(encoding="utf-8"))
            seconds["cpu_s"] += reported["more_cpu_s"]
            repeat[length] = seconds | reported
    return repeat


@dataclass(frozen=True)
class Row:
    """The cost of one simulator for one method and model.

    Attributes:
        round_s: lowest and median seconds of a round.
        startup_s: lowest and median seconds of a run of one round less the round.
        run_s: lowest and median seconds of the run of all rounds.
        repeats: number of repeats.
        steps: local steps per round.
        parameters: parameters of the model.
        accuracy: median accuracy of the last model.
        versions: of the packages.
    """

    round_s: tuple[float, float]
    startup_s: tuple[float, float]
    run_s: tuple[float, float]
    repeats: int
    steps: float
    parameters: int
    accuracy: float
    versions: dict[str, str]


def summarize(repeats: list[Repeat], rounds: int, clock: str) -> Row:
    """The row of these repeats; ``rounds`` of the longer run, ``clock`` is cpu_s or wall_s."""
    figures: list[tuple[float, float, float]] = []
    for statistic in (min, statistics.median):
        short, long = (
            statistic([each[length][clock] for each in repeats]) for length in ("short", "long")
        )
        one_s = (long - short) / (rounds - 1)
        figures.append((one_s, short - one_s, long))
    lowest, median = figures
    round_s, startup_s, run_s = zip(lowest, median, strict=True)
    first = repeats[0]
    return Row(
        round_s,
        startup_s,
        run_s,
        repeats=len(repeats),
        steps=(first["long"]["steps"] - first["short"]["steps"]) / (rounds - 1),
        parameters=first["long"]["parameters"],
        accuracy=statistics.median(each["long"]["accuracy"] for each in repeats),
        versions=first["long"]["versions"],
    )


def pair(values: Iterable[float], decimals: int) -> str:
    return " / ".join(f"{value:.{decimals}f}" for value in values)


def table(rows: dict[str, Row | str], title: str, rounds: int) -> str:
    """The rows of a method and a model, fastest first; a text in place of a row says why there is none."""
    titles = {peer.name: peer.title for peer in PEERS}
    ran = {name: row for name, row in rows.items() if isinstance(row, Row)}
    lines = [
        f"| {title} | ms per round | x fedsim | start-up, s | {rounds} rounds in all, s | accuracy |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in sorted(ran, key=lambda name: ran[name].round_s[0]):
        row = ran[name]
        ratio = "-"
        if "fedsim" in ran:
            pairs = zip(row.round_s, ran["fedsim"].round_s, strict=True)
            ratio = " / ".join(f"{round_s / fedsim_s:.2f}" for round_s, fedsim_s in pairs)
        milliseconds = [1000 * value for value in row.round_s]
        lines.append(
            f"| {titles[name]} | {pair(milliseconds, 1)} | {ratio} | {pair(row.startup_s, 1)} | "
            f"{pair(row.run_s, 1)} | {row.accuracy:.3f} |"
        )
    lines += [
        f"| {titles[name]} | {row} | | | | |" for name, row in rows.items() if isinstance(row, str)
    ]
    return "\n".join(lines)


def verdict(rows: dict[str, Row | str], title: str) -> str:
    """How fedsim compares with the fastest peer, and whether all did the same work."""
    ran = {name: row for name, row in rows.items() if isinstance(row, Row)}
    peers = {name: row for name, row in ran.items() if name not in REFERENCES}
    text = f"{title}: "
    if "fedsim" in ran and peers:
        titles = {peer.name: peer.title for peer in PEERS}
        parts = []
        for index, statistic in enumerate(("lowest", "median")):
            fastest = min(peers, key=lambda name: peers[name].round_s[index])
            ratio = peers[fastest].round_s[index] / ran["fedsim"].round_s[index]
            parts.append(f"{titles[fastest]} {ratio:.2f} x fedsim's round ({statistic})")
        text += "fastest peer " + ", ".join(parts) + "; "
    work = {(row.steps, row.parameters) for row in ran.values()}
    return text + (
        "all with the same steps per round and parameters."
        if len(work) == 1
        else f"not the same work: {sorted(work)} (steps per round, parameters)."
    )


def machine() -> str:
    """The processor and the Python of this machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line
            for line in cpuinfo.read_text(encoding="utf-8").splitlines()
            if "model name" in line
        ]
        model = names[0].partition(":")[2].strip() if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def page(results: dict[Work, dict[str, list[Repeat]]], cpus: int) -> str:
    """The tables, with the machine, the versions and the statistic, and whether they are to be taken again."""
    clock = "cpu_s" if cpus == 1 else "wall_s"
    tables: list[str] = []
    verdicts: list[str] = []
    versions: dict[str, str] = {}
    counts: set[int] = set()
    shares: list[float] = []
    for work, by_peer in results.items():
        rows: dict[str, Row | str] = {}
        for name, repeats in by_peer.items():
            counts.add(len(repeats))
            reasons = [each["reason"] for each in repeats if "reason" in each]
            if reasons or not repeats:
                rows[name] = reasons[0] if reasons else "not measured yet"
                continue
            row = summarize(repeats, ROUNDS[work], clock)
            rows[name] = row
            versions |= row.versions
            shares += [each["long"]["cpu_s"] / each["long"]["wall_s"] for each in repeats]
        tables.append(table(rows, TITLES[work], ROUNDS[work]))
        verdicts.append(f"- {verdict(rows, TITLES[work])}")
    if not shares:
        return "\n\n".join(tables)
    share = statistics.median(shares) / cpus
    unit = "Processor seconds" if cpus == 1 else "Seconds of the clock"
    measured = counts - {0}
    repeats_text = " to ".join(str(count) for count in sorted({min(measured), max(measured)}))
    named = ", ".join(f"{package} {versions[package]}" for package in sorted(versions))
    head = (
        f"{unit} of whole processes with all of their children, pinned to {cpus} CPU{'s' if cpus > 1 else ''}: "
        f"lowest / median of {repeats_text} interleaved repeats each. {machine()}; the runs had {share:.0%} of the CPU "
        f"(median). {named}."
    )
    if min(counts) < REPEATS or (cpus == 1 and share < ALONE):
        head = (
            f"**Provisional**: other work went on, or there are fewer than {REPEATS} repeats. Do not quote these "
            f"tables; the same command on an idle machine replaces them.\n\n{head}"
        )
    return "\n\n".join([head, "\n".join(verdicts), *tables])


def write_page(text: str) -> None:
    """Replace what stands between the markers in benchmarks/README.md."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def environments(peers: list[Peer], folder: Path) -> dict[str, Path | str]:
    """The Python of each peer, or why there is none."""
    pythons: dict[str, Path | str] = {}
    for peer in peers:
        try:
            pythons[peer.name] = interpreter(peer, folder)
        except subprocess.CalledProcessError as error:
            pythons[peer.name] = f"pip: {last_line(error.stderr)}"
    return pythons


def measure_missing(
    peers: list[Peer], works: list[Work], folder: Path, repeats: int, cores: int, seconds: float
) -> bool:
    """Measure what has no file in ``folder/results`` yet; whether all of it was measured within ``seconds``."""
    end_s = time.monotonic() + seconds
    data = folder / "common_work.npz"
    if not data.exists():
        write_data(data)
    pythons = environments(peers, folder)
    for repeat in range(repeats):
        for method, model in works:
            for peer in peers:
                path = result_path(folder, (method, model), peer, repeat)
                if method not in peer.methods or path.exists():
                    continue
                if time.monotonic() > end_s:
                    return False
                python = pythons[peer.name]
                if isinstance(python, str):
                    result: Repeat = {"reason": python}
                else:
                    result = measure(peer, python, method, model, data, folder, cores)
                path.write_text(json.dumps(result), encoding="utf-8")
                text = (
                    result.get("reason")
                    or f"{result['short']['cpu_s']:.2f} and {result['long']['cpu_s']:.2f} CPU s"
                )
                print(f"{path.stem}: {text}", flush=True)
    return True


def result_path(folder: Path, work: Work, peer: Peer, repeat: int) -> Path:
    return folder / "results" / f"{'-'.join(work)}-{peer.name}-{repeat}.json"


def collect(folder: Path, repeats: int) -> dict[Work, dict[str, list[Repeat]]]:
    """The measured repeats by work and peer; a work of which nothing is measured is left out."""
    results: dict[Work, dict[str, list[Repeat]]] = {}
    for work in ROUNDS:
        by_peer: dict[str, list[Repeat]] = {}
        for peer in PEERS:
            if work[0] in peer.methods:
                paths = [result_path(folder, work, peer, repeat) for repeat in range(repeats)]
                by_peer[peer.name] = [
                    json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()
                ]
        if any(by_peer.values()):
            results[work] = by_peer
    return results


def main() -> None:
    names = [peer.name for peer in PEERS]
    works = {"-".join(work): work for work in ROUNDS}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="for environments and results")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--works", nargs="+", choices=works, default=works, metavar="METHOD-MODEL")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--cpus", nargs="+", type=int, default=[0], help="numbers of the CPUs to be used"
    )
    parser.add_argument(
        "--seconds", type=float, default=np.inf, help="begin no repeat after so long"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the tables into benchmarks/README.md"
    )
    options = parser.parse_args()
    os.sched_setaffinity(0, options.cpus)
    adopt_orphans()
    folder = options.folder.resolve()
    (folder / "results").mkdir(parents=True, exist_ok=True)
    peers = [peer for peer in PEERS if peer.name in options.only]
    chosen = [works[name] for name in options.works]
    complete = measure_missing(
        peers, chosen, folder, options.repeats, len(options.cpus), options.seconds
    )
    text = page(collect(folder, options.repeats), len(options.cpus))
    print(f"\n{text}")
    if not complete:
        print("\nNot all was measured; the same command goes on.")
    if options.write:
        write_page(text)


if __name__ == "__main__":
    main()
