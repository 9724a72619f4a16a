"""Gives every spelling of a value, in every type of file, to every reader of files of others.

``python -m benchmarks.readers [--only READER ...]`` changes one cell of a small valid file at a time, prints what does
not hold, and then one row per reader with the number of cells. What must hold for each cell: it is read as the
canonical spelling of its value is, or refused by an error that names the file and the column or the line; within 10 s
and 1 GB, without a traceback, a warning or an infinite result. ``readers.yaml`` has the files, and what is right.
It needs the package openpyxl.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import gzip
import io
import itertools
import json
import multiprocessing
import os
import re
import resource
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import openpyxl  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
from ruamel.yaml import YAML

from fedsim.calibration.log import read_log
from fedsim.calibration.power import read_power
from fedsim.composition import edges
from fedsim.errors import UserError
from fedsim.network.graphs import File
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.loading import load_scenario
from fedsim.scenario.model import EdgeFile
from fedsim.traces.importers import import_bundle

LONGEST_S, MOST_BYTES = 10.0, 1 << 30
REFUSED, UNKNOWN, NEVER, SAME, ANY = "refused", "", "never", "same", "any"
"""Meanings of a cell beside its value: any is not compared."""
RIGHT: dict[str, Any] = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))
READERS: dict[str, dict[str, Any]] = RIGHT["readers"]
TABLES = ["csv", "tsv", "csv.gz", "csv.zip", "jsonl", "json", "xlsx", "parquet", "feather"]
PARQUET_LIKE = ("parquet", "jsonl")
FEW = ("7", "1e-05", "-", "x", "1,5", "5s", "5%", "nan", "007", "2024-05-01 08:00:00Z")
"""Texts for types of files that are read as others are."""
NUMBERS = ("number", "time", "span", "share", "mark")
NUMERIC: list[Any] = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()]
NUMERIC += [pa.decimal128(20, 3), pa.decimal256(40, 3)]
EXACT = [*NUMERIC, pa.string_view(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
EXACT += [pa.dictionary(pa.int32(), kind) for kind in (pa.string(), pa.float64(), pa.binary())]
OTHER = [pa.bool_(), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.null()]
OTHER += [pa.binary(16), pa.list_(pa.float64()), pa.month_day_nano_interval()]
OTHER += [pa.map_(pa.string(), pa.float64()), pa.struct([("a", pa.float64())])]
OTHER += [pa.timestamp(unit, zone) for unit in ("s", "ns") for zone in (None, "UTC")]
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
ZONES = ("UTC", "+00:00", "Europe/Berlin", "America/New_York")
EXTREMES: list[Any] = [2**63 - 1, -(2**63) + 1, 2**53 + 1, 2**64 - 1, 2**31 - 1, 0, -1, 2.5]
EXTREMES += [np.nan, np.inf, -np.inf, 1.7e308, 3.4e38, 5e-324, 1e-45, -0.0, Decimal(10**75)]
AT = datetime.datetime(2024, 5, 1, 8)
TYPED: list[Any] = [
    True,
    None,
    [7],
    {"a": 7},
    [],
    AT,
    AT.date(),
    AT.time(),
    datetime.timedelta(0, 5),
    7.5,
]


class Trial(NamedTuple):
    """A file with one changed cell or column, what it means, and whether it must be read."""

    said: str
    form: str
    cells: Mapping[str, Any]
    meaning: str
    must: bool = False


# Readers: each returns what can be compared -------------------------------------------------------------------------


def read(reader: Mapping[str, Any], path: Path) -> Any:
    how, _, name = reader["read"].partition(" ")
    given, random = reader.get("with", {}), np.random.default_rng(0)
    if how == "import":
        importer = CATALOG.parts("importer")[name]
        bundle = import_bundle(importer, [path], importer.Params(name="b", **given))
        facts = bundle.manifest.horizon_us, bundle.manifest.epoch, bundle.manifest.clock
        return facts, {name: table.to_pydict() for name, table in bundle.tables.items()}
    if how == "log":
        log = read_log(path)
        return log.origin_s, {name: log.dispatches[name].tolist() for name in log.dispatches}
    if how == "power":
        file = Path("log.csv")
        file.write_text("client,start,downloaded,computed,end\na,0,10,20,30\na,40,50,60,70\n")
        return read_power([path], read_log(file))[0]
    if how == "data":
        component = CATALOG.parts("dataset")[name]
        data = vars(component(component.Params(path=path, **given)).load())
        return {key: value for key, value in data.items() if key != "notes"}
    some: Any = SimpleNamespace(
        folder=Path(),
        names={},
        task=SimpleNamespace(clients=2),
        scenario=SimpleNamespace(server=SimpleNamespace(edges=None)),
        train_y=np.zeros(10),
        name="d",
    )
    if how == "partition":
        component = CATALOG.parts("partition")["file"]
        return vars(component(component.Params(path=path)).assign(some, random, None))
    if how == "edges":
        return vars(edges._of_file(some, EdgeFile(name="file", path=path)))
    if how == "graph":
        graph = File(name="file", path=path, server="a").topology(some)
        losses = [route.loss for route in graph.routes]
        return graph.links, graph.capacity_bps, graph.latency_ns, losses
    return load_scenario(path).resolved()


# What is right ------------------------------------------------------------------------------------------------------


def spelled(text: str) -> str:
    """A text of the table."""
    parts = {"0. and zeros": "0." + "0" * 10**7, "zeros and 7": "0" * 10**7 + "7"}
    parts |= {"x": "x" * 10**7, "1": "1" * 10**7, "stamp and x": f"{AT}Z" + "x" * 10**7}
    return parts.get(text[1:-1], text) if text[:1] == "<" else text


def meanings(quantity: str) -> dict[str, tuple[str, bool]]:
    """What each text means as a quantity, and whether it must be read if its canonical spelling is."""
    if quantity == "name":
        table = {text: (spelled(text), False) for text in RIGHT["name"]}
    elif quantity in ("stamp", "json"):
        table = {text: (value, False) for value, texts in RIGHT[quantity].items() for text in texts}
    elif quantity == "optional":
        unknown = dict.fromkeys(("null", "NaN"), (ANY, False))
        table = meanings("json") | unknown
    elif quantity == "mark":
        table = {text: (value, False) for text, value in RIGHT[quantity].items()}
    else:
        wrong = (*RIGHT["wrong"], *RIGHT["span"], *RIGHT["share"])
        table = dict.fromkeys(wrong, (REFUSED, False))
        table |= {text: (format(Decimal(text), "f"), True) for text in RIGHT["plain"]}
        table |= {text: (value, False) for text, value in RIGHT["lenient"].items()}
        table |= dict.fromkeys(RIGHT["unknown"], (UNKNOWN, False))
        infinite = NEVER if quantity == "time" else REFUSED
        table |= dict.fromkeys(RIGHT["infinite"], (infinite, False))
        also = {"time": "span", "span_unit": "span"}.get(quantity, quantity)
        table |= {text: (value, False) for text, value in RIGHT.get(also, {}).items()}
    return {spelled(text): right for text, right in table.items()}


def number(value: Any, quantity: str) -> str:
    """What a number means that is no text."""
    if isinstance(value, float) and not np.isfinite(value):
        return UNKNOWN if np.isnan(value) else NEVER if quantity == "time" else REFUSED
    return format(Decimal(value), "f")


def instant(ticks: int, unit: str) -> str:
    """What a timestamp means; the first and the last year of dates stand for those beyond."""
    try:
        micros = int(Decimal(ticks) * 10**6 / TICKS[unit])
        return f"{datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)}Z"
    except OverflowError:
        return "9999-12-31T23:59:59Z" if ticks > 0 else "0001-01-01T00:00:00Z"


# Trials -------------------------------------------------------------------------------------------------------------


def typed(text: str) -> Any:
    """A cell as programs that know types write it."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def columns(reader: Mapping[str, Any], *, plain: bool) -> dict[str, list[Any]]:
    """The columns of the valid file, as text or typed."""
    return {
        name: [str(each) if plain or quantity not in NUMBERS else typed(each) for each in cells]
        for name, (quantity, *cells) in reader["columns"].items()
    }


