"""Tries every damage to a file of every kind of folder with every command that takes it, and what else misleads.

``python -m benchmarks.damages [--cells N] [--seed S] [--only EXPERIMENT ...]`` prints one row per experiment. ``N``
draws that many cells of each table; by default, all are tried. The experiments:

- **refused means untouched**: after exit code 2, the folder has the bytes that it had before, apart from locks;
- **same or said**: with exit code 0, the output is that of the intact folder, or names what is damaged;
- **advice works**: each command that an error advises is executed, and after at most three steps one is done;
- **looked at while it works**: ``verify``, ``ls``, ``watch``, ``report`` and ``compare`` during a command that writes,
  killed and begun again, never report damage;
- **environment**: a variable with a wrong value is used or refused.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import chaos_commands as chaos
from benchmarks import hostile
from fedsim.board import suite as suites
from fedsim.files.durable import TEMPORARY_PREFIX
from fedsim.files.locks import LOCK_NAMES
from fedsim.runs import writer
from fedsim.runs.records import FACTS, RUN

STEPS = 3
ADVICE = re.compile(r"(?:^|[ :(])((?:fedsim|rm|cp|mv) [^;,)\n']+)", re.MULTILINE)
PLACEHOLDERS = {"NEW_FOLDER": "out-new", "SCENARIO": "s.yaml"}
WALL = re.compile("wall|real time|learning plane|time plane")
SAID = re.compile(r"damaged|unreadable|not verifiable|has changed|no such file|error:|warning:")
DAMAGE = re.compile(r"damaged|changed since|cannot be read|No such file|is missing")
RECORDS = (RUN.file, FACTS.file)
COMPARED_AS_TEXT = (".csv", ".html", ".json", ".yaml", ".tex", ".trace")


# -- the table: folders, their files, damages, and commands ---------------------------------------------------------


@dataclass(frozen=True)
class Room:
    """A kind of folder.

    Attributes:
        path: the folder.
        sibling: a folder of the same kind with other content.
        reads: commands that only read it.
        writes: commands that continue or replace it.
        files: which of its files are damaged.
    """

    path: str
    sibling: str
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    files: tuple[str, ...] = ("*", "*/*", "*/*/*")


def answered(name: str, *reads: str) -> Room:
    """The folder of an answer; of its runs, the files of one are damaged."""
    call = chaos.COMMANDS[name].call.replace("-o out", f"-o {name}")
    looks = (f"verify {name}", "ls .", f"ls {name}", f"watch --once {name}", *reads)
    return Room(name, f"other-{name}", looks, (call,), ("*", "runs/[0-9a-f]*/*"))


LOOKS = ("verify {0}", "ls .", "ls {0} --target accuracy=0.5", "watch --once {0}")
READS = (
    *LOOKS,
    "report {0} -o out.html",
    "export {0} --format csv -o out",
    "compare {0} other-made -o out",
    "what-if {0} -s devices.compute.median=2x -o out",
)
COMPLETE = (*READS, "calibrate {0} -o out", "export {0} --format perfetto -o out.json")
BEGUN = ("resume {0}", "run s.yaml -o {0} --overwrite")


def of(room: str, calls: tuple[str, ...]) -> tuple[str, ...]:
    """Calls for a folder."""
    return tuple(call.format(room) for call in calls)


SWEEP = "sweep sweep.yaml -j 1 -o {0}"
SWEEPS = (*LOOKS, "compare {0} -o out", "ls {0}")
ROOMS = {
    "run": Room(
        "made", "other-made", of("made", COMPLETE), of("made", (*BEGUN, "run s.yaml -o {0}"))
    ),
    "killed run": Room("killed", "other-killed", of("killed", READS), of("killed", BEGUN)),
    "stopped run": Room("begun", "other-begun", of("begun", READS), of("begun", BEGUN)),
    "sweep": Room(
        "sweep", "other-sweep", of("sweep", SWEEPS), of("sweep", (SWEEP,)), ("*", "seed0/*")
    ),
    "killed sweep": Room(
        "cut", "other-sweep", of("cut", SWEEPS), of("cut", (SWEEP,)), ("*", "seed[01]/*")
    ),
    "decision": answered("decide"),
    "forecast": answered("forecast"),
    "board": answered("board"),
    "bundle": Room("bundle", "other-bundle", hostile.READ_BUNDLE),
    "devices": Room(
        "devices",
        "bundle",
        ("verify devices", "traces inspect devices", "scenario check devices.yaml"),
        ("calibrate made -o devices --force",),
    ),
    "app": Room(
        "flowered", "other-made", of("flowered", READS[:6]), ("flower app -o flowered --overwrite",)
    ),
}
OWNER = {"pid": 1, "host": socket.gethostname(), "since": "2026-11-30T10:39:20+00:00"}
Damage = Callable[[Path, Path, Path], object]


def flipped(share: float) -> Damage:
    """One flipped bit at this share of a file."""

    def flip(path: Path, sibling: Path, outside: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(share * len(data))] ^= 4
        path.write_bytes(data)

    return flip


def linked(path: Path, sibling: Path, outside: Path) -> None:
    """A link to the file, which is elsewhere."""
    path.rename(outside)
    path.symlink_to(outside)


def foldered(path: Path, sibling: Path, outside: Path) -> None:
    """A folder instead of the file."""
    path.unlink(missing_ok=True)
    path.mkdir()


def numbered(path: Path, sibling: Path, outside: Path) -> None:
    """Another digit in a text."""
    data = path.read_bytes()
    digits = [match.start() for match in re.finditer(rb"\d", data)]
    at = digits[len(digits) // 2]
    path.write_bytes(data[:at] + (b"1" if data[at : at + 1] != b"1" else b"2") + data[at + 1 :])


DAMAGES: dict[str, Damage] = {
    "flipped near the begin": flipped(0.1),
    "flipped in the middle": flipped(0.5),
    "flipped near the end": flipped(0.9),
    "cut": lambda path, *_: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "emptied": lambda path, *_: path.write_bytes(b""),
    "deleted": lambda path, *_: path.unlink(),
    "of a sibling": lambda path, sibling, _: shutil.copyfile(sibling, path),
    "folder": foldered,
    "link": linked,
    "number": numbered,
}


def guarding_link(path: Path, sibling: Path, outside: Path) -> None:
    """A link to somebody's file instead of a lock."""
    path.unlink(missing_ok=True)
    outside.write_text("precious")
    path.symlink_to(outside)


