"""The page of a decision: the answer, how the search came to it, and what mattered."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedsim.analysis.comparison.targets import THROUGHPUT
from fedsim.analysis.figures.base import Column, Figure, drawn_as_lines, sentence
from fedsim.analysis.headline import Tile
from fedsim.analysis.pages import rendered, write_page
from fedsim.decisions.choosing import INDIFFERENCE
from fedsim.decisions.decision import PAGE, Decision, format_objective, joined, label_of, shown
from fedsim.decisions.search import FAILED, RULED_OUT, STOPPED
from fedsim.decisions.space import Choices, Range
from fedsim.vocabulary.formatting import ABSENT, format_counted, format_share


def write_decision_page(decision: Decision) -> None:
    """Write the page into the folder of a decision."""
    figures = {figure.id: figure for figure in _figures(decision)}
    first, *rest = decision.sentence.split("; ")
    page = rendered(
        "decide.html.j2",
        figures,
        title=f"Decision: {decision.scenario.scenario.name}",
        answer=sentence(first),
        rest=[sentence(words) for words in (*rest, decision.binding, decision.ruled_out) if words],
        tiles=_tiles(decision),
        fronts=[figure for name, figure in figures.items() if name.startswith("front")],
        notes=decision.notes,
    )
    write_page(decision.path / PAGE, page)


def _tiles(decision: Decision) -> Iterator[Tile]:
    winner, name = decision.finalists[0], decision.objectives[0]
    if math.isnan(winner.probability):
        yield Tile(sentence(label_of(name)[0]), *winner.described())
    else:  # The headline has the value.
        note = f"at most {INDIFFERENCE:.0%} worse than the best"
        yield Tile("Probability of being good", winner.chance, note)
    for given in decision.finalists[1:]:
        if not given.setting:
            yield Tile("As given", given.described()[0], given.words[10:-1])
    tried = decision.tried
    early = sum(each.state == STOPPED for each in tried)
    failed = sum(each.state == FAILED for each in tried)
    ruled_out = sum(each.state == RULED_OUT for each in tried)
    note = f"{early} stopped early"
    note += "".join(f", {n} {each}" for n, each in ((ruled_out, RULED_OUT), (failed, FAILED)) if n)
    yield Tile("Settings tried", str(len(tried)), note)
    seeds = len(winner.runs)
    yield Tile("Fresh seeds", str(seeds), f"{winner.missed} of {seeds} runs missed the target")


def _figures(decision: Decision) -> Iterator[Figure]:
    yield _finalists(decision)
    yield _history(decision)
    yield _slices(decision)
    for number in range(1, len(decision.objectives)):
        yield _front(decision, number)


def _finalists(decision: Decision) -> Figure:
    finalists = joined(decision.finalists)
    columns = [Column("words", "Setting", "text", [each.words for each in finalists])]
    for number, name in enumerate(decision.objectives):
        label, kind = label_of(name)
        middles = np.array([each.middle(number) for each in finalists])
        middles[np.isinf(middles)] = np.nan
        columns.append(Column(name, sentence(label), kind, middles.tolist()))
        ends = [each.described(number)[1] for each in finalists]
        columns.append(Column(f"{name}_interval", "95% interval", "text", ends))
    missed = [f"{each.missed} of {len(each.runs)}" for each in finalists]
    columns.append(Column("missed", "Missed the target", "text", missed))
    if len(decision.objectives) == 1:
        good = [each.chance for each in finalists]
        columns.append(Column("probability", "Probability of being good", "text", good))
    return Figure("finalists", "The choice, its rivals and the scenario as given", tuple(columns))


def _values(decision: Decision) -> tuple[list[float], list[float]]:
    """The first objective of the settings that count, and of the others where they ended, in order of the search."""
    name = decision.objectives[0]
    good = [shown(each)[0] if each.is_candidate else math.nan for each in decision.tried]
    others = [
        each.measured.costs.get(name, math.nan)
        if each.measured and not each.is_candidate
        else math.nan
        for each in decision.tried
    ]
    return good, others


def _others(decision: Decision) -> tuple[str, str]:
    """Name and mark of the settings that do not count; a cost by their end is a lower bound, a rate is not."""
    if decision.objectives == (THROUGHPUT,):
        return "stopped early or over a limit", "diamond"
    return "stopped early or missed: at least this", "triangle"


_GOOD = {"color": "g0", "symbol": "circle", "points": True, "bare": True}


def _history(decision: Decision) -> Figure:
    label, kind = label_of(decision.objectives[0])
    good, others = map(np.array, _values(decision))
    name, symbol = _others(decision)
    accumulate = np.fmax.accumulate if decision.objectives == (THROUGHPUT,) else np.fmin.accumulate
    best_at = int(np.flatnonzero(accumulate(good) == accumulate(good)[-1])[0]) + 1
    reached = int(np.isfinite(good).sum())
    finding = (
        f"{format_counted(reached, 'setting')} of {len(good)} reached the target; "
        f"the best of the search was number {best_at}."
    )
    columns = (
        Column("number", "setting", "count", np.arange(1, len(good) + 1)),
        Column("value", label, kind, good),
        Column("others", name, kind, others),
        Column("best", "best so far", kind, accumulate(good)),
    )
    drawn = drawn_as_lines(
        {"key": "value", **_GOOD},
        {"key": "others", **_GOOD, "color": "idle", "symbol": symbol},
        {"key": "best", "color": "g0", "step": True, "plain": True},
        unit=label,
        zero=True,
        from_zero=False,
    )
    return Figure("history", finding, columns, drawn)


def _slices(decision: Decision) -> Figure:
    """The first objective against each key, the most important key first if the importance is known."""
    label, kind = label_of(decision.objectives[0])
    tried, (good, others) = decision.tried, _values(decision)
    settings, choice = [each.setting for each in tried], decision.finalists[0].setting
    chosen = settings.index(choice) if choice in settings else None
    columns = [
        Column("objective", label, kind, good),
        Column("others", _others(decision)[0], kind, others),
    ]
    keys: list[dict[str, Any]] = []
    importance = decision.importance
    for dimension in sorted(decision.space.dimensions, key=lambda d: -importance.get(d.path, 0)):
        name = decision.space.names[dimension.path].replace("_", " ")
        rows = [row for row, setting in enumerate(settings) if dimension.path in setting]
        places = [dimension.position(settings[row][dimension.path]) for row in rows]
        words = [str(setting.get(dimension.path, ABSENT)) for setting in settings]
        columns.append(Column(dimension.path, name, "text", words))
        order = np.argsort(places, kind="stable")
        names = list(map(str, dimension.values)) if isinstance(dimension, Choices) else []
        units = {} if isinstance(dimension, Choices) else dimension.units
        explains = importance.get(dimension.path)
        keys.append(
            {
                "label": name,
                "title": name if explains is None else f"{name}, {format_share(explains)}",
                "kind": "time" if "min" in units else "bytes" if "B" in units else "number",
                "log": isinstance(dimension, Range) and dimension.log,
                "names": names,
                "x": np.array(places)[order],
                "good": np.array(good)[rows][order],
                "others": np.array(others)[rows][order],
                "chosen": None
                if chosen not in rows
                else int(np.flatnonzero(order == rows.index(chosen))[0]),
            }
        )
    finding = f"The {label} of the settings by each key, with one seed."
    if not choice:
        finding += " The choice is the scenario as given."
    elif chosen is not None:
        value = format_objective(decision.objectives[0], good[chosen])
        finding += f" The large square is the choice: {value} with this seed."
    if importance:
        finding += " Shares are of the variation that a key explains, the most important first."
    return Figure("slices", finding, tuple(columns), {"keys": keys})


def _front(decision: Decision, number: int) -> Figure:
    names = decision.objectives[0], decision.objectives[number]
    (label, kind), (other, other_kind) = (label_of(name) for name in names)
    searched = [
        (each.values[0], each.values[number], False) for each in decision.tried if each.is_candidate
    ]
    front = [(each.middle(0), each.middle(number), True) for each in decision.finalists[:-1]]
    rows = sorted([*searched, *front])
    columns = (
        Column("first", label, kind, [x for x, _, _ in rows]),
        Column(
            "searched",
            "settings of the search",
            other_kind,
            [math.nan if f else y for _, y, f in rows],
        ),
        Column(
            "front", "front, fresh seeds", other_kind, [y if f else math.nan for _, y, f in rows]
        ),
    )
    return Figure(
        f"front-{number}",
        f"{sentence(other)} against {label} until the target.",
        columns,
        drawn_as_lines(
            {"key": "searched", **_GOOD, "color": "g1"},
            {"key": "front", **_GOOD, "symbol": "rect"},
            unit=other,
            zero=False,
            from_zero=False,
        ),
    )
