"""Reading tables: the same rows from every format, however compressed, and the place of each."""

import bz2
import gzip
import io
import json
import lzma
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from fedsim.errors import UserError
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import Sources

TABLE = pd.DataFrame(
    {"Device ID": ["007", "7", None, "a b"], "Rate": [1.5, np.nan, 3.0, 4.0], "note": list("wxyz")}
)
CSV = TABLE.to_csv(index=False).encode()


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


def zipped(data: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("x", data)
    return content.getvalue()


def arrow(write: Callable[[pa.Table, pa.BufferOutputStream], None]) -> bytes:
    sink = pa.BufferOutputStream()
    nested = pa.array([[1], [], None, [2]])
    write(pa.Table.from_pandas(TABLE).append_column("nested", nested), sink)
    return sink.getvalue().to_pybytes()


def stream(table: pa.Table, sink: pa.BufferOutputStream) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


FILES: dict[str, bytes] = {
    "a.csv": CSV,
    "b.csv": CSV.replace(b"\n", b"\r\n"),
    "c.txt": b"\xef\xbb\xbf" + CSV.replace(b",", b"\t"),
    "d.csv": CSV.replace(b",", b";"),
    "e.csv": b"# a comment\n\n" + CSV.replace(b"\n", b"\n\n,,\n"),
    "f.csv": CSV.replace(b"w\n", b'"w\nw"\n'),
    "g.csv.gz": gzip.compress(CSV),
    "h.csv.bz2": bz2.compress(CSV),
    "i.csv.xz": lzma.compress(CSV),
    "j.csv.zst": zstd(CSV),
    "k.zip": zipped(CSV),
    "l.parquet": arrow(parquet.write_table),
    "m.feather": arrow(lambda table, sink: feather.write_feather(table, sink)),
    "n": arrow(stream),
    "o.jsonl": TABLE.to_json(orient="records", lines=True).encode(),
    "p.json": TABLE.to_json(orient="records").encode(),
}


def frame_of(path: Path, columns: dict[str, str] | None = None) -> Frame:
    return Frame([TableFile(source) for source in Sources([path])], columns)


@pytest.mark.parametrize("name", FILES)
def test_every_format_has_the_same_rows(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    frame = frame_of(tmp_path / name, {"device": "device id"})
    assert frame.names == ["device", "rate", "note"]
    frame.load(["device", "rate"], ["device"])
    codes, words = frame.text("device")
    assert [*words, None][codes[0]] == "007"
    assert [[*words, None][code] for code in codes] == ["007", "7", None, "a b"]
    np.testing.assert_array_equal(frame.number("rate", 2.0), [3, np.nan, 6, 8])


@pytest.mark.parametrize(
    ("name", "place"),
    [("a.csv", ":4"), ("e.csv", ":12"), ("f.csv", ":5"), ("l.parquet", ", row 3"), ("d.csv", ":4")],
)
def test_the_place_of_a_row(tmp_path: Path, name: str, place: str) -> None:
    (tmp_path / name).write_bytes(
        FILES[name].replace(b"3.0", b"x.0") if name != "l.parquet" else FILES[name]
    )
    frame = frame_of(tmp_path / name).load(["device_id", "rate"])
    if name != "l.parquet":
        with pytest.raises(UserError) as caught:
            frame.number("rate")
        assert caught.value.where == str(tmp_path / name) + place
        assert "rate is 'x.0'" in str(caught.value)
    assert frame.place(2) == str(tmp_path / name) + place


def test_files_are_joined_and_lack_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("device,down\na,1\n")
    (tmp_path / "b.csv").write_text("up,device\n5,b\n6,a\n")
    frame = frame_of(tmp_path).load(["device", "down", "up"])
    assert frame.text("device")[0].tolist() == [0, 1, 0]
    np.testing.assert_array_equal(frame.number("down"), [1, np.nan, np.nan])
    assert frame.place(2) == f"{tmp_path}/b.csv:3"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a,b\n1,2,3\n", ":2: has 3 cells"),
        (b"a,a\n1,2\n", ":1: has the column 'a' twice"),
        (b"", "is empty"),
        (b"a,A\n1,2\n", "has the columns 'a' and 'A'"),
        (b'[{"b.c": 1, "b": {"c": 2}}]', "has the column 'b.c' twice"),
        (b'[{"a": 1, " a": 2}]', "has the column 'a' twice"),
        (b"\xd0\xcf\x11\xe0" + bytes(600), "protected by a password"),
        (b"a,b\na,1\n", "a is 'a'\n  this is the header again"),
        (b"PAR1" + b"x" * 50, "cannot be read as a table"),
        (
            arrow(lambda _, sink: parquet.write_table(pa.table({}), sink)),
            "has no column 'c' for device",
        ),
        (b"a.csv" + bytes(200) + b"ustar", "is not a text file: it has a byte 0"),
        (b"a,b,c\n1,2,x" + bytes(20) + b"y\n5,6,z\n", ":2: is not a text file: it has a byte 0"),
        (b"a,b\n1,\xff\n", ":2: is not a text file"),
        (b"a,b\n" + 20_000 * b"1,2\n" + b"1,\xff,3\n", ":20002: is not a text file"),
        (b"a,b\n1,2\n", "has no column 'c' for device\n  its columns are a, b"),
        (b'{"a": 1, "b": 2}\n\n{"a": 1, "b": 2, "a": 3}', ":3: is not JSON: the key 'a' appears"),
        (b'{"a": 1, "b": 2}\n{"a": 1', ":2:8: is not JSON"),
        (b'{"a": 1, "b": 2}\n[["a", 1], ["b", 2]]', ":2: is not a JSON object"),
        (b'[{"a": 1, "b": 2}, [1, 2]]', "has a row that is not a JSON object"),
        (b"\n".join(b'{"a": 1, "%d": 1}' % n for n in range(5000)), "5001 names of fields in 5000"),
    ],
)
def test_files_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, says: str
) -> None:
    """Without the traceback that pyarrow prints where it meets a row that is too wide and not UTF-8."""
    printed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(UserError) as caught:
        frame_of(tmp_path / "a.csv", {"device": "c"} if "device" in says else None).load(
            ["a", "b"]
        ).number("a")
    assert says in str(caught.value)
    assert printed == []