OF_LOCKS: dict[str, Damage] = {
    "garbage": lambda path, *_: path.write_bytes(b"\xff\xfe{}\0"),
    "process 1": lambda path, *_: path.write_text(json.dumps(OWNER)),
    "folder": foldered,
    "link": guarding_link,
}


def cells() -> list[tuple[str, str, Path, str]]:
    """Every kind of folder, command, file and damage; the files are those of the working folder."""
    table: list[tuple[str, str, Path, str]] = []
    for name, room in ROOMS.items():
        damages: list[tuple[Path, str]] = []
        folder = Path(room.path)
        paths = sorted({path for pattern in room.files for path in folder.glob(pattern)})
        one = next(iter(sorted(folder.glob("runs/*"))), None)
        paths = [path for path in paths if path.parent.parent.name != "runs" or path.parent == one]
        for path in paths:
            if not path.is_file() or path.name in LOCK_NAMES:
                continue
            sibling = Path(room.sibling) / path.relative_to(folder)
            for damage in DAMAGES if path.stat().st_size else ():
                is_other = sibling.is_file() and sibling.read_bytes() != path.read_bytes()
                if damage == "of a sibling" and not is_other:
                    continue
                if damage == "number" and path.suffix not in (".json", ".yaml", ".csv"):
                    continue
                damages.append((path, damage))
        damages += [(folder / lock, damage) for lock in LOCK_NAMES for damage in OF_LOCKS]
        calls = (*room.reads, *room.writes)
        table += [(name, call, *each) for call in calls for each in damages]
    return table


def tree(folder: Path) -> dict[str, object]:
    """What is in a folder, apart from locks and from temporary files that a killed process left."""
    content: dict[str, object] = {}
    for path in folder.rglob("*"):
        if path.name not in LOCK_NAMES and not path.name.startswith(TEMPORARY_PREFIX):
            is_file = path.is_file() and not path.is_symlink()
            content[str(path)] = path.read_bytes() if is_file else os.path.lexists(path)
    return content


