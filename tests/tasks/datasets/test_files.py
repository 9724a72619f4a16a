"""A user's own arrays and tables."""

import io
import warnings
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim.errors import UserError
from fedsim.tasks.reading.samples import held_out
from tests.tasks.files import equal, rows, save_npz
from tests.tasks.toys import load


def test_npz_arrays_become_a_data_set(tmp_path: Path) -> None:
    x = np.arange(40, dtype=np.float64).reshape(10, 4)
    path = save_npz(
        tmp_path / "own.npz",
        x=x,
        y=np.arange(10) % 3,
        group=np.array(["b", "a"] * 5),
        is_test=np.arange(10) >= 8,
    )
    dataset = load("npz", path=path)
    assert dataset.name == "own"
    assert dataset.train_x.dtype == np.float32
    assert np.array_equal(dataset.train_x, x[:8])
    assert dataset.test_y.tolist() == [2, 0]
    assert dataset.group_names == ("a", "b")
    assert dataset.train_groups is not None
    assert dataset.train_groups.tolist() == [1, 0] * 4
    assert dataset.kind == "classification"


def test_npz_without_a_split_is_split_by_its_seed(tmp_path: Path) -> None:
    path = save_npz(
        tmp_path / "own.npz", x=np.zeros((100, 2, 3, 3), dtype=np.uint8), y=np.arange(100) % 2
    )
    dataset = load("npz", path=path, test_share=0.3)
    assert (len(dataset.train_y), len(dataset.test_y)) == (70, 30)
    assert dataset.train_x.dtype == np.uint8
    assert dataset.scale is not None
    assert dataset.kind == "binary"
    assert equal(dataset, load("npz", path=path, test_share=0.3))
    other = load("npz", path=path, test_share=0.3, seed=1)
    assert not np.array_equal(other.train_y, dataset.train_y)


@pytest.mark.parametrize("folder", [False, True])
def test_labels_of_text_objects_are_read(tmp_path: Path, folder: bool) -> None:
    """As pandas holds text; other objects are refused without being unpickled."""
    names = np.array(["cat", "dog", "cat", "bird"] * 5, dtype=object)
    arrays = {"x": np.zeros((20, 2)), "y": names}
    path = tmp_path if folder else save_npz(tmp_path / "own.npz", **arrays)
    for name, array in arrays.items() if folder else ():
        np.save(path / f"{name}.npy", array, allow_pickle=True)
    dataset = load("npz", path=path)
    assert dataset.class_names == ("bird", "cat", "dog")
    assert len(dataset.train_y) + len(dataset.test_y) == 20
    assert {dataset.class_names[label] for label in dataset.train_y} <= set(names)


X, Y = np.zeros((9, 2), np.uint8), np.arange(9) % 2
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"x": rows(9)}, {}, "no array y"),
    ({"x": rows(9), "y": Y[:2]}, {}, "do not fit together"),
    ({"x": np.zeros(9), "y": Y}, {}, "do not fit together"),
    ({"x": np.array([["a"]] * 9), "y": Y}, {}, "do not fit together"),
    ({"x": rows(9), "y": Y, "is_test": np.zeros((9, 2))}, {}, "do not fit together"),
    ({"x": rows(9), "y": Y, "group": np.zeros((9, 2))}, {}, "do not fit together"),
    ({"x": rows(9), "y": Y / 2}, {}, "target_kind: quantity"),
    ({"x": rows(9), "y": np.ones((9, 2), int)}, {}, "which are not labels"),
    ({"x": rows(9), "y": Y.astype(object)}, {}, "y has dtype object"),
    ({"x": rows(9), "y": np.full(9, -1)}, {}, "labels run from -1"),
    ({"x": rows(9), "y": np.array([3_000_000_000, *range(8)])}, {}, "to 3000000000; .* 9"),
    ({"x": rows(9), "y": np.ones(9, dtype=int)}, {}, "labels run from 1 to 1"),
    ({"x": rows(9, wrong=1e300, at=7), "y": Y}, {}, "x: sample 7 is not finite"),
    ({"x": np.zeros((9, 0)), "y": Y}, {}, "no training samples"),
    ({"x": rows(9), "y": Y, "is_test": np.full(9, 2)}, {}, "is_test contains values other"),
    ({"x": rows(9, wrong=0.5), "y": Y}, {"tokens": True}, "float64"),
    ({"x": rows(9, wrong=-1).astype(int), "y": Y}, {"tokens": True}, "from -1"),
    ({"x": rows(9), "y": Y, "group": np.full(9, np.nan)}, {}, "group: sample 0 is not"),
    (
        {"x": rows(9), "y": Y}
        | {f"{name}_{split}": rows(9) for name in "xy" for split in ("train", "test")},
        {},
        "has both x, y and x_train, y_train, x_test, y_test",
    ),
    (
        {"x": rows(9), "y": np.full(9, np.nan)},
        {"target_kind": "quantity"},
        "y: sample 0 is not finite",
    ),
    ({"x": rows(9), "y": Y + 1e300}, {"target_kind": "quantity"}, "y: sample 0 is not finite"),
    ({"x": rows(9).astype("u8") - np.uint64(1), "y": Y}, {"tokens": True}, "18446744073709551615"),
    ({"x_train": X, "y_train": Y, "x_test": X / 255, "y_test": Y}, {}, "do not fit .*uint8"),
    ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y.astype(str)}, {}, "do not fit together"),
    ({f"{name}_{of}": np.array(1) for name in "xy" for of in ("train", "test")}, {}, "do not fit"),
    ({"x": rows(9), "y": np.full(9, 2**32 - 1, "u4").view("U1")}, {}, "damaged .*not Unicode"),
    ({"x": rows(9), "y": Y, "group": np.array(["\ud800"] * 9)}, {}, "ud800' is not Unicode text"),
    ({"x": rows(9), "y": np.array([*"abcabcab", "nan"])}, {}, "y: sample 8 has no name, but 'nan'"),
    ({"x": rows(9), "y": Y, "group": np.array(["", *"abcabcab"])}, {}, "group: sample 0 has no"),
]