def test_damage_inside_binary_tables_names_the_file(tmp_path: Path) -> None:
    """Without a traceback or an end of the process, of which Arrow's own check keeps it."""
    path, refused = tmp_path / "a", 0
    plain = arrow(lambda table, sink: parquet.write_table(table, sink, use_dictionary=False))
    packed = arrow(lambda table, sink: feather.write_feather(table, sink, "uncompressed"))
    damaged = [(plain, 22)] + [(packed, at) for at in range(8, len(packed) - 8, 3)]
    for content, at in damaged:
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        try:
            frame_of(path).load(["device_id"]).text("device_id")
        except UserError as error:
            refused += str(path) in str(error)
        assert refused


def test_a_column_that_is_named_exactly_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("device,Device,x\na,b,1\n")
    for name, word in (("device", "a"), ("Device", "b")):
        frame = frame_of(tmp_path / "a.csv", {"device": name}).load(["device"])
        assert frame.text("device")[1] == [word]
    assert len(frame_of(tmp_path / "a.csv").load(["x"])) == 1


def test_a_number_is_no_name_of_a_column_without_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("-1,5\n")
    [source] = Sources([tmp_path / "a.csv"])
    frame = Frame([TableFile(source, header=False)], {"rate": "1"}).load(["rate"])
    with pytest.raises(UserError, match="must be a number"):
        frame.number("rate")
    with pytest.raises(UserError, match="must not be"):
        frame.refuse(np.array([True]), "rate is {}", "it must not be", "rate")


def test_a_spreadsheet_needs_its_package(tmp_path: Path) -> None:
    """Without openpyxl the error names it; with it, the rows are those of the table."""
    path = tmp_path / "a.xlsx"
    try:
        TABLE.to_excel(path, index=False)
    except ImportError:
        path.write_bytes(zipped(b""))
        with pytest.raises(UserError, match="pip install openpyxl"):
            frame_of(path)
    else:
        frame = frame_of(path).load(["device_id", "rate"])
        assert frame.text("device_id")[1] == ["007", "7", "a b"]
        assert frame.place(0) == f"{path}, row 2"
        names = ["Laptops, spring 2024", *[""] * (TABLE.shape[1] - 1)]
        TABLE.to_excel(path, index=False, header=names)
        with pytest.raises(UserError, match="first row names 1"):
            frame_of(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda sheet: sheet.cell(3, 2, "=A2+1"), "the cell B3 is a formula without a value"),
        (lambda sheet: sheet.cell(3, 2, "#DIV/0!"), "the cell B3 is #DIV/0!"),
        (lambda sheet: sheet.cell(1, 2, "a"), "has the column 'a' twice"),
        (lambda sheet: sheet.cell(1 << 20, 1 << 14, 1), "has cells far from the others"),
        (lambda sheet: sheet.cell(1, 2, " a "), "has the column 'a' twice"),
        (lambda sheet: sheet.delete_rows(1, 3), "is empty"),
        (None, "cannot be read as a spreadsheet"),
    ],
)
def test_spreadsheets_that_are_refused(tmp_path: Path, change: Any, says: str) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    for row in (["a", "b"], [1, 10**308], [2, 3]):
        book.active.append(row)
    path = tmp_path / "a.xlsx"
    book.save(path)
    assert len(frame_of(path).load(["b"])) == 2
    book.create_sheet("hidden", 0).sheet_state = "hidden"
    if change is None:
        path.write_bytes(zipped(b"<worksheet"))
    else:
        change(book.worksheets[1])
        book.save(path)
    with pytest.raises(UserError, match=re.escape(says)):
        frame_of(path)


