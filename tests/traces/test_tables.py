"""Tables are made from any columns that they declare, and no others."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.tables import (
    TABLES,
    filled,
    id_column,
    make_table,
    to_numpy,
)
from tests.traces.sound import build, manifest


def test_columns_on_disk_carry_units_and_descriptions(tmp_path):
    build().write(tmp_path / "b")
    for name in TABLES:
        schema = pq.read_schema(tmp_path / "b" / f"{name}.parquet")
        for field in schema:
            column = TABLES[name].columns[field.name]
            assert field.metadata[b"description"].decode() == column.description
            assert field.metadata.get(b"unit", b"").decode() == column.unit


def test_device_rows_for_any_dictionary():
    bundle = build()
    assert bundle.device_rows("availability").tolist() == [0, 0, 2]
    tables = dict(bundle.tables)
    values = {
        "device_id": id_column(np.array([2, 0, 1]), pa.array(["b", "nobody", "a"])),
        "start_us": [0, 0, 0],
        "end_us": [1, 1, 1],
    }
    tables["availability"] = make_table("availability", values)
    assert TraceBundle(manifest(), tables).device_rows("availability").tolist() == [0, 1, -1]


def test_make_table_refuses_wrong_columns():
    with pytest.raises(UserError, match=r"missing columns .*dst.*rtt_s.*unknown columns .*x"):
        make_table("rtt_matrix", {"src": ["a"], "x": [1]})
    with pytest.raises(pa.ArrowInvalid, match="dst"):
        make_table("rtt_matrix", {"src": ["a"], "dst": ["a", "b"], "rtt_s": [0.125]})
    with pytest.raises(UserError, match="no table moods"):
        TraceBundle(manifest(), {"moods": None})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, 2, 3]), np.array([1, 2, 3])),
        (pa.array([1, None, 3]), np.array([1.0, np.nan, 3.0])),
        (pa.array([1.5, None]), np.array([1.5, np.nan])),
        (pa.array([True, None, True]), np.array([True, False, True])),
        (pa.array(["a", None]), np.array(["a", None], dtype=object)),
        (pa.array([], pa.int64()), np.array([], np.int64)),
    ],
)
def test_types_and_nulls(values: Any, expected: np.ndarray[Any, Any]) -> None:
    got = to_numpy(values)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == expected.dtype


def test_a_slice_begins_at_its_own_first_value() -> None:
    values = pa.array([9, None, 7, None, 5])[2:]
    assert filled(values, -1).tolist() == [7, -1, 5]
    assert filled(pa.array([True, None, False])[1:].cast(pa.int8()), 1).tolist() == [1, 0]
