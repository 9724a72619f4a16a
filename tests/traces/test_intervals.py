"""Steps on columns of intervals against plain loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsim.traces.intervals import ranks


@given(st.lists(st.integers(0, 5)))
def test_ranks_count_within_each_run(counts: list[int]) -> None:
    expected = [rank for count in counts for rank in range(count)]
    assert ranks(np.array(counts, dtype=np.int64)).tolist() == expected