def test_sheets_of_one_table_are_not_left_out(tmp_path: Path) -> None:
    """Those with other columns are, as are hidden ones."""
    book = pytest.importorskip("openpyxl").Workbook()
    names = {"visible": (["b", "c"], []), "hidden": (["a", "b"], [3, 4])}
    for sheet, rows in zip(
        (book.active, *map(book.create_sheet, names)),
        [(["a", "b"], [1, 2]), *names.values()],
        strict=True,
    ):
        for row in rows:
            sheet.append(row)
    sheet.sheet_state = "hidden"
    path = tmp_path / "a.xlsx"
    book.save(path)
    assert len(frame_of(path).load(["b"])) == 1
    sheet.sheet_state = "visible"
    book.save(path)
    with pytest.raises(UserError, match="the same columns in another sheet, 'hidden'"):
        frame_of(path)
    sheet["A1"], sheet["B1"], sheet["C1"] = "B", "a", "d"
    book.save(path)
    with pytest.raises(UserError, match="the same columns in another sheet, 'hidden'"):
        frame_of(path)


@pytest.mark.parametrize("form", ["float64", "float32", "xlsx", "jsonl"])
def test_names_are_no_rounded_numbers(form: str, tmp_path: Path) -> None:
    names = {"float32": [7.0, 16_777_217.0]}.get(form, [7.0, 89_490_200_001_234_567.0])
    path, frame = tmp_path / f"a.{form}", pd.DataFrame({"device": names})
    if form == "xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel(path, index=False)
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"device": name}) + "\n" for name in names))
    else:
        frame.astype(form).to_parquet(path)
    with pytest.raises(UserError, match=r"row 3|row 2.*device is '.*a number"):
        frame_of(path).load(["device"]).ids("device")
    path.unlink()
    frame.iloc[:1].to_parquet(path)
    assert frame_of(path).load(["device"]).ids("device")[1] == ["7"]


