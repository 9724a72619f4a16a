"""Steps on columns of intervals against plain loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsim.traces.intervals import overlaps_any, ranks


@given(st.lists(st.integers(0, 5)))
def test_ranks_count_within_each_run(counts: list[int]) -> None:
    expected = [rank for count in counts for rank in range(count)]
    assert ranks(np.array(counts, dtype=np.int64)).tolist() == expected


def column(rows: list[tuple[int, ...]], index: int) -> np.ndarray:
    return np.array([row[index] for row in rows], dtype=np.int64)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(1, 4)), max_size=8),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), max_size=6, unique=True).map(sorted),
)
def test_an_interval_overlaps_only_what_it_shares_an_instant_with(
    given_rows: list[tuple[int, int, int]], cells: list[tuple[int, int]]
) -> None:
    """``b`` are cells of two instants with a gap between neighbors; intervals end before their last instant."""
    intervals = [(device, start, start + length) for device, start, length in given_rows]
    others = [(device, 3 * cell, 3 * cell + 2) for device, cell in cells]
    expected = [any(d == e and s < f and t < u for e, t, f in others) for d, s, u in intervals]
    arguments = [column(rows, index) for rows in (intervals, others) for index in range(3)]
    assert overlaps_any(*arguments).tolist() == expected
