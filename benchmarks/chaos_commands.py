"""Injures every command that writes: a table of commands, a table of injuries, and what must hold after each.

``python -m benchmarks.chaos_commands [--trials N] [--seed S] [--only NAME ...]`` prints one row per command with the
number of trials of each injury. Each trial runs in a copy of this process, in a fresh folder.

What must hold: the exit code says what happened, nothing ends in a traceback, ``verify`` finds damage where a folder
has checksums, a repeated (or resumed) command ends with the files of an undisturbed one, and neither temporary files
nor processes are left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

import fedsim.cli
from fedsim.board import suite as suites
from fedsim.composition import run as execution
from fedsim.files.durable import TEMPORARY_PREFIX
from fedsim.files.locks import LOCK_NAMES
from fedsim.learning import learner
from fedsim.processes.preloading import MODULES
from fedsim.runs.records import ANSWERS, RUN

DONE, USER, BUG = 0, 2, 1
HEAVY = (*MODULES, "matplotlib.pyplot", "scipy.stats", "fedsim.cli.calibrate", "fedsim.cli.traces")
SETTLE_S = 60.0
"""Seconds that processes of a killed command have to end."""
MARK = "FEDSIM_CHAOS"
"""Environment variable with the number of a trial's first process; torchrun gives each rank a session."""
UNCHECKED = (
    "report.html",
    "index.csv",
    "precision.csv",
    "board.html",
    "decide.html",
    "forecast.html",
)
"""Files without a checksum, which the next call writes again."""
MEASURED = ("wall_s", "wall_learning_s", "wall_time_plane_s")
"""Columns that differ between equal runs."""

SCENARIO = """\
task:
  dataset: {name: digits}
  partition: {name: iid, clients: 6}
  model: {name: mlp, hidden: [16]}
training: {optimizer: {name: sgd, lr: 0.1}, local_steps: 4, threads: 1}
devices:
  compute: {name: lognormal, median: 1s, jitter: {cv: 0.2}}
  network: {name: static, down: 10Mbps, up: 2Mbps, latency: 0.1s}
server: {selection: {name: uniform, cohort: 3}}
evaluation: {every_rounds: 5}
stop: {rounds: 20}
"""
QUESTION = """\
# Two clients and their mean.
name: tiny
task: {name: quadratic, centers: [[1.0], [3.0]], noise_std: 0.01}
training: {optimizer: {name: sgd, lr: 0.1}, local_steps: 1}
devices:
  compute: {name: values, step: 1s}
  network: {name: static, latency: 0s, down: 1Gbps, up: 1Gbps}
server: {method: {name: fedavg}}
stop: {simulated_time: 60s, target: {gradient_norm: 0.2}}
evaluation: {every: 1s}
"""
NODES = """\
task: {name: flower, clients: 4, unit: step}
devices:
  compute: {name: values, step: 1s}
  network: {name: static, latency: 0s, down: 1Gbps, up: 1Gbps}
stop: {simulated_time: 1d}
"""
UNITS = "-s time_zone=UTC -s window=2d -s rate_unit=Mbps -s latency_unit=ms"
RANKS = ("-s", "training.workers.name=distributed")


@dataclass(frozen=True)
class Command:
    """A command that writes.

    Attributes:
        call: its arguments.
        output: what it writes.
        again: tried in this order after an injury, until one is done; the command itself if empty.
        verified: whether ``verify`` knows the output.
        ranks: processes that ``torchrun`` starts; 0 without it.
    """

    call: str
    output: str
    again: tuple[str, ...] = ()
    verified: bool = True
    ranks: int = 0

    def calls(self) -> list[list[str]]:
        """The arguments of the command, and of those that continue it."""
        extra = RANKS if self.ranks else ()
        return [
            [*call.split(), *(extra if call.startswith("run") else ())]
            for call in (self.call, *(self.again or (self.call,)))
        ]


def replaced(call: str, output: str, verified: bool = True, force: str = "--force") -> Command:
    """A command that starts anew: its output is there whole, or not at all."""
    return Command(call, output, (call, f"{call} {force}"), verified)


