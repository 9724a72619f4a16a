"""Every pair of values of the parameters of a scenario: in a run that obeys the invariants, or refused with a reason.

``python -m benchmarks.pairs --strength 3`` does the same with all triples.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from fedsim.parts.catalog import CATALOG
from tests.pairs import refusals
from tests.pairs.arrays import Combination, CoveringArray
from tests.pairs.invariants import INVARIANTS, executions_agree
from tests.pairs.parameters import SLOW, Row, parameters, scenario, write_files
from tests.pairs.running import Finished, left, quick, run

TABLE = parameters()
PARTS = 4
"""Number of tests among which the rows are divided."""
LEARN = "python -m benchmarks.pairs --learn"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the files that values name; modules are checked only once."""
    path = tmp_path_factory.mktemp("pairs")
    write_files(path)
    with quick():
        yield path


@pytest.mark.parametrize("part", range(PARTS))
def test_every_pair_that_is_not_refused_obeys_the_invariants(part: int, folder: Path) -> None:
    rows, unreachable = covering_rows()
    wrong = []
    for number, row in list(enumerate(rows))[part::PARTS]:
        try:
            found = problems(row, folder, number)
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        wrong += [f"{sentence}: {row}" for sentence in found]
    judge = refusals.Judge(TABLE, folder)
    for combination in unreachable[part::PARTS]:
        assert judge.refusal({**judge.base, **dict(combination)}) is not None, LEARN
    assert not wrong, "\n".join(wrong)


@functools.cache
def covering_rows() -> tuple[list[Row], list[Combination]]:
    """Rows with every pair that is not refused, and the pairs that occur only with refused ones."""
    array, rows = CoveringArray(TABLE, 2, refusals.read(), SLOW), []
    for row in array.rows():
        array.cover(row)
        rows.append(row)
    return rows, array.unreachable


def problems(row: Row, folder: Path, number: int) -> list[str]:
    """What is wrong with the run of a row."""
    finished = run(scenario(row, TABLE, folder))
    found = [sentence for check in INVARIANTS for sentence in check(finished)]
    return [*found, *executions_agree(finished, row["execution"], folder / f"run{number}")]


def test_refused_combinations_are_refused_with_a_reason(folder: Path) -> None:
    judge = refusals.Judge(TABLE, folder)
    for combination, message in refusals.read().items():
        error = judge.refusal({**judge.base, **dict(combination)})
        assert error is not None, f"{sorted(combination)} is no longer refused: {LEARN}"
        assert not refusals.problems(error)
        assert message in refusals.messages_of(error), LEARN


def test_every_part_is_among_the_values() -> None:
    # Kinds whose parts do not meet others in a run, or only through what the table has.
    names = {value for value in _strings(json.loads(json.dumps(TABLE))) if ":" not in value} | {
        "static",
        "fluid",
        "constant",
        "sgd",
    }
    without = {
        "network": {"traced"},
        "lr_schedule": {"exponential", "piecewise"},
    }
    kinds = ("method", "schedule", "selection", "compression", "submodels", "optimizer")
    for kind in (*kinds, "lr_schedule", "network", "transport", "exchange"):
        assert set(CATALOG.parts(kind)) - without.get(kind, set()) <= names, kind


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)


# -- the array ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [2, 3])
def test_an_array_has_every_combination_but_refused_ones(strength: int) -> None:
    table = {"a": "012", "b": "01", "c": "0123", "d": "01"}
    refused = {
        frozenset({("a", "0"), ("b", "1")}),
        frozenset({("a", "1"), ("c", "2"), ("d", "0")}),
        # What remains of c=3 is refused with both values of d.
        frozenset({("c", "3"), ("d", "0"), ("b", "0")}),
        frozenset({("c", "3"), ("d", "1"), ("b", "0")}),
    }
    array = CoveringArray(table, strength, refused)
    made = []
    for row in array.rows():
        array.cover(row)
        made.append(set(row.items()))
    assert not any(one <= row for one in refused for row in made)
    names = list(table)
    allowed = [
        set(zip(names, values, strict=True))
        for values in itertools.product(*table.values())
        if not any(one <= set(zip(names, values, strict=True)) for one in refused)
    ]
    for chosen in itertools.combinations(names, strength):
        for values in itertools.product(*(table[name] for name in chosen)):
            wanted = set(zip(chosen, values, strict=True))
            possible = any(wanted <= row for row in allowed)
            assert any(wanted <= row for row in made) == possible, wanted


