"""Pickles of plain data: what is read, what is refused, and that nothing a pickle names is ever called."""

import datetime
import pickle

import numpy as np
import pytest

from fedsim.files.unpickling import DamagedPickle, RefusedPickle, load_plain


# Protocol 5, which nobody's traces or data sets use, names another function of NumPy.
@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "text", b"bytes", (1, 2)]},
        [np.float64(0.1), np.int32(-7), np.bool_(True)],
        {"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [0, 1]},
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([1, 2], dtype=">i4"),
    ],
)
def test_plain_data_comes_back_as_written(value, protocol):
    got = load_plain(pickle.dumps(value, protocol))
    np.testing.assert_equal(got, value)


class Nasty:
    def __init__(self, touched):
        self.touched = touched

    def __reduce__(self):
        return (open, (self.touched, "w"))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_other_name_is_refused_and_not_called(tmp_path, protocol):
    touched = tmp_path / "touched"
    with pytest.raises(RefusedPickle, match="open"):
        load_plain(pickle.dumps({"a": Nasty(str(touched))}, protocol))
    assert not touched.exists()
    with pytest.raises(RefusedPickle, match="datetime"):
        load_plain(pickle.dumps(np.array([datetime.date(2020, 1, 1)]), protocol))


def test_every_truncation_of_a_pickle_is_damage():
    data = pickle.dumps({"data": np.arange(6.0), "names": ["a", "b"]})
    for length in range(len(data)):
        with pytest.raises(DamagedPickle):
            load_plain(data[:length])


def test_lists_in_many_lists_are_refused_before_anything_looks_at_them():
    shared = [1]
    for _ in range(60):
        shared = [shared, shared]
    with pytest.raises(RefusedPickle, match="many times the same"):
        load_plain(pickle.dumps({"a": shared}))
    inside = []
    inside.append(inside)
    with pytest.raises(RefusedPickle, match="many times the same"):
        load_plain(pickle.dumps(inside))
    few = [[1, 2]] * 3
    assert load_plain(pickle.dumps(few)) == few