RUN_CALL = "run s.yaml -o out"
RESUMED = ("resume out", f"{RUN_CALL} --overwrite")
DECIDE = (
    "decide s.yaml --over training.local_steps=2,4 --metric time_to:rounds=5 --settings 2 --seeds 2"
)
COMMANDS = {
    "run": Command(RUN_CALL, "out", RESUMED),
    "resume": Command("resume begun", "begun"),
    "distributed": Command(RUN_CALL, "out", RESUMED, ranks=2),
    "flower": replaced("flower app -o out", "out", force="--overwrite"),
    "what-if": Command("what-if made -s devices.compute.median=2x -o out", "out"),
    "sweep": Command("sweep sweep.yaml -j 1 -o out", "out"),
    "sweep -j 2": Command("sweep sweep.yaml -j 2 -o out", "out"),
    "decide": Command(f"{DECIDE} -j 1 -o out", "out"),
    "forecast": Command("forecast s.yaml --target rounds=9 --runs 3 -j 1 -o out", "out"),
    "board": Command("board run --seeds 2 --method fedavg --label Mine -j 1 -o out", "out"),
    "calibrate": replaced("calibrate made -o out", "out"),
    "traces synthesize": replaced("traces synthesize always --devices 300 -o out", "out"),
    "traces import": replaced(f"traces import table online.csv devices.csv {UNITS} -o out", "out"),
    "traces scale": replaced("traces scale bundle --devices 900 -o out", "out"),
    "traces export": replaced("traces export avt bundle -o out", "out", verified=False),
    "compare": Command("compare made made -o out", "out", verified=False),
    "export": Command("export made --format csv -o out", "out", verified=False),
    "report": Command("report made -o out.html", "out.html", verified=False),
}


# -- one trial ------------------------------------------------------------------------------------------------------


def enter(call: list[str], command: Command, before: Callable[[], None], log: Path) -> None:
    """Become a command in a session of its own; ``before`` injures the process."""
    code = BUG
    try:
        os.setsid()
        os.environ[MARK] = str(os.getpid())
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        before()
        for number, stream in ((1, "stdout"), (2, "stderr")):
            try:
                os.fstat(number)
            except OSError:  # As Python does.
                setattr(sys, stream, None)
        if command.ranks:
            launch = (
                f"-m torch.distributed.run --standalone --nproc-per-node {command.ranks} -m fedsim"
            )
            os.execv(sys.executable, [sys.executable, *launch.split(), *call])
        # As often as there is an opportunity.
        execution.CHECKPOINT_INTERVAL_S = 0.0
        learner._CPU_PENDING = 4
        sys.argv = ["fedsim", *call]
        sys.exit(fedsim.cli.command_line())
    except SystemExit as end:
        code = int(end.code or 0)
        with contextlib.suppress(OSError, AttributeError):
            sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


class Trial:
    """A command in a fresh folder, which is the working directory."""

    def __init__(self, command: Command, chance: random.Random, usual_s: float) -> None:
        self.command, self.random, self.usual_s = command, chance, usual_s
        self.by_torchrun = command.ranks > 0
        """Whether tracebacks may be those of torchrun, about a signal or the ranks that it ended."""
        self.killed = False
        self.log = Path.cwd().parent / "log"
        self.log.write_text("")
        self.output = Path(command.output)

    def start(
        self, call: list[str] | None = None, before: Callable[[], None] = lambda: None
    ) -> int:
        """Start the command, or another one; returns its process."""
        process = os.fork()
        if not process:
            enter(call or self.command.calls()[0], self.command, before, self.log)
        return process

    def end(self, process: int) -> int:
        """Wait for a process, and for all that it started; returns its exit code."""
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        ends = time.monotonic() + SETTLE_S
        while members(process):
            if time.monotonic() > ends:
                left = members(process)
                for each in left:
                    with contextlib.suppress(OSError):
                        os.kill(each, signal.SIGKILL)
                raise AssertionError(f"processes are left: {left}")
            time.sleep(0.05)
        return code

    def must_end(self, process: int, *codes: int) -> int:
        """End with one of these exit codes, without a traceback."""
        code = self.end(process)
        codes += (BUG,) if self.command.ranks else ()  # That of torchrun, whatever its ranks say.
        told = "Traceback" in self.log.read_text() and not self.by_torchrun
        assert code in codes, f"exit code {code}"
        assert not told, "traceback"
        return code

    def moment(self) -> None:
        """Wait until a random moment of the command."""
        time.sleep(self.random.uniform(0.0, self.usual_s))