def arrow(values: list[Any], kind: Any) -> Any:
    """Numbers as a column of an Arrow type; None if it does not have them."""
    value: Any = getattr(kind, "value_type", kind)
    makes: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...] = (
        (pa.types.is_nested, lambda each: {"a": each} if pa.types.is_struct(kind) else [each]),
        (lambda kind: "binary" in str(kind), lambda each: f"{each:g}".encode().rjust(16)[-16:].lstrip()),
        (lambda kind: "string" in str(kind), lambda each: f"{each:g}"),
        (pa.types.is_decimal, lambda each: Decimal(str(each))),
        (pa.types.is_boolean, bool),
        (lambda kind: "uuid" in str(kind), lambda _: b"0123456789abcdef"),
        (pa.types.is_interval, lambda each: (0, 0, int(each))),
        (pa.types.is_null, lambda _: None),
        (pa.types.is_floating, lambda each: each),
        (lambda _: True, lambda each: int(each) if each == int(each) else "none"),
    )  # fmt: skip
    make = next(make for fits, make in makes if fits(value))
    with contextlib.suppress(
        pa.ArrowException, OverflowError, ValueError, TypeError, ArithmeticError
    ):
        cells = [make(each) for each in values]
        if pa.types.is_dictionary(kind):
            return pa.array(cells, value).dictionary_encode()
        whole = pa.types.is_temporal(value) and not pa.types.is_interval(value)
        return pa.array(cells, pa.int64()).view(kind) if whole else pa.array(cells, kind)
    return None


