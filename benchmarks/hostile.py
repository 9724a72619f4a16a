"""Gives hostile files to every command that reads them: scenarios, runs, answers, bundles, logs and the file system.

``python -m benchmarks.hostile [--inputs N] [--seed S] [--only KIND ...]`` prints one row per kind with the number of
inputs and calls. A record or table is changed with its checksums repaired, so that only types and values can tell.

What must hold for each call: exit code 0 or 2, no traceback, no control or bidirectional character on the terminal,
less than 10 seconds of a processor and 500 MB more than before, nothing executed, and nothing written elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import importlib
import io
import json
import os
import random
import resource
import shlex
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import chaos_commands as chaos
from fedsim.board import suite as suites
from fedsim.files.checksums import stamped
from fedsim.runs.records import BOARD, DECISION, FORECAST, SWEEP

# A board that begins anew makes 14 runs; what an archive unpacks takes a few times its size, up to a limit of its own.
LONGEST_S, MOST_BYTES, CUT_S = 10.0, 500_000_000, 60
ESCAPE = "\x1b]0;owned\x07\u202eevil\u2066\x9b31m\x00"
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**62,
    2**63,
    -(2**64),
    10**300,
    1e308,
    -1e-320,
    "",
    "NaN",
    "1e400",
    ESCAPE,
    "../../pwned",
    "/etc/passwd",
    "~root",
    "$(touch pwned)",
    "a" * 100_000,
    [],
    {},
    [[]],
    [None],
    {"": {}},
    {"a": [1, "b", None]},
    ["x", 1],
    {ESCAPE: ESCAPE},
    [{"vector": 1}],
    "2026-13-45",
    "\ud7ff\uffff",
)
READ_RUN = (
    "report made",
    "ls .",
    "ls made",
    "compare made made",
    "verify made",
    "resume made",
    "export made --format csv",
    "export made --format perfetto",
    "what-if made",
    "calibrate made -o devices",
)
READ_ANSWER = {
    SWEEP: ("compare answer", "sweep sweep.yaml -j 1 -o answer"),
    DECISION: (f"{chaos.DECIDE} -j 1 -o answer",),
    FORECAST: (chaos.COMMANDS["forecast"].call.replace("-o out", "-o answer"),),
    BOARD: (chaos.COMMANDS["board"].call.replace("-o out", "-o answer"),),
}
READ_BUNDLE = (
    "traces inspect bundle",
    "traces validate bundle",
    "verify bundle",
    "traces scale bundle --devices 20 -o scaled",
    "traces export avt bundle -o exported",
    "scenario check traced.yaml",
    "run traced.yaml -o out",
)
READ_SCENARIO = ("scenario check s.yaml", "scenario show s.yaml", "sweep s.yaml -j 1 -o swept")
READ_LOG = ("calibrate log -o devices",)
Calls = tuple[str, ...]


def of(chance: random.Random, value: Any) -> Any:
    """A value of another kind."""
    return chance.choice([other for other in VALUES if type(other) is not type(value)] + [ESCAPE])


def change(chance: random.Random, content: Any) -> str:
    """Change one entry of a document at a random depth; returns which."""
    path: list[str] = []
    while True:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        if not keys:
            return "nothing"
        key = chance.choice(keys)
        path.append(str(key))
        if isinstance(content[key], dict | list) and content[key] and chance.random() < 0.7:
            content = content[key]
        elif chance.random() < 0.1 and isinstance(content, dict):
            del content[key]
            return ".".join(path) + " deleted"
        else:
            content[key] = of(chance, content[key])
            return f"{'.'.join(path)} = {content[key]!r:.60}"


def restamp(path: Path, content: Any, key: str = "sha256") -> None:
    """Write a document with the checksum that it would have."""
    content.pop(key, None)
    with contextlib.suppress(TypeError, ValueError):
        content = stamped(content, key)
    path.write_text(json.dumps(content))


def table(chance: random.Random, path: Path) -> str:
    """Change one column of a table; returns which."""
    content = pq.read_table(path)
    if not content.num_columns or not content.num_rows:
        path.write_bytes(b"")
        return f"{path.name} empty"
    name = chance.choice(content.column_names)
    index, rows = content.column_names.index(name), content.num_rows
    arrays: dict[str, Callable[[], pa.Array]] = {
        "nulls": lambda: pa.nulls(rows, content.schema.field(name).type),
        "null type": lambda: pa.nulls(rows),
        "text": lambda: pa.array([ESCAPE] * rows),
        "NaN": lambda: pa.array(np.full(rows, np.nan)),
        "infinite": lambda: pa.array(np.full(rows, -np.inf)),
        "huge": lambda: pa.array(np.full(rows, 2**62)),
        "negative": lambda: pa.array(np.full(rows, -(2**62))),
        "lists": lambda: pa.array([[1, 2]] * rows),
        "structures": lambda: pa.array([{"a": 1}] * rows),
        "bytes": lambda: pa.array([b"\xff\xfe"] * rows),
        "dictionary": lambda: pa.array([ESCAPE] * rows).dictionary_encode(),
        "decimals": lambda: pa.array([1] * rows).cast(pa.decimal128(38, 2)),
        "dates": lambda: pa.array([2**40] * rows, pa.timestamp("us")),
        "booleans": lambda: pa.array([True] * rows),
    }
    kinds = [*arrays, "deleted", "twice", "reversed", "doubled", "renamed", "no rows", "many rows"]
    kind = chance.choice([*kinds, *["one value"] * 8])
    if kind == "one value":
        values, field = content.column(name).to_pylist(), content.schema.field(name)
        whole = pa.types.is_integer(field.type)
        extreme = chance.choice([2**31 - 1, 10**6, -7] if whole else [np.nan, np.inf, -5.0, 1e300])
        if field.type == pa.int64() and chance.random() < 0.5:
            extreme = chance.choice([2**63 - 1, -(2**63)])
        if whole or pa.types.is_floating(field.type):
            values[chance.randrange(rows)], kind = extreme, f"one value {extreme}"
        content = content.set_column(index, field, pa.array(values, field.type))
    elif kind == "no rows":
        content = content[:0]
    elif kind == "many rows":
        content = content.take(pa.array(np.zeros(20_000_000 // content.num_columns, np.int64)))
    elif kind in arrays:
        content = content.set_column(index, name, arrays[kind]())
    elif kind == "deleted":
        content = content.drop([name])
    elif kind == "twice":
        content = content.append_column(name, content.column(name))
    elif kind == "renamed":
        content = content.rename_columns([ESCAPE if n == name else n for n in content.column_names])
    elif kind == "doubled":
        content = pa.concat_tables([content, content])
    else:
        content = content.take(pa.array(range(rows - 1, -1, -1)))
    pq.write_table(content, path)
    return f"{path.name}: {name} {kind}"


# -- kinds of inputs: each changes the working folder, and returns what it did and the calls that read it ------------


def record(chance: random.Random) -> tuple[str, Calls]:
    """``run.json`` with another type or value, and the right checksum."""
    content = json.loads(Path("made/run.json").read_text())
    said = change(chance, content)
    restamp(Path("made/run.json"), content)
    return said, READ_RUN


def tables(chance: random.Random) -> tuple[str, Calls]:
    """A table of a run with another column, and the right checksum."""
    content = json.loads(Path("made/run.json").read_text())
    name = chance.choice([name for name in content["files"] if name.endswith(".parquet")])
    said = table(chance, Path("made") / name)
    content["files"][name] = hashlib.sha256(Path("made", name).read_bytes()).hexdigest()
    restamp(Path("made/run.json"), content)
    return said, READ_RUN


def answers(chance: random.Random) -> tuple[str, Calls]:
    """The record or a table of a sweep, decision, forecast or board."""
    kind = chance.choice(list(READ_ANSWER))
    shutil.copytree(Path(kind.file).stem, "answer")
    path = Path("answer") / kind.file
    content = json.loads(path.read_text())
    files = [name for name in content.get("files", {}) if name.endswith(".parquet")]
    if files and chance.random() < 0.4:
        name = chance.choice(files)
        said = table(chance, Path("answer") / name)
        content["files"][name] = hashlib.sha256(Path("answer", name).read_bytes()).hexdigest()
    else:
        said = change(chance, content)
    restamp(path, content)
    return f"{kind.file} {said}", ("ls .", "verify answer", *READ_ANSWER[kind])


def bundles(chance: random.Random) -> tuple[str, Calls]:
    """The manifest or a table of a bundle, with the right checksums."""
    path = Path("bundle/manifest.json")
    content = json.loads(path.read_text())
    if chance.random() < 0.5:
        said = change(chance, content)
    else:
        name = chance.choice(list(content["sha256"]))
        file = Path("bundle") / f"{name}.parquet"
        said = table(chance, file)
        content["sha256"][name] = hashlib.sha256(file.read_bytes()).hexdigest()
    restamp(path, content, "manifest_sha256")
    return said, READ_BUNDLE


def checkpoints(chance: random.Random) -> tuple[str, Calls]:
    """A file of a checkpoint that is cut, flipped, swapped or replaced; and the record beside it."""
    files = [file for file in sorted(Path("begun").rglob("*")) if file.is_file()]
    file = chance.choice(files)
    data = bytearray(file.read_bytes())
    kind = chance.choice(["cut", "zeros", "text", "other", "pickle", "empty"])
    data = {
        "cut": data[: len(data) // 2],
        "zeros": bytearray(len(data)),
        "text": bytearray(b"\xff\xfe{}"),
        "other": bytearray(chance.choice(files).read_bytes()),
        "empty": bytearray(),
        "pickle": bytearray(b"cos\nsystem\n(S'touch pwned'\ntR."),
    }[kind]
    file.write_bytes(data)
    calls = ("ls .", "verify begun", "report begun", "export begun --format csv", "resume begun")
    return f"{file} {kind}", calls


SCENARIOS: dict[str, Callable[[str], bytes]] = {
    "BOM": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-32": lambda text: text.encode("utf-32"),
    "latin-1": lambda text: f"name: caf\xe9\n{text}".encode("latin-1"),
    "NUL": lambda text: text.replace("sgd", "s\0gd").encode(),
    "CR only": lambda text: text.replace("\n", "\r").encode(),
    "tabs": lambda text: text.replace("  ", "\t").encode(),
    "empty": lambda _: b"",
    "comment": lambda _: b"# nothing\n",
    "list": lambda _: b"- 1\n- 2\n",
    "two documents": lambda text: f"{text}---\n{text}".encode(),
    "recursion": lambda text: f"{text}sweep: &a {{values: *a}}\n".encode(),
    "merge": lambda text: f"{text}sweep: {{<<: [{{seeds: [0]}}, 3]}}\n".encode(),
    "python": lambda text: (
        f"{text}name: !!python/object/apply:os.system ['touch pwned']\n".encode()
    ),
    "binary": lambda text: f"{text}name: !!binary aGVsbG8=\n".encode(),
    "set": lambda text: f"{text}tags: !!set {{a, b}}\n".encode(),
    "date": lambda text: f"{text}name: 2026-02-30\n".encode(),
    "null key": lambda text: f"{text}~: 1\n".encode(),
    "list key": lambda text: f"{text}? [a, b]\n: 1\n".encode(),
    "brackets": lambda text: f"{text}sweep: {'[' * 9000}{']' * 9000}\n".encode(),
    "braces": lambda text: f"{text}sweep: {'{a: ' * 3000}1{'}' * 3000}\n".encode(),
    "dashes": lambda _: b"- " * 20_000,
    "escape": lambda text: f'{text}name: "\\e]0;owned\\a\\u202eevil"\n'.encode(),
    "escape key": lambda text: f'{text}"\\e[31m\\u2066": 1\n'.encode(),
    "long name": lambda text: f"{text}name: {'n' * 300_000}\n".encode(),
    "path name": lambda text: f"{text}name: ../../pwned\n".encode(),
    "long key": lambda text: f"{text}{'k' * 200_000}: 1\n".encode(),
    "alias of text": lambda text: (
        f"{text}tags: [&a {'x' * 10_000}, {', '.join(['*a'] * 5000)}]\n".encode()
    ),
}
REPLACED = (
    ("rounds: 20", "rounds: 9223372036854775808"),
    ("rounds: 20", "rounds: .nan"),
    ("rounds: 20", "rounds: 1e400"),
    ("rounds: 20", "simulated_time: 1e400s"),
    ("rounds: 20", "simulated_time: \u0663s"),
    ("rounds: 20", "rounds: 1:30"),
    ("rounds: 20", "simulated_time: 99999999999999d"),
    ("clients: 6", "clients: 1000000000000"),
    ("clients: 6", "clients: -0"),
    ("clients: 6", "clients: 0x7fffffffffffffff"),
    ("cohort: 3", "cohort: 1e308"),
    ("cohort: 3", "cohort: true"),
    ("median: 1s", "median: 1e-400s"),
    ("median: 1s", "median: -0s"),
    ("median: 1s", "median: 1s 1s"),
    ("median: 1s", "median: \uff11s"),
    ("cv: 0.2", "cv: 1e308"),
    ("cv: 0.2", "cv: .inf"),
    ("down: 10Mbps", "down: 1e-308bps"),
    ("down: 10Mbps", "down: 10Mbps\u202e"),
    ("latency: 0.1s", "latency: 1e300s"),
    ("hidden: [16]", "hidden: [1000000000000]"),
    ("hidden: [16]", "hidden: [[16]]"),
    ("hidden: [16]", "hidden: [-1]"),
    ("lr: 0.1", "lr: 1e999"),
    ("lr: 0.1", "lr: '0.1; import os'"),
    ("local_steps: 4", "local_steps: 1e18"),
    ("local_steps: 4", "local_steps: 10_0"),
    ("threads: 1", "threads: 1000000"),
    ("every_rounds: 5", "every_rounds: 0"),
    ("dataset: digits", "dataset: ../../../etc/passwd"),
    ("name: uniform", "name: __import__('os')"),
    ("name: uniform", "name: os:system"),
    ("name: mlp", "name: /dev/zero"),
    ("name: lognormal", "name: ./pwned.py:Part"),
    ("devices:", "devices:\n  trace: /dev/zero"),
    ("devices:", "devices:\n  trace: http://127.0.0.1:9/x"),
    ("devices:", "devices:\n  trace: '~nobody/\\0'"),
    ("devices:", "devices:\n  trace: [a]"),
    ("devices:", 'devices:\n  eligibility: "().__class__.__base__.__subclasses__()"'),
)


def scenarios(chance: random.Random) -> tuple[str, Calls]:
    """Another text of a scenario, or a value out of range."""
    file = Path("s.yaml")
    choices: list[str | tuple[str, str]] = [*SCENARIOS, *REPLACED]
    name = chance.choice(choices)
    if isinstance(name, str):
        file.write_bytes(SCENARIOS[name](file.read_text()))
        return name, (*READ_SCENARIO, "run s.yaml --timing-only -o out")
    file.write_text(file.read_text().replace("{name: digits}", "digits").replace(name[0], name[1]))
    return f"{name[0]} -> {name[1]}", READ_SCENARIO


LOG = "client,start,end\n" + "".join(f"c{row % 3},{row},{row + 2}\n" for row in range(30))
LOGS: dict[str, Callable[[], bytes]] = {
    "UTF-16": lambda: LOG.encode("utf-16"),
    "BOM": lambda: b"\xef\xbb\xbf" + LOG.encode(),
    "NUL": lambda: LOG.replace("c1", "c\0").encode(),
    "escape": lambda: LOG.replace("c1", ESCAPE).encode(),
    "escape header": lambda: LOG.replace("start", f"start{ESCAPE}").encode(),
    "formula": lambda: LOG.replace("c1", "=cmd|'/c calc'!A0").encode(),
    "empty": lambda: b"",
    "header": lambda: b"client,start,end\n",
    "no newline": lambda: b"client,start,end",
    "quote": lambda: f'{LOG}"'.encode(),
    "wide": lambda: (",".join(f"c{i}" for i in range(50_000)) + "\n").encode(),
    "long cell": lambda: LOG.replace("c1", "x" * 2_000_000, 1).encode(),
    "huge": lambda: LOG.replace(",5,", f",{'9' * 5000},").encode(),
    "1e400": lambda: LOG.replace(",5,", ",1e400,").encode(),
    "nan": lambda: LOG.replace(",5,", ",nan,").encode(),
    "year 9999": lambda: LOG.replace(",5,", ",9999-12-31T23:59:60Z,").encode(),
    "mixed": lambda: LOG.replace(",5,", ",2026-03-29T02:30,").encode(),
    "backward": lambda: LOG.replace(",5,", ",500000,").encode(),
    "twice": lambda: LOG.replace("start,end", "start,start").encode(),
    "random": lambda: random.Random(0).randbytes(10_000),
    "JSON lines": lambda: b'{"client": {"a": []}, "start": [1], "end": null}\n' * 5,
    "deep JSON": lambda: b'{"client": ' + b"[" * 50_000 + b"]" * 50_000 + b"}\n",
    "gzip bomb": lambda: gzip.compress(b"client,start,end\n" + b"0" * 100_000_000, 1),
    "zstd bomb": lambda: pa.compress(LOG.encode() * 900_000, "zstd", asbytes=True),
    "gzip cut": lambda: gzip.compress(LOG.encode())[:40],
    "Parquet cut": lambda: b"PAR1" + bytes(50) + b"PAR1",
    "messages": lambda: b"PK\x03\x04" + bytes(100),
}


def logs(chance: random.Random) -> tuple[str, Calls]:
    """A log for ``calibrate``, under the names of several formats."""
    name = chance.choice(list(LOGS))
    content = LOGS[name]()
    ending = chance.choice(
        ["csv", "csv", "jsonl", "parquet", "csv.gz", "log", "tsv", "xlsx", "json"]
    )
    if "gzip" in name:
        ending = "csv.gz"
    elif "zstd" in name:
        ending = "csv.zst"
    Path(f"log.{ending}").write_bytes(content)
    online = f"traces import table log.{ending} devices.csv {chaos.UNITS} -o imported"
    return f"{name} .{ending}", (f"calibrate log.{ending} -o devices", online)


def archive(chance: random.Random) -> tuple[str, Calls]:
    """An archive whose members leave its folder, are links, devices, or do not end."""
    kind = chance.choice(
        ["parent", "absolute", "link", "hard link", "device", "fifo", "bomb", "twice", "encrypted"]
    )
    stream = io.BytesIO()
    if kind in ("bomb", "twice", "encrypted") or chance.random() < 0.3:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name in ("../pwned.csv", "online.csv", "ONLINE.csv"):
                zipped.writestr(name, LOG if kind != "bomb" else "0" * 100_000_000)
        ending = "zip"
    else:
        with tarfile.open(fileobj=stream, mode="w:gz") as tar:
            member = tarfile.TarInfo(
                {"parent": "../pwned.csv", "absolute": "/tmp/pwned.csv"}.get(kind, "online.csv")
            )
            member.type = {
                "link": tarfile.SYMTYPE,
                "hard link": tarfile.LNKTYPE,
                "device": tarfile.CHRTYPE,
                "fifo": tarfile.FIFOTYPE,
            }.get(kind, tarfile.REGTYPE)
            member.linkname, member.size = "/etc/passwd", 0
            tar.addfile(member)
        ending = "tar.gz"
    Path(f"log.{ending}").write_bytes(stream.getvalue())
    source = chance.choice(["table", "fedscale", "livelab", "avt", "nudge"])
    return f"{kind} .{ending}", (
        f"calibrate log.{ending} -o devices",
        f"traces import {source} log.{ending} -o imported",
    )


def places(chance: random.Random) -> tuple[str, Calls]:
    """A directory, FIFO, loop, device or other file in place of a file; times in the future."""
    targets: dict[str, Calls] = {
        "made/run.json": READ_RUN,
        "made/dispatches.parquet": READ_RUN,
        "made/scenario.yaml": READ_RUN,
        "made/report.html": ("report made", "verify made"),
        "made/evaluations.parquet": READ_RUN,
        "begun/run.json": ("ls .", "resume begun"),
        "begun/checkpoint": ("verify begun", "resume begun"),
        "bundle/manifest.json": READ_BUNDLE,
        "bundle/devices.parquet": READ_BUNDLE,
        "s.yaml": READ_SCENARIO,
        "sweep/sweep.json": ("ls .", "verify sweep", "sweep sweep.yaml -j 1 -o sweep"),
        "online.csv": (chaos.COMMANDS["traces import"].call,),
        "decide/decide.json": ("ls .", "verify decide", f"{chaos.DECIDE} -j 1 -o decide"),
        "board/runs.parquet": (
            "verify board",
            chaos.COMMANDS["board"].call.replace("-o out", "-o board"),
        ),
    }
    name = chance.choice(list(targets))
    path = Path(name)
    kind = chance.choice(
        ["directory", "fifo", "loop", "dangling", "zero", "empty", "future", "gone", "parent"]
    )
    if kind == "fifo" and name in ("online.csv", "s.yaml"):
        kind = "loop"  # A pipe that a user names is read, as in <(zcat online.csv.gz).
    if kind != "future":
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    links = {"loop": path.name, "dangling": "nowhere", "zero": "/dev/zero", "parent": ".."}
    if kind in links:
        path.symlink_to(links[kind])
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "empty":
        path.touch()
    elif kind == "future" and path.exists():
        os.utime(path, (2**33, 2**33))
    return f"{name} {kind}", targets[name]


KINDS: dict[str, Callable[[random.Random], tuple[str, Calls]]] = {
    "scenario": scenarios,
    "run.json": record,
    "table of a run": tables,
    "sweep, decision, forecast, board": answers,
    "bundle": bundles,
    "checkpoint": checkpoints,
    "log": logs,
    "archive": archive,
    "file system": places,
}


# -- all of them ----------------------------------------------------------------------------------------------------


def pwned() -> set[str]:
    """What hostile input has made, in and beside the working folder; others may be removing folders there."""
    names = chain.from_iterable(
        folders + files for _, folders, files in os.walk(Path.cwd().parent, onerror=None)
    )
    return {name for name in (*names, *os.listdir("/tmp")) if "pwned" in name}


def called(
    arguments: str, before: Callable[[], None] = lambda: None, cut_s: float = CUT_S
) -> tuple[int, str, list[str]]:
    """Call a command in a copy of this process; returns its exit code, its output and what did not hold."""
    log, outside = Path.cwd().parent / "log", pwned()
    log.write_text("")
    began, base = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    process = os.fork()
    if not process:
        chaos.enter(shlex.split(arguments), chaos.Command(arguments, ""), before, log)
    while True:
        ended, status, usage = os.wait4(process, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > began + cut_s:
            os.killpg(process, signal.SIGKILL)
            began = time.monotonic()
        time.sleep(0.005)
    text = log.read_text(errors="replace")
    code, took_s = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
    problems = [] if code in (chaos.DONE, chaos.USER) else [f"exit code {code}"]
    problems += [word for word in ("Traceback", "bug in fedsim") if word in text]
    odd = {c for c in text if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\t\r"}
    problems += [f"control characters {odd}"] if odd else []
    problems += [f"{took_s:.1f} s"] if took_s > LONGEST_S else []
    more = usage.ru_maxrss * 1024 - base
    problems += [f"{more / 1e6:.0f} MB"] if more > MOST_BYTES else []
    problems += ["executed, or written outside"] if pwned() - outside else []
    return code, text, problems


def call(arguments: str) -> list[str]:
    """What did not hold when a command is called."""
    _, text, problems = called(arguments)
    return [f"fedsim {arguments}: {', '.join(problems)}\n{text[-1500:]}"] if problems else []


def prepare(folder: Path) -> None:
    """What the commands read."""
    chaos.prepare(folder)
    Path("traced.yaml").write_text(
        "task: {name: quadratic, centers: [1, 2, 3]}\n"
        "devices: {trace: ./bundle, network: {name: static, down: 1Mbps, up: 1Mbps}}\nstop: {rounds: 2}\n"
    )
    for name in ("sweep", "decide", "forecast", "board"):
        each = chaos.COMMANDS[name].call.replace("-o out", f"-o {name}")
        trial = chaos.Trial(chaos.Command(each, ""), random.Random(), 0.0)
        trial.must_end(trial.start(), chaos.DONE)


def main() -> int:
    """Try hostile inputs; the exit code is 1 if something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=25, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=KINDS)
    options = parser.parse_args()
    for name in chaos.HEAVY:
        importlib.import_module(name)
    setattr(suites, "suite", chaos.only_tiny)  # noqa: B010
    tried, problems = Counter[str](), 0
    print("| input | inputs | calls | problems |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared"
        prepare(prepared)
        for kind in options.only:
            wrong = 0
            for number in range(options.inputs):
                chance = random.Random(f"{options.seed} {kind} {number}")
                chaos.fresh(prepared)
                said, calls = KINDS[kind](chance)
                for each in calls:
                    tried[kind] += 1
                    for problem in call(each):
                        wrong += 1
                        print(
                            f"{kind} {number}: {said}\n  {problem}\n", file=sys.stderr, flush=True
                        )
            problems += wrong
            print(f"| {kind} | {options.inputs} | {tried[kind]} | {wrong} |", flush=True)
        os.chdir("/")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