def members(session: int) -> dict[int, str]:
    """The processes of a session that have not ended, and those that torchrun started from it."""
    found, mark = {}, f"{MARK}={session}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            marked = mark in (path / "environ").read_bytes().split(b"\0")
            if (int(fields[3]) == session or marked) and fields[0] not in "ZX":
                found[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")[:80]
    return found


# -- injuries -------------------------------------------------------------------------------------------------------


def kill(trial: Trial) -> None:
    """Kill -9 at a random moment: the first process, or one of torchrun's."""
    process = trial.start()
    trial.moment()
    victims = sorted(members(process)) if trial.command.ranks else [process]
    with contextlib.suppress(ProcessLookupError):
        os.kill(trial.random.choice(victims or [process]), signal.SIGKILL)
    trial.killed = True
    trial.end(process)


def interrupt(trial: Trial) -> None:
    """Ctrl-C, or a request to end, at a random moment."""
    process = trial.start()
    trial.moment()
    number = trial.random.choice((signal.SIGINT, signal.SIGTERM))
    os.kill(process, number)
    # Before and after the command line is there, Python itself ends.
    trial.must_end(process, DONE, 128 + number, -number)


def full(trial: Trial) -> None:
    """No file may be larger than a random size, as on a full disk."""
    limit = int(10 ** trial.random.uniform(3.3, 5.3))

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    trial.must_end(trial.start(before=no_room), DONE, USER)


def closed(trial: Trial) -> None:
    """Standard output or error closed, without a reader, or full."""
    reader, writer = os.pipe()
    os.close(reader)
    changes: dict[str, Callable[[], object]] = {
        ">&-": lambda: os.close(1),
        "2>&-": lambda: os.close(2),
        ">&- 2>&-": lambda: os.closerange(1, 3),
        "|": lambda: os.dup2(writer, 1),
        ">/dev/full": lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1),
    }
    name = trial.random.choice(list(changes))

    def change() -> None:
        changes[name]()

    process = trial.start(before=change)
    os.close(writer)
    trial.must_end(process, DONE, *([USER] if "full" in name else []))


def two(trial: Trial) -> None:
    """The same command twice at once, the second a little later."""
    first = trial.start()
    time.sleep(trial.random.uniform(0.0, 0.5) * trial.usual_s)
    calls = trial.command.calls()
    second = trial.start(trial.random.choice(calls))
    codes = trial.must_end(second, DONE, USER), trial.must_end(first, DONE, USER)
    assert DONE in codes, "neither was done"


def damage(trial: Trial) -> None:
    """A flipped bit, or a cut, in a random file of the finished output."""
    trial.must_end(trial.start(), DONE)
    output = trial.output
    file = trial.random.choice([file for file in files_of(output) if file.name not in UNCHECKED])
    data = bytearray(file.read_bytes())
    if trial.random.random() < 0.5:
        del data[trial.random.randrange(len(data)) :]
    else:
        data[trial.random.randrange(len(data) - 1)] ^= 1 << trial.random.randrange(8)
    before = file.read_bytes()
    file.write_bytes(data)
    trial.command = replace(trial.command, ranks=0)
    trial.must_end(trial.start(["verify", str(output)]), USER)
    trial.must_end(trial.start(trial.command.calls()[1]), DONE, USER)
    if file.exists() and file.read_bytes() == data:  # Complete runs are not read again.
        file.write_bytes(before)


INJURIES = {
    "kill": kill,
    "interrupt": interrupt,
    "full": full,
    "closed": closed,
    "two": two,
    "damage": damage,
}


def files_of(output: Path) -> list[Path]:
    """All files of an output, but not those of locks."""
    files = output.rglob("*") if output.is_dir() else [output]
    return sorted(file for file in files if file.is_file() and file.name not in LOCK_NAMES)


def content(output: Path) -> dict[str, str]:
    """The content of each file of an output; empty for those that contain wall times."""
    contents = {}
    records = [record.file for record in (RUN, *ANSWERS)]
    for file in files_of(output):
        value = ""
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            value = str(table.drop([n for n in MEASURED if n in table.column_names]).to_pydict())
        elif file.suffix not in (".html", ".pdf", ".png") and file.name not in records:
            value = repr(file.read_bytes())
        contents[str(file)] = value
    return contents


def must_hold(trial: Trial, expected: dict[str, str]) -> None:
    """What must hold after every injury: the command continues, to the files of an undisturbed one."""
    for call in trial.command.calls()[1:]:
        code = trial.must_end(trial.start(call), DONE, USER)
        if code == DONE:
            break
    # Some commands leave a whole output alone.
    assert code == DONE or "already exists" in trial.log.read_text(), "does not continue"
    now = content(trial.output)
    assert now.keys() == expected.keys(), f"other files: {sorted(now.keys() ^ expected.keys())}"
    # What differs between two undisturbed ones has no value.
    differing = [name for name, value in expected.items() if value and now[name] != value]
    assert not differing, f"other content: {differing}"
    left = [str(path) for path in Path().rglob(f"{TEMPORARY_PREFIX}*")]
    if (
        trial.killed
    ):  # Nobody may remove what is beside the output: another process may be writing it.
        left = [path for path in left if "/" in path and not path.startswith(TEMPORARY_PREFIX)]
    assert not left, f"files are left: {left}"
    if trial.command.verified and trial.output.is_dir():
        trial.command = replace(trial.command, ranks=0)
        trial.must_end(trial.start(["verify", str(trial.output)]), DONE)


