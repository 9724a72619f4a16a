"""Runs with every pair, or triple, of the values of a scenario's parameters, checked by what must hold for all runs.

``python -m benchmarks.pairs --strength 3`` makes rows of values until every triple has occurred in a run or is refused,
and says how many runs were made, how many combinations were refused, and what was wrong. It continues where an earlier
call with the same file ended. The parameters, the invariants and the generator are those of ``tests/pairs``, which run
all pairs with the tests.

``--learn`` writes ``tests/pairs/refused.json`` again: the refused combinations and their messages.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedsim.errors import without_numbers
from tests.pairs import refusals
from tests.pairs.arrays import Combination, CoveringArray
from tests.pairs.invariants import INVARIANTS, executions_agree
from tests.pairs.parameters import SLOW, Row, parameters, scenario, write_files
from tests.pairs.running import quick, run

Record = Mapping[str, Any]
"""A row, and either ``wrong``, a list of sentences, or ``refused``, combinations with their messages."""


class Pairs:
    """The runs of one array, and the file in which their results are noted.

    Args:
        strength: number of parameters of a combination.
        path: the file, one row of JSON per run or refusal.
        folder: folder for files and run folders.
    """

    def __init__(self, strength: int, path: Path, folder: Path) -> None:
        self.table = parameters()
        self.folder = folder
        self.path = path
        self.judge = refusals.Judge(self.table, folder)
        self.refused = dict(refusals.read())
        self.array = CoveringArray(self.table, strength, self.refused, SLOW)
        self.records = list(self._earlier())
        self.learned: dict[Combination, str] = {}
        for record in self.records:
            self._note(record)

    def _earlier(self) -> Iterator[Record]:
        if self.path.is_file():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)

    def _note(self, record: Record) -> None:
        if "refused" not in record:
            self.array.cover(record["row"])
            return
        for pairs, message in record["refused"]:
            combination = frozenset(map(tuple, pairs))
            self.learned[combination] = message
            self.array.refuse(combination)

    def run(self, seconds: float) -> None:
        """Make rows until none is left, or the time has passed."""
        until = shown = time.monotonic()
        until += seconds
        for row in self.array.rows():
            record = self.tried(row)
            self.records.append(record)
            self._note(record)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            if record.get("wrong"):
                print("wrong:", *record["wrong"], row, sep="\n  ", flush=True)
            now = time.monotonic()
            if now > shown + 10:
                shown = now
                print(f"{len(self.records):,} rows, {self.array.left:,} combinations left", flush=True)
            if now > until:
                return

    def tried(self, row: Row) -> Record:
        """The record of a row."""
        error = self.judge.refusal(row)
        if error is not None:
            blamed = self.judge.blamed(row)
            lacking = refusals.problems(error)
            refused = [(sorted(one), message) for one, message in blamed.items()]
            return {"row": row, "refused": refused, "wrong": lacking}
        runs = self.folder / "run"
        try:
            finished = run(scenario(row, self.table, self.folder))
            wrong = [sentence for check in INVARIANTS for sentence in check(finished)]
            wrong += executions_agree(finished, row["execution"], runs)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            name = Path(place.filename).name
            wrong = [f"{type(error).__name__}: {error} ({name}:{place.lineno})"]
        finally:
            shutil.rmtree(runs, ignore_errors=True)
        return {"row": row, "wrong": wrong}

    def report(self) -> str:
        """How many combinations, runs and refusals there were, and what was wrong."""
        runs = [record for record in self.records if "refused" not in record]
        bad = [record for record in self.records if record["wrong"]]
        kinds = Counter(without_numbers(record["wrong"][0]) for record in bad)
        values = sum(map(len, self.table.values()))
        lines = [
            f"{values} values of {len(self.table)} parameters, {self.array.total:,} combinations of "
            f"{self.array.strength}, {self.array.left:,} left, {self.array.unreachable:,} only with refused ones",
            f"{len(runs):,} runs, {len(self.refused) + len(self.learned):,} refused combinations, {len(bad):,} wrong",
            *(f"  {count:,} {kind}" for kind, count in kinds.most_common()),
        ]
        return "\n".join(lines)


def main() -> None:
    """Parse the options, run, and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--strength", type=int, default=2, help="number of parameters of a combination")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--results", type=Path, help="file of the results; pairs-STRENGTH.jsonl by default")
    parser.add_argument("--learn", action="store_true", help="write the refused combinations again")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder, quick():
        write_files(Path(folder))
        if options.learn:
            judge = refusals.Judge(parameters(), Path(folder))
            known = {one: text for one, text in refusals.read().items() if judge.still(one, text)}
            refusals.write(refusals.learn(judge, known=known, progress=print))
            return
        path = options.results or Path(f"pairs-{options.strength}.jsonl")
        pairs = Pairs(options.strength, path, Path(folder))
        pairs.run(options.seconds)
        print(pairs.report())


if __name__ == "__main__":
    main()
