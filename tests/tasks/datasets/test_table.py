"""A user's own table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.reading.samples import held_out
from tests.tasks.files import equal
from tests.tasks.toys import load


def test_tables_become_data_sets(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "age": np.arange(50.0),
            "dose": np.arange(50) % 7,
            "outcome": ["ill", "well"] * 25,
            "hospital": np.arange(50) // 25,
        }
    )
    frame.to_csv(tmp_path / "patients.csv", index=False)
    frame.to_parquet(tmp_path / "patients.parquet")
    params = {"target": "outcome", "group": "hospital"}
    first = load("table", path=tmp_path / "patients.csv", **params)
    assert equal(first, load("table", path=tmp_path / "patients.parquet", **params))
    assert first.train_x.shape == (40, 2)
    assert first.train_x.mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert first.train_x.std(axis=0) == pytest.approx([1, 1], rel=1e-5)
    assert first.class_names == ("ill", "well")
    assert first.kind == "binary"
    assert first.group_names == ("0", "1")
    raw = load(
        "table", path=tmp_path / "patients.csv", standardize=False, features=["age"], **params
    )
    is_test = held_out(50, 0.2, 0)
    assert raw.train_x[:, 0].tolist() == np.arange(50.0)[~is_test].tolist()
    assert raw.test_y.tolist() == (np.arange(50) % 2)[is_test].tolist()
    frame["later"] = frame.age >= 45
    frame.to_parquet(tmp_path / "later.parquet")
    divided = load("table", path=tmp_path / "later.parquet", is_test="later", **params)
    assert divided.train_x.shape == (45, 2), "the column is no feature"
    assert divided.test_y.tolist() == [1, 0, 1, 0, 1]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a,b\n1,x\n2,y\n", {"target": "c"}, "no column 'c'\n  its columns are: a, b"),
    ("a,b\n1,x\n2,y\n", {"target": "b", "features": ["z"]}, "no column 'z'"),
    ("a;b\n1;x\n2;y\n", {"target": "b"}, "separate the columns by commas"),
    ("a,b,c\n1,x,\n2,y,7\n3,y,r\n", {"target": "b"}, "(?s)own.csv:4: 'c' .*features: .a."),
    ("a,b\n1,x\n2,y,3\n", {"target": "b"}, "own.csv:3: has 3 cells"),
    ("a,a,b\n1,2,x\n2,3,y\n", {"target": "b"}, "own.csv:1: has the column 'a' twice"),
    ("a,b\n1,x\n2,x\n", {"target": "b"}, "(?s)column 'b' .*target_kind: quantity"),
    ("a,b\n1,2\n2,1.5\n", {"target": "b"}, "(?s)column 'b' .*target_kind: quantity"),
    ("a,b\n1,x\n2,y\n-inf,y\n", {"target": "b"}, "own.csv:4: column 'a' .*not finite"),
    ("a,b\n1,x\n1e300,y\n", {"target": "b"}, "own.csv:3: column 'a' .*not finite"),
    ("a,b\n1,0\n2,1\n", {"target": "b", "features": ["a", "b"]}, "(?s)'b' .*features: .a."),
    ("a,b,t\n1,x,0\n2,y,2\n", {"target": "b", "is_test": "t"}, "'t' contains values other"),
    ("a,b\n\n,x\n1,y\n,y\n", {"target": "b"}, "own.csv:3: .* 'a' has an empty cell"),
    (",a,b\n0,5,x\n1,6,y\n", {"target": "b"}, "(?s)'Unnamed: 0' .*features: .a."),
    ("b\nx\ny\n", {"target": "b"}, "cannot be a feature"),
    ("a,b\n", {"target": "b"}, "no rows"),
    ("", {"target": "b"}, "cannot be read"),
]


@pytest.mark.parametrize(("text", "params", "message"), REFUSED)
def test_a_table_that_does_not_fit_says_why(
    tmp_path: Path, text: str, params: dict[str, Any], message: str
) -> None:
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        load("table", path=tmp_path / "own.csv", **params)


@pytest.mark.parametrize("name", ["own.xlsx", "own.parquet"])
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PAR1 cut off")
    with pytest.raises(UserError, match=r"give a \.csv or \.parquet file"):
        load("table", path=tmp_path / name, target="y")


def test_integer_columns_can_be_tokens(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("first,second,kind\n" + "3,1,a\n2,7,b\n0,5,c\n" * 4)
    dataset = load("table", path=tmp_path / "own.csv", target="kind", tokens=True)
    assert dataset.train_x.dtype == np.int64
    assert set(map(tuple, dataset.train_x.tolist())) == {(3, 1), (2, 7), (0, 5)}
    assert dataset.vocabulary == 8
    (tmp_path / "own.csv").write_text("first,kind\n" + "0.5,a\n2,b\n" * 4)
    with pytest.raises(UserError, match="columns first contains values of type float64"):
        load("table", path=tmp_path / "own.csv", target="kind", tokens=True)


def test_a_quantity_keeps_its_unit(tmp_path: Path) -> None:
    path = tmp_path / "houses.csv"
    path.write_text("area,price,town\n1,10.5,a\n2,20,b\n3,30,a\n4,40,b\n5,50,a\n")
    loaded = load("table", path=path, target="price", target_kind="quantity", group="town")
    assert loaded.kind == "regression"
    assert loaded.classes == 1
    assert loaded.train_y.dtype == np.float32
    assert sorted([*loaded.train_y, *loaded.test_y]) == [10.5, 20, 30, 40, 50]
    with pytest.raises(UserError, match="'town' does not contain numbers"):
        load("table", path=path, target="town", target_kind="quantity", features=["area"])
    path.write_text("area,price\n1,10.5\n2,1e39\n")
    with pytest.raises(UserError, match=r"houses\.csv:3: column 'price' .*not finite"):
        load("table", path=path, target="price", target_kind="quantity")