@pytest.mark.parametrize(("arrays", "params", "message"), REFUSED)
def test_npz_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, Any], params: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=f"(?s){message}"):
        load("npz", path=save_npz(tmp_path / "own.npz", **arrays), **params)


def test_a_damaged_npz_says_so(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "own.npz", x=np.zeros((100, 20)), y=np.zeros(100, dtype=int))
    content = path.read_bytes()
    for damaged in (b"PK", content[:300], content[:-100]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"own\.npz.*damaged"):
            load("npz", path=path)


def test_what_follows_an_array_is_not_left_out(tmp_path: Path) -> None:
    """Several ``numpy.save`` to one file, and joined archives, of which the last one would be read."""
    path = save_npz(tmp_path / "own.npz", x=rows(9), y=Y)
    path.write_bytes(2 * path.read_bytes())
    with pytest.raises(UserError, match="does not begin with the arrays that it lists"):
        load("npz", path=path)
    content = io.BytesIO()
    for _ in range(2):
        np.save(content, rows(9))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content.getvalue())
        archive.writestr("y.npy", npy_of(0))
    with pytest.raises(UserError, match="x has more values than its shape"):
        load("npz", path=path)
    (tmp_path / "own").mkdir()
    np.save(tmp_path / "own" / "y.npy", Y)
    (tmp_path / "own" / "x.npy").write_bytes(content.getvalue())
    with pytest.raises(UserError, match=r"x\.npy: .*more follows its array"):
        load("npz", path=tmp_path / "own")


def test_what_is_not_used_is_said(tmp_path: Path) -> None:
    marks = np.arange(9) > 6
    names = np.array([*"abcabcabc"], ">U1")
    path = save_npz(tmp_path / "own.npz", x=rows(9), y=names, is_train=marks, is_test=marks)
    dataset = load("npz", path=path)
    assert (dataset.class_names, len(dataset.test_y)) == (("a", "b", "c"), 2)
    assert "not used: is_train" in dataset.notes
    frame = pd.DataFrame({"a": range(9), "y": [*"abc"] * 3, "Is_Test": marks})
    frame.to_csv(tmp_path / "own.csv", index=False)
    (note,) = load("table", path=tmp_path / "own.csv", target="y").notes
    assert note.startswith("features, not marks of samples: Is_Test")
    assert not load("table", path=tmp_path / "own.csv", target="y", is_test="Is_Test").notes


