"""The least available clients first."""

from __future__ import annotations

from tests.scheduling.drawing import by_round, draws, flat
from tests.simulation.harness import online


def test_refl_prefers_those_who_will_soon_be_gone() -> None:
    """Clients 0 to 2 are there daily from 8 to 12 o'clock, 3 to 5 from 10 to 14, 6 to 11 always.

    At 11:30 the first are drawn, who will be gone at 12, at 13:30 the second; at 5 only the others are there.
    """
    hour, days = 3600.0, 8

    def daily(start: int, end: int) -> list[tuple[float, float]]:
        return [((day * 24 + start) * hour, (day * 24 + end) * hour) for day in range(days)]

    book = draws(
        {"name": "refl", "cohort": 3, "hold_off": 0, "round_length": 0.5 * hour},
        clients=12,
        rounds=days * 48,
        step_s=[0.25 * hour] * 12,
        schedule={"name": "sync", "pause": 0.25 * hour},
        availability=online(*[daily(8, 12)] * 3, *[daily(10, 14)] * 3, *[[(0.0, 1e6)]] * 6),
    )
    drawn: dict[float, list[int]] = {5.0: [], 11.5: [], 13.5: []}
    for row in book.rows:
        day, clock = divmod(row["dispatched"] / hour, 24)
        if day >= 2 and clock in drawn:
            drawn[clock].append(row["client"])
    assert set(drawn[11.5]) == {0, 1, 2}
    assert set(drawn[13.5]) == {3, 4, 5}
    assert set(drawn[5.0]) <= set(range(6, 12))


def test_refl_lets_those_drawn_stand_back() -> None:
    rounds = by_round(draws({"name": "refl", "cohort": 2, "hold_off": 4}, clients=10, rounds=40))
    for first in range(36):
        assert len(set(flat(rounds[first : first + 5]))) == 10
    # With nobody else left, they are drawn all the same.
    assert len(by_round(draws({"name": "refl", "cohort": 2}, clients=3, rounds=9))) == 9