def trials(who: str, name: str) -> Iterator[Trial]:
    """The files in which a cell or a column is changed."""
    reader = READERS[who]
    quantity, *cells = reader["columns"][name]
    text, row = columns(reader, plain=True), min(1, len(cells) - 1)
    values = columns(reader, plain=False)

    def with_cell(table: Mapping[str, list[Any]], cell: Any) -> dict[str, list[Any]]:
        return {**table, name: [*table[name][:row], cell, *table[name][row + 1 :]]}

    is_table, few = "text" not in reader, {*map(spelled, FEW)}
    must_read = not who.startswith(("partition", "data set", "scenario"))
    for form, (word, (meaning, must)) in itertools.product(
        reader.get("forms", TABLES), meanings(quantity).items()
    ):
        said, must = repr(word)[:60], must and must_read
        if not is_table:
            if quantity in ("json", "optional") or not re.search(
                "[\"'#[\r]", word
            ):  # They mean something else.
                yield Trial(said, form, {name: word}, meaning, must)
            continue
        if form != "csv" and (len(word) > 1000 or (form not in PARQUET_LIKE and word not in few)):
            continue
        yield Trial(
            said, form, with_cell(text if form[1:3] == "sv" else values, word), meaning, must
        )
        if form == "csv" and not must_read and quantity not in ("name", "mark"):
            right = ANY if word.lower() in ("true", "false") else f"{meaning} everywhere"
            yield Trial(f"all {said}", form, {**text, name: [word] * len(cells)}, right)
        if form in ("jsonl", "xlsx") and not isinstance(typed(word), str) and quantity in NUMBERS:
            right = number(typed(word), quantity)
            yield Trial(f"number {said}", form, with_cell(values, typed(word)), right)
    if not is_table:
        return
    for form, value in itertools.product({"jsonl", "xlsx"} & {*reader.get("forms", TABLES)}, TYPED):
        right = ANY if quantity in ("name", "stamp") else UNKNOWN if value is None else REFUSED
        if isinstance(value, float) and quantity in NUMBERS:
            right = number(value, quantity)
        if isinstance(value, datetime.time | datetime.timedelta) and quantity in ("span", "time"):
            right = "5" if isinstance(value, datetime.timedelta) else "28800"
        yield Trial(f"value {value!r}", form, with_cell(values, value), right)
    if "parquet" not in reader.get("forms", TABLES):
        return
    start, end = datetime.datetime(1970, 1, 1), {"stamp": "Z"}.get(quantity, "")
    if quantity == "stamp":
        seconds = [
            (datetime.datetime.fromisoformat(each.strip(end)) - start).total_seconds()
            for each in cells
        ]
    else:
        seconds = [7.0 if isinstance(typed(each), str) else float(each) for each in cells]
    for unit, ticks in TICKS.items():
        kinds = (
            [pa.timestamp(unit, zone) for zone in ZONES]
            if quantity == "stamp"
            else [pa.duration(unit)]
        )
        is_right = quantity in ("stamp", "span", "time")
        for kind, extreme in itertools.product(kinds, (None, *EXTREMES)):
            scaled: list[Any] = [each * ticks for each in seconds]
            right = SAME if is_right else REFUSED if quantity in NUMBERS else ANY
            if extreme is not None and is_right:
                scaled[row] = extreme
                whole = int(extreme) if np.isfinite(float(extreme)) else 0
                right = (
                    instant(whole, unit)
                    if quantity == "stamp"
                    else number(Decimal(whole) / ticks, quantity)
                )
            if (column := arrow(scaled, kind)) is not None:
                yield Trial(
                    f"{kind} {extreme}",
                    "parquet",
                    {**values, name: column},
                    right,
                    extreme is None and is_right,
                )
    for kind in (*EXACT, *OTHER):
        right = ANY if quantity not in NUMBERS else SAME if kind in EXACT else REFUSED
        right = "unknown everywhere" if kind == pa.null() and quantity in NUMBERS else right
        is_span = pa.types.is_time(kind) and quantity in ("span", "time")
        is_mark = kind == pa.bool_() and who.startswith(("data set", "partition"))
        right = ANY if is_span or is_mark else right
        if (column := arrow(seconds, kind)) is not None:
            yield Trial(f"{kind}", "parquet", {**values, name: column}, right)
    for kind, extreme in itertools.product((*NUMERIC, pa.float32(), pa.float64()), EXTREMES):
        changed = [*seconds[:row], extreme, *seconds[row + 1 :]]
        if quantity in NUMBERS and (column := arrow(changed, kind)) is not None:
            others = column.to_pylist()
            right = number(others.pop(row), quantity)
            if list(map(float, others)) == [*seconds[:row], *seconds[row + 1 :]]:
                yield Trial(f"{kind} {extreme}", "parquet", {**values, name: column}, right)