def output(room: Room, call: str, text: str) -> list[str]:
    """What a call has shown or written, in pieces, without absolute paths and wall times."""
    if call in room.writes:
        content = chaos.content(Path(room.path))
        return [f"{name} {content[name]}" for name in sorted(content)]
    pieces = text.splitlines()
    for path in sorted({*Path().glob("out*"), *Path().glob("out*/**/*"), *Path().glob("scaled/*")}):
        if path.suffix in COMPARED_AS_TEXT and path.name not in RECORDS and path.is_file():
            pieces += [f"{path.name} {piece}" for piece in re.split(r"[<\n]", path.read_text())]
        elif path.suffix == ".parquet":
            pieces += chaos.content(path).values()
    pieces = [re.sub(rf"{re.escape(str(Path.cwd().parent))}[^\s\"'<]*", "", one) for one in pieces]
    return ["" if WALL.search(piece) else piece for piece in pieces]


@dataclass
class Trials:
    """The working folder, copied from the prepared one, and what did not hold."""

    prepared: Path
    chance: random.Random
    problems: Counter[str]
    tried: Counter[str]

    def fresh(self, *names: str) -> None:
        """Copy folders anew, and remove what calls have written; everything without names."""
        if not names:
            chaos.fresh(self.prepared)
            return
        for path in [*map(Path, names), *Path().glob("out*"), *Path().glob("scaled*")]:
            with contextlib.suppress(FileNotFoundError):
                (shutil.rmtree if path.is_dir() and not path.is_symlink() else os.unlink)(path)
            if path.name in names:
                shutil.copytree(self.prepared / path, path, symlinks=True)

    def wrong(self, experiment: str, what: str, text: str) -> None:
        """Report what did not hold."""
        self.problems[experiment] += 1
        print(f"WRONG {experiment}: {what}\n{text[-1500:]}\n", file=sys.stderr, flush=True)

    # -- damaged folders --------------------------------------------------------------------------------------------

    def intact(self, room: Room, call: str) -> list[str | None]:
        """The output for the intact folder, with None for the pieces that differ between two calls."""
        outputs = []
        for _ in range(2):
            self.fresh(room.path)
            outputs.append(output(room, call, hostile.called(call)[1]))
        assert len(outputs[0]) == len(outputs[1]), f"{call}: the output differs"
        return [a if a == b else None for a, b in zip(*outputs, strict=True)]

    def damaged(self, number: int | None) -> None:
        """The first three experiments."""
        self.fresh()
        table = cells()
        chosen = table if number is None else self.chance.sample(table, min(number, len(table)))
        expected: dict[tuple[str, str], list[str | None]] = {}
        outside = Path.cwd().parent / "elsewhere"
        for name, call, path, damage in sorted(chosen, key=table.index):
            room = ROOMS[name]
            if (name, call) not in expected:
                expected[name, call] = self.intact(room, call)
            self.fresh(room.path)
            outside.unlink(missing_ok=True)
            change = (OF_LOCKS if path.name in LOCK_NAMES else DAMAGES)[damage]
            change(path, Path(room.sibling) / path.relative_to(room.path), outside)
            before = tree(Path(room.path))
            held = outside.read_bytes() if outside.exists() else None
            what = f"{name}: {path} {damage}: fedsim {call}"
            code, text, wrong = hostile.called(call)
            after = tree(Path(room.path))
            is_refused = code == chaos.USER
            self.tried["refused means untouched" if is_refused else "same or said"] += 1
            if wrong:
                self.wrong("same or said", f"{what}: {', '.join(wrong)}", text)
            if held is not None and (not outside.exists() or outside.read_bytes() != held):
                self.wrong("same or said", f"{what}: changed a file elsewhere", text)
            if code == chaos.DONE:
                is_left = before.get(str(path)) == after.get(str(path))
                if call in room.writes and is_left and path.name not in LOCK_NAMES:
                    self.restore(path)  # Complete runs are not read again.
                self.compare(expected[name, call], output(room, call, text), path, what, text)
            if not is_refused:
                continue
            changed = [key for key in {*before, *after} if before.get(key) != after.get(key)]
            if (
                changed and " done, " not in text
            ):  # One of several runs has failed, the others are done.
                self.wrong("refused means untouched", f"{what}: {sorted(changed)}", text)
            if ADVICE.search(text):
                self.advised(call, text, what)

    def restore(self, path: Path) -> None:
        """Copy a file that is as the damage left it from the prepared folder."""
        if path.is_dir():
            path.rmdir()
        if path.parent.is_dir() and not path.is_symlink():
            shutil.copyfile(self.prepared / path, path)

    def compare(
        self, expected: list[str | None], now: list[str], path: Path, what: str, text: str
    ) -> None:
        """Report an output that is neither that of the intact folder nor says what is damaged."""
        is_same = len(now) == len(expected) and all(
            one is None or one == other for one, other in zip(expected, now, strict=True)
        )
        if path.suffix == ".arrows" and what.startswith("killed"):
            return  # Its rows have no checksum yet: resuming writes them again.
        if not is_same and not SAID.search(text) and path.name not in text:
            intact = [one or "*" for one in expected]
            lines = difflib.unified_diff(intact, now, "intact", "damaged", lineterm="", n=0)
            shown = "\n".join(line[:200] for line in list(lines)[:12])
            self.wrong("same or said", what, f"{text[-700:]}\n{shown}")

    def advised(self, call: str, text: str, what: str) -> None:
        """Do what an error advises, up to three times, until a command is done."""
        self.tried["advice works"] += 1
        shown = [text]
        for _ in range(STEPS):
            found = ADVICE.search(text)
            if found is None:
                return  # Nothing that can be executed.
            advice = found.group(1).strip()
            for name, value in PLACEHOLDERS.items():
                advice = advice.replace(name, value)
            again = advice.removeprefix("fedsim ") if advice.startswith("fedsim ") else call
            if again == call:
                with contextlib.suppress(ValueError):
                    subprocess.run(shlex.split(advice), check=False, capture_output=True)
            code, text, _ = hostile.called(again)
            shown.append(f"$ {advice}\n{text}")
            if code == chaos.DONE:
                return
            if text in (shown[0], *(one.partition("\n")[2] for one in shown[1:-1])):
                break
        self.wrong("advice works", what, "".join(shown))

    # -- looked at while it works -----------------------------------------------------------------------------------

    def looked(self, number: int | None) -> None:
        """Look at a folder while a command writes it, is killed and begun again."""
        names = ("run", "resume", "sweep", "decide", "forecast", "board", "flower")
        for name in names:
            command = chaos.COMMANDS[name]
            folder = command.output
            looks = (
                f"verify {folder}",
                "ls .",
                f"ls {folder}",
                f"watch --once {folder}",
                f"report {folder} -o page.html",
                f"compare {folder} -o figure",
            )
            for _ in range(2 if number is None else 1):
                self.fresh()
                trial = chaos.Trial(command, self.chance, 0.0)
                trial.log = Path.cwd().parent / "background"
                calls = command.calls()
                for attempt in range(4):
                    process = trial.start(calls[0] if attempt == 0 or len(calls) < 2 else calls[1])
                    ends = time.monotonic() + self.chance.uniform(0.5, 3.0)
                    while not os.waitid(
                        os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT
                    ) and (attempt == 3 or time.monotonic() < ends):
                        self.look(name, self.chance.choice(looks))
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process, signal.SIGKILL)
                    trial.end(process)
                    self.look(name, self.chance.choice(looks))

    def look(self, name: str, call: str) -> None:
        """Look once."""
        self.tried["looked at while it works"] += 1
        code, text, wrong = hostile.called(call)
        if wrong or (code == chaos.USER and DAMAGE.search(text)) or "damaged" in text:
            self.wrong("looked at while it works", f"{name}: fedsim {call}", text)

    # -- environment ------------------------------------------------------------------------------------------------

    def environment(self, number: int | None) -> None:
        """A variable with a wrong value."""
        self.fresh()
        table = [(name, value) for name in VARIABLES for value in WRONG]
        for name, value in table if number is None else self.chance.sample(table, number):
            ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
            ranks |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29765"}
            is_rank = name in OF_RANKS
            call = f"run s.yaml -o out {'--timing-only' * (not is_rank)}"
            call += " -s training.workers.name=distributed" * is_rank
            variables = {os.fsencode(key): os.fsencode(one) for key, one in ranks.items()}
            if name.startswith("SLURM"):
                variables = {b"SLURM_PROCID": b"0", b"SLURM_STEP_NUM_TASKS": b"2"}
                variables |= {b"SLURM_LOCALID": b"0", b"MASTER_ADDR": b"127.0.0.1"}
            variables = {**os.environb, **(variables if is_rank else {}), name.encode(): value}
            words = [sys.executable, "-m", "fedsim", *call.split()]

            def begin(words: list[str] = words, variables: dict[bytes, bytes] = variables) -> None:
                os.execve(sys.executable, words, variables)

            self.fresh("made")
            self.tried["environment"] += 1
            _, text, wrong = hostile.called(call, begin, cut_s=8.0 if is_rank else 60.0)
            waits = is_rank and wrong == [f"exit code {-signal.SIGKILL}"]  # For the other ranks.
            if wrong and not waits:
                self.wrong("environment", f"{name}={value[:40]!r}: fedsim {call}: {wrong}", text)


