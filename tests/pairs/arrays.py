"""A covering array: rows in which every combination of the values of some parameters occurs, but refused ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping

import numpy as np

Combination = frozenset[tuple[str, str]]
"""Values of some parameters: the name of each parameter with the name of its value."""


class CoveringArray:
    """Makes rows one by one, each with as many combinations that have not occurred as a greedy choice finds.

    A row that turns out to be refused is returned to :meth:`refuse` with the combination that is to blame.

    Args:
        table: the names of the values of each parameter.
        strength: the number of parameters of a combination.
        refused: combinations that no row contains.
        costs: of values, in combinations that they must bring.
        seed: of the order in which parameters get their values.

    Attributes:
        unreachable: combinations that are not refused, but all of whose completions to a row are.
    """

    def __init__(
        self,
        table: Mapping[str, Collection[str]],
        strength: int = 2,
        refused: Collection[Combination] = (),
        costs: Mapping[str, Mapping[str, float]] = {},
        seed: int = 0,
    ) -> None:
        self.names = list(table)
        self.values = [list(values) for values in table.values()]
        self._number = {
            (name, value): (number, self.values[number].index(value))
            for number, name in enumerate(self.names)
            for value in self.values[number]
        }
        self.strength = strength
        self._costs = [
            np.array([costs.get(name, {}).get(value, 0.0) for value in values])
            for name, values in table.items()
        ]
        self._random = np.random.default_rng(seed)
        self.open = {
            chosen: np.ones([len(self.values[number]) for number in chosen], bool)
            for chosen in itertools.combinations(range(len(self.names)), strength)
        }
        # By a value, the other values of the refused combinations that contain it.
        self._refused: dict[tuple[int, int], set[frozenset[tuple[int, int]]]] = {}
        self.unreachable: list[Combination] = []
        for combination in refused:
            self.refuse(combination)

    @property
    def total(self) -> int:
        """Number of all combinations."""
        return sum(math.prod(mask.shape) for mask in self.open.values())

    @property
    def left(self) -> int:
        """Number of combinations that have neither occurred nor been refused."""
        return sum(int(mask.sum()) for mask in self.open.values())

    def refuse(self, combination: Combination) -> None:
        """Make no further row with this combination."""
        members = frozenset(self._number[one] for one in combination)
        for one in members:
            self._refused.setdefault(one, set()).add(members - {one})
        if len(members) <= self.strength:
            for chosen, mask in self.open.items():
                if {number for number, _ in members} <= set(chosen):
                    at = dict(members)
                    mask[tuple(at.get(number, slice(None)) for number in chosen)] = False

    def cover(self, row: Mapping[str, str]) -> None:
        """Note that the combinations of a row have occurred."""
        at = [self._number[name, row[name]][1] for name in self.names]
        for chosen, mask in self.open.items():
            mask[tuple(at[number] for number in chosen)] = False

    def rows(self) -> Iterator[dict[str, str]]:
        """Rows until none is left to make; :meth:`cover` or :meth:`refuse` each before the next."""
        while (first := max(self.open, key=lambda chosen: self.open[chosen].sum())) is not None:
            if not self.open[first].any():
                return
            places = np.argwhere(self.open[first])
            place = places[self._random.integers(len(places))]
            chosen = dict(zip(first, place.tolist(), strict=True))
            row = next(filter(None, (self._completed(chosen) for _ in range(20))), None)
            if row is None:
                # Every completion contains a refused combination.
                names = ((self.names[n], self.values[n][value]) for n, value in chosen.items())
                self.unreachable.append(frozenset(names))
                self.open[first][tuple(place)] = False
                continue
            yield {self.names[n]: self.values[n][value] for n, value in row.items()}

    def _completed(self, chosen: Mapping[int, int]) -> dict[int, int] | None:
        row: dict[int, int] = {}
        others = [n for n in range(len(self.names)) if n not in chosen]
        for number in (*chosen, *self._random.permutation(others).tolist()):
            options = [chosen[number]] if number in chosen else range(len(self.values[number]))
            allowed = [value for value in options if self._fits(number, value, row)]
            if not allowed:
                return None
            if len(allowed) > 1:
                gain = self._gain(number, row) - self._costs[number]
                gain = gain[allowed] + self._random.random(len(allowed))
                row[number] = allowed[int(np.argmax(gain))]
            else:
                row[number] = allowed[0]
        return row

    def _fits(self, number: int, value: int, row: Mapping[int, int]) -> bool:
        refused = self._refused.get((number, value), ())
        return not any(map(row.items().__ge__, refused))

    def _gain(
        self, number: int, row: Mapping[int, int]
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The new combinations of each value with those of the row."""
        gain = np.zeros(len(self.values[number]))
        for others in itertools.combinations(sorted(row), self.strength - 1):
            chosen = tuple(sorted((number, *others)))
            gain += self.open[chosen][tuple(row.get(n, slice(None)) for n in chosen)]
        return gain