# Files --------------------------------------------------------------------------------------------------------------


def written(reader: Mapping[str, Any], form: str, cells: Mapping[str, Any]) -> bytes:
    """A file with these columns or fields."""
    if "text" in reader:
        fields = {name: str(cell) for name, (_, cell) in reader["columns"].items()} | {**cells}
        return re.sub("«(.*?)»", lambda match: fields[match[1]], reader["text"]).encode()
    stream, rows = io.BytesIO(), [*zip(*cells.values(), strict=True)]
    if form[1:3] == "sv":
        text = io.StringIO()
        mark = "\t" if form == "tsv" else ","
        csv.writer(text, delimiter=mark, lineterminator="\n").writerows([[*cells], *rows])
        if form.endswith("zip"):
            with zipfile.ZipFile(stream, "w") as archive:
                archive.writestr("t.csv", text.getvalue())
            return stream.getvalue()
        return (
            gzip.compress(text.getvalue().encode())
            if form.endswith("gz")
            else text.getvalue().encode()
        )
    if form in ("json", "jsonl"):
        lines = [json.dumps(dict(zip(cells, row, strict=True))) for row in rows]
        return ("\n".join(lines) if form == "jsonl" else f"[{','.join(lines)}]").encode()
    if form == "xlsx":
        book = openpyxl.Workbook()
        for row in ([*cells], *rows):
            book.active.append(row)
        book.save(stream)
    elif form == "feather":
        pyarrow.feather.write_feather(pa.table({**cells}), stream, "uncompressed")
    else:
        pq.write_table(pa.table({**cells}), stream)
    return stream.getvalue()


def canonical(reader: Mapping[str, Any], name: str, meaning: str) -> tuple[str, bytes]:
    """The type of file and the file with the canonical spelling of a value."""
    forms = reader.get("forms", TABLES)
    form, cell = "csv" if "csv" in forms else forms[0], meaning.removesuffix(" everywhere")
    if "text" in reader:
        return form, written(reader, form, {} if meaning == SAME else {name: cell})
    cells = columns(reader, plain=True)
    for row in range(len(cells[name])):
        if meaning != SAME and (cell != meaning or row == min(1, len(cells[name]) - 1)):
            cells[name][row] = "" if cell == "unknown" else cell
    return form, written(reader, form, cells)


# All of them --------------------------------------------------------------------------------------------------------