def test_parquet_is_read_without_what_pandas_says_of_it(tmp_path: Path) -> None:
    path, values = tmp_path / "own.parquet", np.arange(12.0).reshape(4, 3)
    pd.DataFrame(values).assign(y=[*"abab"]).to_parquet(path)
    assert load("table", path=path, target="y").feature_names == ("0", "1", "2")
    frame = pd.DataFrame(values, columns=[*"abc"]).assign(y=[*"abab"], g=[*"ddee"])
    frame[frame.a >= 0].sort_values("b", ascending=False).to_parquet(path)
    assert load("table", path=path, target="y", group="g").feature_names == ("a", "b", "c")
    frame.set_index("g").to_parquet(path)
    assert load("table", path=path, target="y", group="g").group_names == ("d", "e")
    prices = pa.array(
        [Decimal("1.50"), Decimal("2.25"), Decimal(3), Decimal(4)], pa.decimal128(9, 2)
    )
    pq.write_table(pa.table({"a": prices, "y": [*"abab"]}), path)
    dataset = load("table", path=path, target="y", standardize=False, test_share=0.25)
    assert sorted([*dataset.train_x[:, 0], *dataset.test_x[:, 0]]) == [1.5, 2.25, 3, 4]
    ids = pa.array([Decimal(2**53), Decimal(2**53 + 1)] * 2, pa.decimal128(20, 0))
    pq.write_table(pa.table({"a": prices, "y": [*"abab"], "g": ids}), path)
    names = load("table", path=path, target="y", group="g").group_names
    assert names == ("9007199254740992", "9007199254740993")


def test_names_rounded_by_a_spreadsheet_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,y,g\n" + "1,0,1.23457E+17\n2,1,1.23457E+17\n" * 3)
    with pytest.raises(UserError, match="'g' has names that a spreadsheet has rounded"):
        load("table", path=tmp_path / "own.csv", target="y", group="g")


def npy_of(*shape: int) -> bytes:
    """An .npy file with a shape, but without values."""
    content = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(content, header)
    return content.getvalue()


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (b"no array", "damaged"),
        (npy_of(60, 10**12), "damaged .*x has fewer values than its shape"),
        (b"\x93NUMPY\x01\0\x10\0" + b"(" * 16, "damaged"),
        (bytes(300_000_000), "unpacks to more than"),
    ],
)
def test_a_hostile_npz_is_refused(tmp_path: Path, x: bytes, says: str) -> None:
    path = save_npz(tmp_path / "own.npz", y=np.zeros(100, dtype=int))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", x)
    with pytest.raises(UserError, match=rf"own\.npz: .*{says}"):
        load("npz", path=path)


def test_tokens_stay_integers(tmp_path: Path) -> None:
    """Codes of more than 2^24 would lose digits in float32."""
    x = np.array([[1, 2**24 + 1], [0, 3], [4, 5], [6, 7]])
    path = save_npz(tmp_path / "own.npz", x=x, y=np.array([0, 1, 2, 0]), is_test=np.arange(4) > 2)
    dataset = load("npz", path=path, tokens=True)
    assert dataset.tokens
    assert np.array_equal(dataset.train_x, x[:3])
    assert dataset.vocabulary == 2**24 + 2
    assert load("npz", path=path).vocabulary is None


def test_groups_may_be_bytes_and_labels_are_in_range(tmp_path: Path) -> None:
    x, y = np.ones((4, 2)), np.array([0, 1, 0, 1])
    path = save_npz(tmp_path / "own.npz", x=x, y=y, group=np.array([b"a", b"\xc3\xa9"] * 2))
    assert load("npz", path=path).group_names == ("a", "é")
    save_npz(path, x=x, y=y, group=np.array([1j, 2, 1j, 2]))
    with pytest.raises(UserError, match="do not fit together"):
        load("npz", path=path)
    save_npz(path, x=x, y=np.array([0, 1, 1e39, 1]))
    with warnings.catch_warnings(action="error"), pytest.raises(UserError, match="are not labels"):
        load("npz", path=path)


def test_quantities(tmp_path: Path) -> None:
    y = np.array([0.5, -1.5, 2.0, 7.25, 3.0])
    np.savez(tmp_path / "own.npz", x=np.ones((5, 2)), y=y)
    loaded = load("npz", path=tmp_path / "own.npz", target_kind="quantity")
    assert loaded.kind == "regression"
    assert sorted([*loaded.train_y, *loaded.test_y]) == sorted(y)


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


REFUSED_TABLES: list[tuple[str, dict[str, Any], str]] = [
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
    ("a,b\nz,x\nz,y\n", {"target": "b"}, "(?s)'a' cannot be .* group or is_test$"),
    ("a,b,t\n1,x,1\n2,y,1\n", {"target": "b", "is_test": "t"}, "'t' marks all rows as test"),
    ("a,b\n", {"target": "b"}, "no rows"),
    ("a,b,B\n1,0,0\n2,1,1\n", {"target": "b"}, "(?s)'B' cannot be a feature.*features: .a."),
    ("a,b\n1,inf\n2,1\n", {"target": "b"}, "'b' does not contain classes"),
    ("", {"target": "b"}, "cannot be read"),
    (f"a,b\n{10**500},x\n1,y\n", {"target": "b"}, "'a' cannot be a feature"),
    (f"a,b\n0,x\n{10**30},y\n", {"target": "b"}, "own.csv:3: 'a' cannot be a feature"),
]


