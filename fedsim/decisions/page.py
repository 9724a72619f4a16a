"""The page of a decision: the answer, how the search came to it, and what mattered."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedsim.analysis.comparison.targets import THROUGHPUT
from fedsim.analysis.figures.base import Column, Figure, plain, sentence
from fedsim.analysis.headline import Tile
from fedsim.analysis.pages import embedded, environment, write_page
from fedsim.decisions.decision import PAGE, Decision, label_of, shown
from fedsim.decisions.search import FAILED, RULED_OUT, STOPPED
from fedsim.decisions.space import Choices
from fedsim.vocabulary.formatting import ABSENT, format_counted, format_decimals


def write_decision_page(decision: Decision) -> None:
    """Write the page into the folder of a decision."""
    figures = {figure.id: figure for figure in _figures(decision)}
    first, *rest = decision.sentence.split("; ")
    page = (
        environment()
        .get_template("decide.html.j2")
        .render(
            title=f"Decision: {decision.scenario.scenario.name}",
            answer=sentence(first),
            rest=[
                sentence(words) for words in (*rest, decision.binding, decision.ruled_out) if words
            ],
            tiles=_tiles(decision),
            figures=figures,
            fronts=[figure for name, figure in figures.items() if name.startswith("front")],
            notes=decision.notes,
            importance=decision.importance,
            names=decision.space.names,
            data=embedded({name: figure.document() for name, figure in figures.items()}),
        )
    )
    write_page(decision.path / PAGE, page)


def _tiles(decision: Decision) -> Iterator[Tile]:
    winner, name = decision.finalists[0], decision.objectives[0]
    yield Tile(sentence(label_of(name)[0]), *winner.described())
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
    yield _parallel(decision)
    for number in range(1, len(decision.objectives)):
        yield _front(decision, number)


def _finalists(decision: Decision) -> Figure:
    """The settings that were run with fresh seeds."""
    finalists = decision.finalists
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
        good = [
            ABSENT if math.isnan(each.probability) else format_decimals(each.probability, 2)
            for each in finalists
        ]
        columns.append(Column("probability", "Probability of being good", "text", good))
    return Figure("finalists", "Measured with fresh seeds", tuple(columns))


def _history(decision: Decision) -> Figure:
    """The objective of each setting in the order of the search, and the best so far."""
    label, kind = label_of(decision.objectives[0])
    values = np.array(
        [shown(each)[0] if each.is_candidate else math.nan for each in decision.tried]
    )
    accumulate = np.fmax.accumulate if decision.objectives == (THROUGHPUT,) else np.fmin.accumulate
    numbers = np.arange(1, len(values) + 1)
    best_at = int(np.flatnonzero(accumulate(values) == accumulate(values)[-1])[0]) + 1
    reached = int(np.isfinite(values).sum())
    finding = (
        f"{format_counted(reached, 'setting')} of {len(values)} reached the target; "
        f"the best of the search was number {best_at}."
    )
    columns = (
        Column("number", "setting", "count", numbers),
        Column("value", label, kind, values),
        Column("best", "best so far", kind, accumulate(values)),
    )
    return Figure("history", finding, columns)


def _parallel(decision: Decision) -> Figure:
    """One line per setting: its values, and the first objective."""
    label, kind = label_of(decision.objectives[0])
    tried = sorted(decision.tried, key=lambda each: (not each.is_candidate, each.values))
    columns, axes = [], []
    for dimension in decision.space.dimensions:
        given = [each.setting.get(dimension.path) for each in tried]
        name = decision.space.names[dimension.path].replace("_", " ")
        words = [ABSENT if value is None else str(value) for value in given]
        if isinstance(dimension, Choices):
            labels = list(dict.fromkeys([*map(str, dimension.values), *words]))
            axis: dict[str, Any] = {"names": labels, "log": False}
            places = [float(labels.index(word)) for word in words]
        else:
            kind_ = (
                "time"
                if "min" in dimension.units
                else "bytes"
                if "B" in dimension.units
                else "number"
            )
            low, high, below = dimension.low, dimension.high, math.nan
            axis = {"names": [], "log": dimension.log, "low": low, "high": high, "kind": kind_}
            if None in given:
                # Settings without the key have a place of their own below the axis.
                below = low * (low / high) ** 0.2 if dimension.log else low - 0.2 * (high - low)
                axis |= {"low": below, "first": low}
            places = [below if value is None else dimension.position(value) for value in given]
        columns.append(Column(dimension.path, name, "text", words))
        axes.append({**axis, "label": name, "values": plain(np.array(places, dtype=float))})
    values = [shown(each)[0] if each.is_candidate else math.nan for each in tried]
    columns.append(Column("objective", label, kind, values))
    known = [value for value in values if math.isfinite(value)]
    axes.append(
        {
            "names": [],
            "label": label,
            "kind": kind,
            "log": max(known) > 8 * min(known) > 0,
            "values": plain(np.array(values)),
        }
    )
    settings, choice = [each.setting for each in tried], decision.finalists[0].setting
    chosen = settings.index(choice) if choice in settings else None
    finding = "Each line is a setting; the darker, the better. "
    finding += "The thick line is the choice." if choice else "The choice is the scenario as given."
    return Figure("parallel", finding, tuple(columns), {"axes": axes, "chosen": chosen})


def _front(decision: Decision, number: int) -> Figure:
    """Two objectives of the settings of the search, and of the front."""
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
        {"label": other},
    )