def test_a_percentage_of_a_spreadsheet_is_one(tmp_path: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    for row in (["loss", "device"], [0.05, "12345678901234567"], [0.07, "b"], [5, "c"]):
        book.active.append(row)
    book.active["A2"].number_format = book.active["A3"].number_format = "0.0%"
    book.active["A4"].number_format = '0.0"%"'
    book.save(tmp_path / "a.xlsx")
    frame = frame_of(tmp_path / "a.xlsx").load(["loss", "device"])
    assert frame.number("loss", 0.01, form="share").tolist() == [0.05, 0.07, 0.05]
    assert frame.ids("device")[1] == ["12345678901234567", "b", "c"]


def test_a_name_in_a_spreadsheet_may_be_na(tmp_path: Path) -> None:
    """As in CSV, whatever the file is called."""
    book = pytest.importorskip("openpyxl").Workbook()
    for row in (["device", "down"], ["NA", 1], ["None", "NA"], [7, "#N/A"], ["null", 4]):
        book.active.append(row)
    for name in ("a.XLSX", "a.xlsm", "a.csv"):
        book.save(tmp_path / name)
        frame = frame_of(tmp_path / name).load(["device", "down"])
        assert frame.text("device")[1] == ["NA", "None", "7"]
        np.testing.assert_array_equal(frame.number("down"), [1, np.nan, np.nan, 4])
        assert frame.place(0) == f"{tmp_path / name}, row 2"


def test_numbers_with_a_decimal_comma_are_explained(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("device;down\na;1,5\n")
    with pytest.raises(UserError, match=r"with a point: 1\.5"):
        frame_of(tmp_path / "a.csv").load(["down"]).number("down")


def test_ids_of_json_stay_text(tmp_path: Path) -> None:
    rows = [{"device": "007", "tags": [1]}, {"device": 7}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    frame = frame_of(tmp_path / "a.jsonl")
    assert frame.load(["device"]).text("device")[1] == ["007", "7"]


def test_whole_numbers_of_json_stay_whole_where_a_cell_is_missing(tmp_path: Path) -> None:
    ids = [9007199254740993, 9007199254740992, None]
    lines = [json.dumps({"device": number, "size": -(2**65)}) for number in ids]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    frame = frame_of(tmp_path / "a.jsonl").load(["device"])
    assert frame.text("device")[1] == ["9007199254740993", "9007199254740992"]


def test_true_is_no_number_beside_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 0.5}\n{"a": true}\n{"a": 3.5}')
    with pytest.raises(UserError, match=r"row 2: a is 'True'"):
        frame_of(tmp_path / "a.jsonl").load(["a"]).number("a")


def test_headers_cells_and_comments_of_any_length(tmp_path: Path) -> None:
    names = ["a", *(f"c{n:08}" for n in range(9000)), "b"]
    rows = [["x" * 200_000 + " y", *["1"] * 9000, "2"], ["z" * 9002]]
    lines = [
        *["# comment"] * 9000,
        *(",".join(row) for row in (names, *rows[:1])),
        "3" + 9001 * ",",
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    frame = frame_of(tmp_path / "a.csv").load(["a", "b"])
    assert frame.number("b").tolist()[0] == 2
    assert [frame.place(0), frame.place(1)] == [f"{tmp_path}/a.csv:{n}" for n in (9002, 9003)]


def test_lines_of_json_end_where_json_says(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": "x\u2028y"}\r\n{"a": "x\x85"}', encoding="utf-8")
    frame = frame_of(tmp_path / "a.jsonl").load(["a"])
    assert frame.text("a")[1] == ["x\u2028y", "x"]


@pytest.mark.parametrize(
    "text",
    [
        "a,\t\tb,\t\tc\n1,\t\t2,\t\t3\n",
        "a,b,c\t\t\t\n1,2,3\t\t\t\n",
        "a\tb\tc\n1\t2\t3\n",
        "a\tb, in s\tc\n1\t2\t3\n",
    ],
)
def test_tabs_separate_cells_if_they_do_not_follow_commas(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    frame = frame_of(tmp_path / "a.txt").load(["a", "c"])
    assert [frame.number(name).tolist() for name in ("a", "c")] == [[1], [3]]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("# page 1\x0c# 2\nclient,end\nslow,1\na,2\n", ["slow", "a"]),
        ("# made\u2028by\x85x\nclient,end\nslow,1\na,2\n", ["slow", "a"]),
        ("client end\n# made by x\n#1 1\n2 2\n", ["#1", "2"]),
        ('client,end\n# made by x\n#1,1\n "a, b",2\n', ["#1", "a, b"]),
        ("client,end\n# made by x\n#1,1\n2,2\n", ["#1", "2"]),
        ('client;end\n"a";1\n  "b c" ;2\n'.replace("\n  ", "\n"), ["a", "b c"]),
    ],
)
def test_no_row_is_lost_to_comments(text: str, ids: list[str], tmp_path: Path) -> None:
    """Other characters than those of lines do not end one, and a name may begin as a comment does."""
    (tmp_path / "a.csv").write_text(text)
    assert frame_of(tmp_path / "a.csv").load(["client", "end"]).ids("client")[1] == ids


@pytest.mark.parametrize(
    "text",
    [
        "\t" * 10**6 + "x,client\n",
        "1" + "." * 10**6 + "x\na\n",
        "client,end\n" + "-" * 10**6 + "x\n",
        "," * 3 * 10**6,
        json.dumps({f"k{n}": {"a": 1} for n in range(200_000)}),
        '{"a":' * 60 + "1" + "}" * 60,
    ],
    ids=["tabs", "points", "ruler", "commas", "names", "levels"],
)
def test_long_lines_are_refused_in_time(text: str, tmp_path: Path) -> None:
    """Each took minutes, or gigabytes."""
    (tmp_path / "a").write_text(text)

    def read() -> None:
        frame = frame_of(tmp_path / "a")
        frame.require_header()
        frame.load(frame.names)

    with pytest.raises(UserError):
        read()