def plain(result: Any) -> Any:
    """A result as plain data."""
    if isinstance(result, Mapping):
        return {str(key): plain(value) for key, value in result.items()}
    if isinstance(result, np.ndarray):
        return result.tolist()
    return [*map(plain, result)] if isinstance(result, list | tuple) else result


def alike(one: Any, other: Any) -> bool:
    """Whether two results are the same up to rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float | int) and isinstance(other, float | int):
        return bool(np.isclose(float(one), float(other), 1e-9, 1e-15, equal_nan=True))
    return bool(one == other or (one is None and other != other) or (other is None and one != one))


def infinite(result: Any) -> bool:
    """Whether a result has an infinite number."""
    if isinstance(result, dict | list):
        return any(map(infinite, result.values() if isinstance(result, dict) else result))
    return isinstance(result, float) and bool(np.isinf(result))


def attempt(reader: Mapping[str, Any], form: str, data: bytes) -> tuple[Any, str, list[str]]:
    """What is read from a file, the error, and what did not hold."""
    problems, error, result, path = list[str](), "", None, Path(f"t.{form}")
    path.write_bytes(data)
    began, base = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            result = plain(read(reader, path))
        except UserError as caught:
            error = " ".join(str(caught).split())
            problems += [] if path.name in error else ["does not name the file"]
        except Exception as caught:
            error = f"traceback: {caught!r:.150}"
            problems.append(error)
    problems += [f"warning: {text}" for text in {str(each.message)[:100] for each in warned}]
    took_s = time.process_time() - began
    more = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
    problems += [f"takes {took_s:.0f} s"] if took_s > LONGEST_S else []
    problems += [f"takes {more / 1e6:.0f} MB"] if more > MOST_BYTES else []
    return result, error, problems + (["the error is long"] if len(error) > 4000 else [])


def column(task: tuple[str, str]) -> tuple[str, int, list[str]]:
    """Try all cells of a column of a reader; returns the reader, their number, and what did not hold."""
    (who, name), tried, anomalies = task, 0, list[str]()
    reader, known = READERS[who], dict[str, tuple[Any, str]]()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for trial in trials(who, name):
            try:
                data = written(reader, trial.form, trial.cells)
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                continue  # No such file can be written.
            tried += 1
            result, error, problems = attempt(reader, trial.form, data)
            meaning = trial.meaning
            if meaning.startswith(REFUSED):
                known[meaning] = None, "it is no such value"
            elif meaning != ANY and meaning not in known:
                known[meaning] = attempt(reader, *canonical(reader, name, meaning))[:2]
            right, refusal = known.get(meaning, (result, error))
            if not error and refusal:
                problems.append(f"read, but {meaning[:50]!r} is refused: {refusal[:150]}")
            elif not error and not alike(result, right):
                problems.append(f"read as another value than {meaning[:50]!r}")
            elif error and trial.must and not refusal:
                problems.append("refused, but its canonical spelling is read")
            if not error and infinite(result):
                problems.append("infinite")
            names = name.lower() in error.lower() or re.search(r"(t\.\w+(!t\.csv)?:|row )\d", error)
            is_value = refusal and not meaning.startswith(REFUSED)
            if error and "text" not in reader and not names and not is_value:
                problems.append("names neither column nor line")
            said = f"{who} | {name} | {trial.form} | {trial.said}"
            anomalies += [f"{said} | {problem} | {error[:200]}" for problem in problems]
    return who, tried, anomalies


def main() -> int:
    """Try all cells; the exit code is 1 if something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=list(READERS), choices=READERS)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    every = [(who, *each) for who in options.only for each in READERS[who]["columns"].items()]
    tasks = [(who, name) for who, name, cell in every if cell[0] not in ("state", "text")]
    tried, wrong = Counter[str](), Counter[str]()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for who, count, anomalies in pool.imap_unordered(column, tasks):
            tried[who] += count
            wrong[who] += len(anomalies)
            print(*anomalies, sep="\n", end="\n" * bool(anomalies), file=sys.stderr, flush=True)
    print("| reader | cells | anomalies |\n|---|---:|---:|")
    for who in options.only:
        print(f"| {who} | {tried[who]} | {wrong[who]} |")
    return 1 if wrong.total() else 0


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(main())