@pytest.mark.parametrize(("text", "params", "message"), REFUSED_TABLES)
def test_a_table_that_does_not_fit_says_why(
    tmp_path: Path, text: str, params: dict[str, Any], message: str
) -> None:
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        load("table", path=tmp_path / "own.csv", **params)


def test_bytes_are_no_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [b"\xff", b"\xfe"], "c": [0, 1]})
    frame.to_parquet(tmp_path / "own.parquet")
    with pytest.raises(UserError, match="'b' cannot be a feature"):
        load("table", path=tmp_path / "own.parquet", target="c")


def test_names_that_are_the_same_number_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("a,b,c\n" + "1,007,01\n2, 7,1\n3,7,1\n4,007,01\n" * 3)
    dataset = load("table", path=path, target="c", group="b")
    assert (dataset.class_names, dataset.group_names) == (("01", "1"), ("007", "7"))
    path.write_text("a,b,c\n" + "1,NA,1\n2,EU,2\n3,None,1\n" * 4)
    assert load("table", path=path, target="c", group="b").group_names == ("EU", "NA", "None")
    path.write_text("a,b,c\n" + "1,,1\n2,EU,2\n" * 4)
    with pytest.raises(UserError, match="has an empty cell"):
        load("table", path=path, target="c", group="b")
    path.write_text("a,b,c\n" + "1,1.10,12e3\n2,1.1,12000\n" * 4)
    dataset = load("table", path=path, target="c", group="b")
    assert (dataset.class_names, dataset.group_names) == (("12000", "12e3"), ("1.1", "1.10"))
    path.write_text("a,b,c\n" + "1,10,1\n2,9,2\n" * 4)
    dataset = load("table", path=path, target="c", group="b")
    assert (dataset.class_names, dataset.group_names) == (("1", "2"), ("9", "10"))


def test_names_that_look_like_none_are_names(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("a,b,c \n" + "1,NA, no\n2,DE,no\n3,None,None\n" * 3)
    dataset = load("table", path=path, target="c", group="b")
    assert dataset.group_names == ("DE", "NA", "None")
    assert dataset.class_names == ("None", "no")
    assert "data set own has a group 'NA'" in [doubt.message for doubt in dataset.doubts()]
    path.write_text("a,b,c\n1,DE,1\n2,DE,2\n3,DE,1.0\n")
    (doubt,) = load("table", path=path, target="c", group="b").doubts()
    assert doubt.message == "data set own has a class '1.0'"
    path.write_text("a,b,c\n" + "1,DE,no\n2,null,yes\n")
    with pytest.raises(UserError, match=r"own\.csv:3: column 'b' has an empty cell, or .* nan"):
        load("table", path=path, target="c", group="b")


def test_names_in_parquet_are_those_in_csv(tmp_path: Path) -> None:
    path, columns = tmp_path / "own.parquet", {"a": [1, 2, 3], "c": [" no", "yes", "no "]}
    pd.DataFrame({**columns, "b": ["DE", " DE ", "NA"]}).to_parquet(path)
    dataset = load("table", path=path, target="c", group="b")
    assert (dataset.class_names, dataset.group_names) == (("no", "yes"), ("DE", "NA"))
    for names, message in (
        (["DE", "null", "x"], r"row 2: column 'b' has an empty cell"),
        ([{"a": 1}] * 3, "'b' has bytes, lists or objects"),
        ([b"x"] * 3, "'b' has bytes, lists or objects"),
    ):
        pd.DataFrame({**columns, "b": names}).to_parquet(path)
        with pytest.raises(UserError, match=message):
            load("table", path=path, target="c", group="b")


def test_a_text_far_longer_than_others_is_refused(tmp_path: Path) -> None:
    y = np.array(["a" * 100_000, *"bc" * 10_000], object)
    path = save_npz(tmp_path / "own.npz", x=np.zeros((len(y), 1), np.uint8), y=y)
    with pytest.raises(UserError, match=r"own\.npz: unpacks to more than"):
        load("npz", path=path)


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
