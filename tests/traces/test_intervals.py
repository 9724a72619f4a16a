"""Steps on columns of intervals against plain loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsim.traces.intervals import first_at_or_after, ranks


@given(st.lists(st.integers(0, 5)))
def test_ranks_count_within_each_run(counts: list[int]) -> None:
    expected = [rank for count in counts for rank in range(count)]
    assert ranks(np.array(counts, dtype=np.int64)).tolist() == expected


@given(
    st.one_of(
        st.lists(st.integers(-20, 20)).map(sorted),
        st.tuples(st.integers(-9, 9), st.integers(1, 4), st.integers(0, 6)).map(
            lambda grid: list(range(grid[0], grid[0] + grid[1] * grid[2], grid[1]))
        ),
    ),
    st.lists(st.integers(-25, 25)),
)
def test_the_first_time_at_or_after_an_instant(times: list[int], instants: list[int]) -> None:
    """On regular grids, which are divided, and on others, which are searched."""
    expected = [sum(time < instant for time in times) for instant in instants]
    first_rows = first_at_or_after(
        np.array(times, dtype=np.int64), np.array(instants, dtype=np.int64)
    )
    assert first_rows.tolist() == expected