# -- all of them ----------------------------------------------------------------------------------------------------


def prepare(folder: Path) -> None:
    """What the commands read."""
    folder.mkdir()
    os.chdir(folder)
    Path("s.yaml").write_text(SCENARIO)
    Path("sweep.yaml").write_text(f"{SCENARIO}sweep: {{seeds: [0, 1, 2]}}\n")
    Path("tiny.yaml").write_text(QUESTION)
    templates = Path(fedsim.__file__).parent / "bundled" / "templates"
    shutil.copy(templates / "own-trace" / "devices.csv", ".")
    shutil.copy(templates / "own-trace" / "online.csv", ".")
    shutil.copytree(templates / "flower", "app")
    Path("app/scenario.yaml").write_text(NODES)
    settings = Path("app/pyproject.toml")
    text = settings.read_text().replace("num-server-rounds = 40", "num-server-rounds = 3")
    settings.write_text(text.replace("nodes-per-round = 10", "nodes-per-round = 2"))
    for call in ("run s.yaml -o made", "traces synthesize always --devices 300 -o bundle"):
        trial = Trial(Command(call, ""), random.Random(), 0.0)
        trial.must_end(trial.start(), DONE)
    # A run that was interrupted, with a checkpoint.
    while not list(Path().glob("begun/checkpoint/[0-9]*")):
        shutil.rmtree("begun", ignore_errors=True)
        trial = Trial(Command("run s.yaml -o begun", "begun"), random.Random(), 0.0)
        process = trial.start()
        while not list(Path().glob("begun/checkpoint/[0-9]*")) and members(process):
            time.sleep(0.01)
        os.kill(process, signal.SIGINT)
        trial.end(process)


def fresh(prepared: Path) -> None:
    """An unused copy of the prepared folder, always under the same path."""
    work = prepared.parent / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(prepared, work, symlinks=True)
    os.chdir(work)


def undisturbed(command: Command, prepared: Path) -> tuple[dict[str, str], float]:
    """The content of an undisturbed output, without what differs between two of them, and the seconds it takes."""
    contents, usual_s = [], 0.0
    for _ in range(2):
        fresh(prepared)
        trial = Trial(command, random.Random(), 0.0)
        began = time.monotonic()
        code = trial.end(trial.start())
        usual_s = time.monotonic() - began
        assert code == DONE, trial.log.read_text()
        contents.append(content(trial.output))
    first, second = contents
    assert first.keys() == second.keys()
    return {name: value if second[name] == value else "" for name, value in first.items()}, usual_s


_SUITE = suites.suite


def only_tiny(version: str = "") -> suites.Suite:
    """A board of one scenario."""
    whole = _SUITE()
    question = replace(whole.scenarios["silos"], file=Path("tiny.yaml"), disturbances={})
    return replace(whole, scenarios={"silos": question}, tuning_seeds=[100], quick=[])


def main() -> int:
    """Injure the commands; the exit code is 1 if something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=2, help="of each injury of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(COMMANDS), choices=COMMANDS)
    parser.add_argument("--injuries", nargs="*", default=list(INJURIES), choices=INJURIES)
    options = parser.parse_args()
    # A shell that starts this in the background lets the signal be ignored; as an exception, it would end the fork
    # before the command line is there.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name in HEAVY:
        importlib.import_module(name)
    setattr(suites, "suite", only_tiny)  # noqa: B010
    chance, problems = random.Random(options.seed), []
    print(f"| command | {' | '.join(INJURIES)} |", "|---|" + "---:|" * len(INJURIES), sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared"
        prepare(prepared)
        for name in options.only:
            command = COMMANDS[name]
            expected, usual_s = undisturbed(command, prepared)
            held: Counter[str] = Counter()
            injuries = [each for each in options.injuries if command.verified or each != "damage"]
            for injury in injuries * options.trials:
                fresh(prepared)
                trial = Trial(command, chance, usual_s)
                try:
                    INJURIES[injury](trial)
                    must_hold(trial, expected)
                    held[injury] += 1
                except AssertionError as error:
                    log = trial.log.read_text()[-3000:]
                    problems.append(f"{name}, {injury}: {error}\n{log}")
                    print(problems[-1], file=sys.stderr, flush=True)
            counts = (
                f"{held[each]} of {options.trials}" if each in injuries else "" for each in INJURIES
            )
            print(f"| {name} | {' | '.join(counts)} |", flush=True)
        os.chdir("/")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