OF_RANKS = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"),
    *("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID"),
)
VARIABLES = (
    *OF_RANKS,
    *("FEDSIM_DATA", "FEDSIM_MAX_UNPACKED", "FEDSIM_NO_USER_CODE", "TMPDIR", "HOME", "COLUMNS"),
    *("LANG", "LC_ALL", "TZ", "TERM", "NO_COLOR", "OMP_NUM_THREADS"),
    *("CUDA_VISIBLE_DEVICES", "MPLCONFIGDIR", "MPLBACKEND", "XDG_CACHE_HOME", "COMP_WORDS"),
    *("LINES", "SOURCE_DATE_EPOCH", "MKL_NUM_THREADS", "ARROW_DEFAULT_MEMORY_POOL"),
)
WRONG = (b"", b"garbage", b"-1", b"99999", b"1" + b"0" * 400, b"/proc/1/root", b"\xff\xfe")


def prepare(folder: Path) -> None:
    """What the commands read: a folder of each kind, and another one."""
    hostile.prepare(folder)
    other = "-s seed=1 -s training.optimizer.lr=0.2"
    calls = [
        f"run s.yaml {other} -o other-made",
        "traces synthesize always --devices 300 -s seed=1 -o other-bundle",
        "sweep sweep.yaml -s training.optimizer.lr=0.2 -j 1 -o other-sweep",
        "calibrate made -o devices",
        "flower app -o flowered",
    ]
    for call in calls:
        trial = chaos.Trial(chaos.Command(call, ""), random.Random(), 0.0)
        trial.must_end(trial.start(call.split()), chaos.DONE)
    stopped = {
        "killed": (signal.SIGKILL, "run s.yaml -o killed", "killed/checkpoint/[0-9]*"),
        "other-killed": (signal.SIGKILL, f"run s.yaml {other} -o other-killed", "other-killed/checkpoint/[0-9]*"),
        "other-begun": (signal.SIGINT, f"run s.yaml {other} -o other-begun", "other-begun/checkpoint/[0-9]*"),
        "cut": (signal.SIGKILL, "sweep sweep.yaml -j 1 -o cut", "cut/seed1/checkpoint/[0-9]*"),
    }  # fmt: skip
    for name, (number, call, until) in stopped.items():
        while not list(Path().glob(until)):
            shutil.rmtree(name, ignore_errors=True)
            trial = chaos.Trial(chaos.Command(call, ""), random.Random(), 0.0)
            process = trial.start(call.split())
            while not list(Path().glob(until)) and chaos.members(process):
                time.sleep(0.01)
            os.kill(process, number)
            trial.end(process)


EXPERIMENTS = {
    "damaged": Trials.damaged,
    "looked": Trials.looked,
    "environment": Trials.environment,
}


def main() -> int:
    """Try the tables; the exit code is 1 if something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cells", type=int, help="of each table, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="*", default=list(ROOMS), choices=ROOMS)
    parser.add_argument("--only", nargs="*", default=list(EXPERIMENTS), choices=EXPERIMENTS)
    options = parser.parse_args()
    for name in [*ROOMS]:
        if name not in options.rooms:
            del ROOMS[name]
    for name in chaos.HEAVY:
        importlib.import_module(name)
    setattr(suites, "suite", chaos.only_tiny)  # noqa: B010
    setattr(writer, "FLUSH_INTERVAL_S", 0.0)  # noqa: B010
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared"
        prepare(prepared)
        trials = Trials(prepared, random.Random(options.seed), Counter(), Counter())
        for name in options.only:
            EXPERIMENTS[name](trials, options.cells)
        os.chdir("/")
    print("| experiment | cells | wrong |\n|---|---:|---:|")
    for name, number in trials.tried.items():
        print(f"| {name} | {number} | {trials.problems[name]} |")
    return 1 if trials.problems else 0


if __name__ == "__main__":
    sys.exit(main())
