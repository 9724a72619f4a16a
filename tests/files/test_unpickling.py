"""Pickles of plain data: what is read, what is refused, and that nothing a pickle names is ever called."""

import codecs
import datetime
import pickle
from typing import Any

import numpy as np
import pytest
from numpy._core.multiarray import _reconstruct, scalar  # type: ignore[attr-defined]

from fedsim.files.unpickling import DamagedPickle, RefusedPickle, load_plain


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "text", b"bytes", (1, 2)]},
        [np.float64(0.1), np.int32(-7), np.bool_(True)],
        {"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [0, 1]},
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([1, 2], dtype=">i4"),
        np.array(["a", "bc"]),
        np.array(["a", 1, None], dtype=object),
        [np.array([[True], [False]]), np.array([b"x"]), np.float32(np.nan), np.array(2.5)],
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


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_can_be_pickled_again(protocol: int) -> None:
    """As data sets are, to be sent to a worker process."""
    array = load_plain(pickle.dumps(np.arange(6).reshape(2, 3), 4))
    again = pickle.loads(pickle.dumps(array[1:], protocol))
    assert type(again) is np.ndarray
    np.testing.assert_array_equal(again, [[3, 4, 5]])


class Forged:
    """An array or a scalar, with this type, of an address in the memory of the process."""

    def __init__(self, made: Any, *arguments: Any, state: Any = None) -> None:
        self.reduced = (made, arguments, state)[: 2 + (state is not None)]

    def __reduce__(self) -> Any:
        return self.reduced


OBJECTS = Forged(np.dtype, "O8", False, True, state=(3, "|", None, None, None, -1, -1, 0))
ADDRESS = b"A" * 8


@pytest.mark.parametrize(
    "value",
    [
        Forged(scalar, OBJECTS, ADDRESS),
        Forged(_reconstruct, np.ndarray, (0,), b"b", state=(1, (1,), OBJECTS, False, ADDRESS)),
        Forged(
            _reconstruct, np.ndarray, (0,), b"b", state=(1, (9,), np.dtype("i8"), False, ADDRESS)
        ),
        Forged(np.dtype, "V8", False, True),
        Forged(np.dtype, "i4,O", False, True),
        Forged(np.ndarray, (10**12,), "u1"),
        Forged(codecs.encode, Forged(codecs.encode, "ab", "hex"), "hex"),
        Forged(codecs.encode, "ab", "punycode"),
    ],
)
def test_forged_arrays_are_refused(value: Any) -> None:
    """NumPy would read objects at an address of the file's choice, and end the process."""
    with pytest.raises((RefusedPickle, DamagedPickle)):
        load_plain(pickle.dumps([value], 4))


def test_every_truncation_of_a_pickle_is_damage():
    data = pickle.dumps({"data": np.arange(6.0), "names": ["a", "b"]})
    for length in range(len(data)):
        with pytest.raises(DamagedPickle):
            load_plain(data[:length])


def test_bytes_after_the_end_are_refused() -> None:
    """Two ``pickle.dump`` to one file, of which the first would be read."""
    with pytest.raises(DamagedPickle, match="bytes follow its end"):
        load_plain(pickle.dumps([1]) + pickle.dumps([2]))


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