def test_a_refused_row_is_blamed_on_the_smallest_combination(folder: Path) -> None:
    judge = refusals.Judge(TABLE, folder)
    row = {**judge.base, "method": "scaffold", "edges": "async", "up": "topk", "dtype": "float32"}
    assert frozenset({("method", "scaffold"), ("edges", "async")}) in judge.blamed(row)


@pytest.mark.parametrize("up", ["none", "qsgd"])
@pytest.mark.parametrize("method", ["mifa", "mtgc", "mtgc/kept", "scaffold_p/one", "fedlga"])
def test_at_a_rate_of_zero_nothing_is_learned(method: str, up: str, folder: Path) -> None:
    # Methods that divide changes by the rate; it is zero from round 2 on.
    base = {name: next(iter(values)) for name, values in TABLE.items()}
    content = scenario(
        {**base, "method": method, "rate": "cosine", "up": up, "work": "limited"}, TABLE, folder
    )
    states = []
    for rounds in (2, 4):
        content["stop"] = {"rounds": rounds}
        states.append(left(run(content).learner))
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


# -- the invariants can fail -------------------------------------------------------------------------------------------


def _late(run: Finished) -> None:
    one = run.rows.ended[0]
    run.rows.ended[0] = one._replace(plan=one.plan._replace(end_ns=one.plan.end_ns + 10**9))


def _heavy(run: Finished) -> None:
    one = run.rows.ended[0]
    run.rows.ended[0] = one._replace(plan=one.plan._replace(bytes_up=one.plan.bytes_up + 1))


def _twice(run: Finished) -> None:
    run.rows.aggregates.append(run.rows.aggregates[0])


def _scaled(run: Finished) -> None:
    run.steps[-1].after["model"].mul_(1.01)


def _negative(run: Finished) -> None:
    run.steps[-1].after["model"][run.method.context.layout.trainable :].neg_()


def _memory(name: str, entry: float) -> Callable[[Finished], None]:
    def spoil(run: Finished) -> None:
        row = run.learner.store[name].get([0])
        row[0, 0] += entry
        run.learner.store[name].put([0], row)

    return spoil


@pytest.mark.parametrize(
    ("row", "spoil", "sentence"),
    [
        ({}, _late, "do not add up"),
        ({}, _heavy, "bytes, not"),
        ({"up": "qsgd"}, _heavy, "bytes, not"),
        ({}, _twice, "aggregated twice"),
        ({}, _scaled, "not the weighted mean"),
        ({"method": "fedasync"}, _scaled, "not the weighted mean"),
        ({"up": "topk"}, _memory("error of delta", 1e-3), "not the sum of its updates"),
        ({"method": "scaffold"}, _memory("control", 1e-3), "not the mean or sum"),
        ({"method": "mifa"}, _memory("latest", 1e-3), "not the mean or sum"),
        ({"method": "fedsum"}, _memory("gradient", float("nan")), "not finite"),
        ({"task": "normalized"}, _negative, "variance is negative"),
    ],
)
def test_invariants_notice(
    row: Row, spoil: Callable[[Finished], None], sentence: str, folder: Path
) -> None:
    base = {name: next(iter(values)) for name, values in TABLE.items()}
    finished = run(scenario({**base, **row}, TABLE, folder))
    assert not [found for check in INVARIANTS for found in check(finished)]
    spoil(finished)
    assert any(sentence in found for check in INVARIANTS for found in check(finished))


@pytest.mark.parametrize("execution", ["eager", "two_threads", "resumed", "distributed"])
def test_another_execution_is_compared(execution: str, folder: Path) -> None:
    base = {name: next(iter(values)) for name, values in TABLE.items()}
    finished = run(scenario({**base, "method": "scaffold"}, TABLE, folder))
    assert not list(executions_agree(finished, execution, folder))
    finished.learner._top.models().current["model"].mul_(1.01)
    assert list(executions_agree(finished, execution, folder))
