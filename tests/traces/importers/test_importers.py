"""The formats that ship with fedsim, and importers of the user's own."""

import contextlib
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fedsim.cli import cli
from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.parts.component import load_user_component
from fedsim.parts.parameters import descriptions
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import FORMATS
from fedsim.traces.importers import Importer, import_bundle, recognize
from fedsim.traces.validation import implausible_rates, implausible_times
from tests.traces.helpers import (
    export,
    import_,
    intervals,
    online,
    put,
    rate_at,
    refused,
    series_rows,
    write,
)


def test_every_format_says_what_it_is() -> None:
    names = (
        "ai_benchmark avt fedscale flash fta grid mahimahi mobiperf nyu_mets pensieve rtt_matrix table throughput "
        "ucc5g"
    )
    assert list(CATALOG.parts("importer")) == names.split()
    assert list(FORMATS) == ["avt", "fedscale", "fta", "mahimahi", "pensieve"]
    for component in [*CATALOG.parts("importer").values(), *FORMATS.values()]:
        assert component.description
        assert set(descriptions(component.Params)) == set(component.Params.model_fields)


def test_command_line_prints_what_was_dropped(tmp_path: Path) -> None:
    source = tmp_path / "b.json"
    source.write_text(json.dumps({"1": {"active": [1, 5], "inactive": [2, 5], "finish_time": 60}}))
    done = invoke("import", "fedscale", source, "-o", tmp_path / "bundle")
    assert "zero length: 1\n" in done.output
    assert "out of order" not in done.output  # there are none
    invoke("export", "avt", tmp_path / "bundle", "-o", tmp_path / "a.avt")
    assert (tmp_path / "a.avt").read_text() == "1\t1\t 1 2\n"


def invoke(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, ["traces", *map(str, arguments)], prog_name="fedsim")
    assert done.exit_code == code, done.output
    return done


MINE = '''
from fedsim.errors import UserError
from fedsim.traces.importers import Importer, Imported, Importer, ImporterParams

class DoorsParams(ImporterParams):
    """Options."""
    length_s: int = 100
    """Length of the observation."""

class Doors(Importer):
    """People behind a door: a name, when it opened and when it closed (s)."""
    Params = DoorsParams

    @classmethod
    def read(cls, sources, params):
        rows = []
        for source in sources:
            for line, text in source.lines():
                if len(text.split()) != 3:
                    raise UserError("is not a visit", where=source.line(line), hint="write three")
                rows.append(text.split())
        names = sorted({row[0] for row in rows})
        return Imported({
            "devices": {
                "device_id": names,
                "window_start_us": [0] * len(names),
                "window_end_us": [params.length_s * 10**6] * len(names),
                "valid": [True] * len(names),
            },
            "availability": {
                "device_id": [row[0] for row in rows],
                "start_us": [int(row[1]) * 10**6 for row in rows],
                "end_us": [int(row[2]) * 10**6 for row in rows],
            },
        })

'''


@pytest.mark.parametrize("form", ["option", "argument"])
def test_an_importer_of_ones_own_is_used_like_any_other(tmp_path: Path, form: str) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "visits.txt").write_text("ann 0 5\nann 7 9\nbob 1 2\n")
    reference = f"{tmp_path}/mine.py:Doors"
    words = [tmp_path / "visits.txt", "--format", reference]
    if form == "argument":
        words = [reference, tmp_path / "visits.txt"]
    invoke("import", *words, "-s", "length_s=20", "-o", tmp_path / "b")
    bundle = TraceBundle.read(tmp_path / "b")
    assert intervals(bundle) == {
        "ann": [(0, 5_000_000), (7_000_000, 9_000_000)],
        "bob": [(1_000_000, 2_000_000)],
    }
    assert bundle.manifest.horizon_us == 20_000_000
    assert bundle.manifest.options == {"length_s": 20}
    assert (bundle.manifest.importer, bundle.manifest.name) == ("Doors", "b")
    invoke("import", *words, "-s", "name=visits", "-o", tmp_path / "named")
    assert TraceBundle.read(tmp_path / "named").manifest.name == "visits"
    assert "visits.txt (sha256" in (bundle.manifest.source or "")
    assert "length_s" in invoke("import", reference).stdout
    (tmp_path / "late.txt").write_text("ann 7 5\n")
    result = invoke("import", "--format", reference, tmp_path / "late.txt", "-o", "x", code=2)
    assert f"{tmp_path}/late.txt: availability row 0" in result.stderr
    for wrong in (
        "return None",
        "return Imported({'devices': {'device_id': names}}, horizon_us=-1)",
    ):
        (tmp_path / "wrong.py").write_text(
            MINE.replace("        return", f"        {wrong}\n        return")
        )
        words = [f"{tmp_path}/wrong.py:Doors", tmp_path / "visits.txt", "-o", tmp_path / "c"]
        assert "Doors.read: returns " in invoke("import", *words, code=2).stderr
        (tmp_path / "wrong.py").rename(tmp_path / "before.py")
    # A mistake in it is the user's own, not one of the file.
    (tmp_path / "faulty.py").write_text(MINE.replace("rows = []", "rows = max([])"))
    importer: Any = load_user_component(f"{tmp_path}/faulty.py:Doors", Importer, tmp_path)
    with pytest.raises(ValueError, match="max"):
        import_bundle(importer, [tmp_path / "visits.txt"], importer.Params())


US = 1_000_000
HEADS = {
    "avt": "a\t1\t 1 2\n",
    "table": "device,start,end\na,1,2\n",
    "fedscale": '{"1": {"active": [1], "inactive": [2], "finish_time": 60}}',
    "flash": '{"a": {"isSuccess": true, "ready_time": [[1, 2]], "trace_start": 0, "trace_end": 9}}',
    "fta": "0\t1\t7\t1\thost7\t1\t1136073600.000\t1136073660.000\tNULL\n",
    "grid": "from,to,forecast,actual,index\n2024-01-01,,1,2,low\n2024-01-02,,1,2,low\n",
    "mobiperf": '[{"tcp_speed_results": [1.0]}]',
    "nyu_mets": "1.5,Mbits/sec\n",
    "pensieve": "0.0\t1.5\n1.0\t1.5\n",
    "ucc5g": "Timestamp,NetworkMode,State,DL_bitrate,UL_bitrate\n2020.02.27_18.39.27,5G,D,1,1\n",
}


@pytest.mark.parametrize("format_", HEADS)
def test_files_that_show_their_format_need_no_name(tmp_path: Path, format_: str) -> None:
    path = tmp_path / "source"
    path.write_text(HEADS[format_])
    assert recognize([path]) == [format_]
    units = ["-s", "time_unit=s"] if format_ == "table" else []
    done = invoke("import", path, *units, "-o", tmp_path / "b")
    assert f"format: {format_}" in done.stderr
    assert TraceBundle.read(tmp_path / "b").manifest.importer == format_


def timer(end: float, ready: Any) -> dict[str, Any]:
    return {"isSuccess": True, "trace_start": 1, "trace_end": end, "ready_time": ready}


UCC = "Timestamp,NetworkMode,State,DL_bitrate,UL_bitrate\n"
DAY = "2024-05-01T"
SECONDS = {"time_unit": "s", "compute_unit": "s", "rate_unit": "bps", "latency_unit": "s"}
OPTIONS: dict[str, dict[str, Any]] = {
    "mahimahi": {"direction": "up"},
    "rtt_matrix": {"unit": "ms"},
    "throughput": {"time": "t", "down": "x", "time_unit": "s", "rate_unit": "B"},
    "table": SECONDS,
}
"""Options of importers; none of the others."""
REFUSED: list[tuple[Any, ...]] = [
    ("ai_benchmark", {"1": {"device": "x"}}, ", device 1: has no 'speed'"),
    ("ai_benchmark", {"A": -1}, ", A: the score is -1"),
    ("ai_benchmark", [{"Model": "A", "AI_Score": "76,206"}], "there is no device"),
    ("ai_benchmark", {"1": {"device": "x", "speed": 1, "ram": "8 GB"}}, "1: 'ram' is '8 GB'"),
    ("ai_benchmark", [{"Model": "A"}], "there is no device"),
    ("ai_benchmark", {"a": 1, "b": "x"}, "give the raw AI Benchmark list"),
    ("avt", "ok 1 1 2\nx\t2\t 1 2\n", ":2: "),
    ("avt", "ok 1 1 2\nx\t1\t 1.5 2\n", ":2: a time is '1.5'"),
    ("avt", "ok 1 1 2\nx\t1\t 1_0 2_0\n", ":2: a time is '1_0'"),
    ("avt", "ok 1 1 2\nx\t1\t １０ ２０\n", ":2: a time is '１０'"),
    ("avt", "ok 1 1 2\nx\t1_0\t 1 2\n", ":2: a time is '1_0'"),
    ("avt", "ok 1 1 2\nx\t\t\n", ":2: its number of intervals"),
    (
        "fedscale",
        {"9": {"active": ["1_0"], "inactive": [50], "finish_time": 99}},
        ", client 9: 'active' is '1_0'",
    ),
    ("avt", "ok 1 1 2\nok 1 1 2\n", ":2: repeats the node ok"),
    ("avt", "x\t0\t \n", "-s window="),
    ("fedscale", {"9": {"active": [0, 7], "inactive": [5], "finish_time": 9}}, "of equal length"),
    (
        "fedscale",
        {"9": {"active": [0], "inactive": [None], "finish_time": 9}},
        ", client 9: 'inactive'",
    ),
    (
        "fedscale",
        {"9": {"active": [0], "inactive": [5], "finish_time": 0}},
        ", client 9: 'finish_time'",
    ),
    ("fedscale", {"9": {"active": [0], "inactive": [5]}}, ", client 9: has no 'finish_time'"),
    ("fedscale", {"9": {"computation": -1.0, "communication": 1.0}}, ", client 9: 'computation'"),
    ("fedscale", {"9": {"x": 1}}, "has none of active, computation"),
    ("fedscale", '{\n"1": {"active": [1,\n', ":3:1: is not JSON"),
    ("fedscale", b'{"1": "\xff"}', "is not a text file"),
    (
        "ai_benchmark",
        pickle.dumps({"\ud800A": 100}),
        "csv: not in the ai_benchmark format: 'utf-8' codec",
    ),
    *(
        (name, text, 'csv:2: has half a character, \\ud800, in "\\ud800A"')
        for name, text in (
            ("ai_benchmark", '{\n"\\ud800A":100,"B":200}'),
            ("fedscale", '{\n"\\ud800A": {"computation": 1, "communication": 1}}'),
            ("flash", '{\n"\\ud800A": {}}'),
            ("mobiperf", '[\n{"device": "\\ud800A"}]'),
        )
    ),
    ("fedscale", pickle.dumps({1: {"active": [0]}})[:20], "the pickle is damaged"),
    ("avt", "", "has no nodes"),
    ("flash", {"a": timer(1, [])}, "devices row 0: the window"),
    ("flash", {"a": timer(9, []) | {"isSuccess": "false"}}, "device a: 'isSuccess' is 'false'"),
    ("flash", {"a": timer(9, [[1, "x"]])}, ", device a: an end"),
    ("flash", {"a": timer(9, [[1, 2, 3]])}, "too many values"),
    (
        "flash",
        {"a": timer(9, [[1, 2]]) | {"trace_end": True}},
        ", device a: trace_start or trace_end is True",
    ),
    (
        "flash",
        {"a": timer(9, [[1, 2]]) | {"trace_end": None}},
        ", device a: trace_start or trace_end is null",
    ),
    ("flash", {"a": {"messages": 5}}, ", device a: 'messages' is 5, not text"),
    ("fedscale", {"9": {"active": None, "inactive": [5]}}, ", client 9: 'active' is null"),
    ("fedscale", {"9": {"active": {"0": 1}, "inactive": [5]}}, ", client 9: 'active' is {"),
    ("ai_benchmark", [{"Model": None, "AI_Score": "5"}], "record 1 has no text 'Model'"),
    ("mahimahi", "1 2\n", ":1: has 2 fields, not 1"),
    ("mobiperf", [{"tcp_speed_results": [1e300]}], ", record 1: a throughput sample"),
    (
        "flash",
        {"a": {"messages": "2020-02-01 wifi", "model": ""}},
        ", device a, line 1 of messages: ",
    ),
    ("flash", {"a": {"down_u": -1.0, "down_sigma": 0, "up_u": 1}}, ", device a: 'down_u'"),
    ("fta", "1\t2\t3\n", ":1: has 3 fields, not 9"),
    ("fta", "0\t1\t7\t1\th\t2\t0\t9\tNULL\n", ":1: event_type"),
    ("fta", "0\t1\t7\t1\th\t1\tsoon\t9\tNULL\n", ":1: event_start_time"),
    ("fta", "0\t1\t7\t1\th\t1\t0\t9\tNULL\n0\t2\t7\t1\th\t1\t0\t9\tNULL\n", "component=2"),
    ("fta", "0\t1\t7\t1\th\t1\t5\t5\tNULL\n", "no node has an interval"),
    ("mahimahi", "1\n\n2.5\n", ":3: the time is '2.5'"),
    ("mobiperf", [{"tcp_speed_results": [1.0]}, {"tcp_speed_results": [-1.0]}], ", record 2: "),
    ("mobiperf", [{"tcp_speed_results": [1, True]}], ", record 1: a throughput sample is True"),
    ("nyu_mets", "1,Mbits/sec\n1,MB/h\n", ":2: 'MB/h'"),
    ("nyu_mets", "1e300,Gbits/sec\n", ":1: the rate is '1e300'"),
    ("nyu_mets", "fast,Mbits/sec\n", ":1: the rate is 'fast'"),
    ("nyu_mets", ",Mbits/sec\n", "has no rate of down"),
    ("nyu_mets", "1,Mbits/sec\n,\n2,Mbits/sec\n", ":2: is empty"),
    ("pensieve", "0 1\n1 2 3\n", ":2: has 3 cells"),
    ("pensieve", "0 1\n\n1 fast\n", ":3: rate is 'fast'"),
    ("pensieve", "0 1\n5 1\n4 1\n", ":3: the time is '4'"),
    ("pensieve", "0 1\n2 1\n1 1\n", "times must not decrease"),
    ("pensieve", "0 1\nnan 1\n5 1\n", ":2: has no time"),
    ("pensieve", "0 1\n0 2\n", "has no interval between two times"),
    ("pensieve", "0 1\n1 10%\n", ":2: rate is '10%'"),
    (
        "pensieve",
        "0 1\n1 1e13\n",
        "rate_bps is 1e+19 bit/s; it must be at least 0 and at most 1e+18",
    ),
    (
        "fedscale",
        '{"1": {"computation": 10, "communication": 1e308}}',
        "client 1: 'communication' is 1e+308",
    ),
    ("rtt_matrix", "0 1\n1 0 2\n", ":2: has 3 cells"),
    ("rtt_matrix", "0 1 2\n1 0 2\n", "has 2 lines of 3 numbers"),
    ("rtt_matrix", "1 " * 300_000, "has 1 lines of 300000 numbers"),
    ("rtt_matrix", "0 x\n1 0\n", ":1: 2 is 'x'"),
    ("rtt_matrix", "0 0\n0 0\n", "no round-trip time"),
    ("rtt_matrix", ",0,1,2\n0,0,10,20\n1,10,0,30\n2,20,30,0\n", "numbers its nodes"),
    ("grid", "time,load\n2024-01-01,1\n", "no column of carbon intensity"),
    ("grid", "time,intensity g/kWh\n2024-01-01,1\n2024-01-02,5%\n", ":3: intensity g/kWh is '5%'"),
    ("throughput", "t,y\n0,1\n1,1\n", "no column 'x' for down\n  its columns are t, y"),
    ("throughput", "0,1\n1,1\n", "no column '-1' for time", {"time": "-1", "down": "2"}),
    ("throughput", "t,x\n2024-05-01,1\n1,1\n", ":2: time is '2024-05-01'"),
    ("throughput", "t,x\n0,1\n5,1\n4,1\n", ":4: the time is '4', before"),
    ("throughput", "t,x\n0,1\n1,fast\n", ":3: down is 'fast'"),
    ("throughput", "t,x\n0,1\n1,00:00:05\n", ":3: down is '00:00:05'"),
    ("ucc5g", f"{UCC}soon,5G,D,1,1\n", "'soon'"),
    ("ucc5g", f"{UCC}2020.02.27_18.39.01,5G,D,x,1\n", ":2: DL_bitrate is 'x'"),
    ("ucc5g", f"{UCC}2020.02.27_18.39.01,5G,D,1e306,1\n", ":2: DL_bitrate is '1e306'"),
    ("ucc5g", f"{UCC}2020.02.27_18.39.01,5G,I,1,1\n", "no row gives DL_bitrate"),
    (
        "ucc5g",
        f"{UCC[:-1]},PINGLOSS\n2020.02.27_18.39.01,5G,D,1,1,1000\n",
        ":2: PINGLOSS is '1000'",
    ),
    (
        "table",
        "device,strat,end\na,1,2\n",
        "-s columns='{start: NAME}'; its columns, with their first cells: device (a), strat (1)",
    ),
    ("table", "device,start\na,1\n", ": has no column time, two of start, end and duration, or"),
    ("table", "device,start,end\na,1,2\n\nb,1,2,3\n", ":4: has 4 cells"),
    ("table", "device,start,end\n\na,1,1e300\n", ":3: end is '1e300'"),
    ("table", "device,start,end\na,,1\n", ":2: has an end without a start"),
    ("table", "device,start,end\n,1,2\n", ":2: has no device"),
    ("table", "device,start,end\na,1,-inf\n", ":2: end is '-inf'"),
    (
        "table",
        "device,start,duration\na,1,9e12\n",
        ":2: duration is '9e12'",
        {"time_unit": "s", "duration_unit": "s"},
    ),
    ("table", "device,score\na,1\nb,0:00:10\n", ":3: score is '0:00:10'"),
    ("table", "device,start,end\na,1,2\n#REF!,1,2\n", ":3: has no device (it is '#REF!')"),
    ("table", "device,start,end\na,08:00,12:30\n", ":2: start is '08:00'"),
    ("table", "device,start,end\na,-5,-1\n", "-s window="),
    ("table", "device,score,model\na,1,X\na,2,Y\n", ":3: gives a different model"),
    ("table", "device,down,loss\na,3,1.5\n", ":2: loss is '1.5'"),
    ("table", "device,down,bandwidth\na,3,3\n", "both bandwidth and down"),
    ("table", "device,loss\na,.3\n", "none of the columns down, up, bandwidth"),
    *(
        ("table", f"device,x,{own},{alone}\na,0,1,2\n", hint, {"columns": columns, **options})
        for own, alone, columns, options, hint in (
            ("step_time", "loss", {}, {"compute_unit": "s"}, "-s columns='{other: loss}'"),
            (
                "relative_speed",
                "radio",
                {"other": "x"},
                {},
                "-s columns='{other: x, other_radio: radio}'",
            ),
            ("down", "ram_bytes", {}, {"rate_unit": "B/s"}, "-s columns='{other: ram_bytes}'"),
        )
    ),
    ("table", "device,start,end\n", "has no rows"),
    ("table", "", "is empty"),
    ("table", b"PAR1" + b"x" * 50, "cannot be read as a table"),
    ("table", "device,time\na,1\n", "no column of states"),
    ("table", "device,time,state\na,1,idle\na,2,busy\n", "-s online='COLUMN == VALUE'"),
    ("table", "device,time,state\na,,on\na,3,off\n", ":2: has a state without a time"),
    ("table", "device,time,state\na,1,on\n", "-s hold=5min"),
    ("table", "device,time,state\na,1,on\nb,1,off\n", "-s window="),
    ("table", "device,start,end,time,state\na,1,2,3,on\n", "{other: time}"),
    ("table", f"device,start,end\na,{DAY}00:00Z,7\n", "-s time_unit=", {}),
    ("table", f"device,start,end\na,{DAY}00:00,{DAY}01:00\n", "-s time_zone=", {}),
    ("table", "device,start,end\na,1,2\n", "-s time_unit=", {}),
    (
        "table",
        "device,start,end\na,2024-03-31T02:30,2024-03-31T04:00\n",
        ":2: start is '2024-03-31T02",
        {"time_zone": "Europe/Berlin"},
    ),
    ("table", "device,start,end\na,1,2\n", "Mars/Olympus", {"time_zone": "Mars/Olympus"}),
    (
        "table",
        "device,time,state\na,1,on\n",
        "names the state 'power'",
        {"time_unit": "s", "initial": {"power": "on"}},
    ),
]
"""Importer, content, a part of the message, and options instead of those above."""


@pytest.mark.parametrize("format_", CATALOG.parts("importer"))
def test_malformed_files_are_refused_with_their_place_or_fix(tmp_path: Path, format_: str) -> None:
    importer = CATALOG.parts("importer")[format_]
    for _, content, says, *options in (row for row in REFUSED if row[0] == format_):
        data = content if isinstance(content, str | bytes) else json.dumps(content)
        path = tmp_path / "0.csv"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        params = importer.Params(**(options[0] if options else OPTIONS.get(format_, {})))
        with pytest.raises(UserError) as caught:
            import_bundle(importer, [path], params)
        assert says in str(caught.value), content
    with pytest.raises(UserError, match="No such file"):
        import_bundle(importer, [tmp_path / "missing"], params)


WRONG: list[Any] = [
    *([], {}, [1], [[1, 2]], {"a": 1}, {"a": None}, "x y z\n1 2 3\n", "1,2\n3\n", "\n", "# a\n"),
    *({"a": {"messages": 3}}, {"a": {"active": 1, "inactive": 2, "finish_time": 3}}),
    *({"a": timer(9, 7) | {"trace_end": None}}, {"a": {"isSuccess": True, "ready_time": [[1]]}}),
    *([{"tcp_speed_results": "x"}], {"Model": "a"}, {"a": "fast"}, {"a": {"speed": []}}),
]


@pytest.mark.parametrize("format_", CATALOG.parts("importer"))
def test_no_file_of_another_form_ends_in_a_traceback(tmp_path: Path, format_: str) -> None:
    importer = CATALOG.parts("importer")[format_]
    params = importer.Params(**({"unit": "ms"} if format_ == "rtt_matrix" else {}))
    for number, content in enumerate(WRONG):
        path = tmp_path / f"{number}.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        with contextlib.suppress(UserError):
            import_bundle(importer, [path], params)


def test_a_file_of_no_known_format_asks_for_its_name(tmp_path: Path) -> None:
    path = tmp_path / "poem.txt"
    path.write_text("Shall I compare thee\n")
    stderr = invoke("import", path, "-o", tmp_path / "b", code=2).stderr
    assert "poem.txt: its format is not clear" in stderr
    assert "--format table; formats: " in stderr


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        ("a,0,600\nb,1200,4800", None),
        ("a,0,600\nb,157000000,157000600", None),
        ("a,0,600000\nb,1200000,4800000", "intervals are longer than 10 d"),
        ("a,1700000000,1700003600", "begins 53.9 years after time 0"),
        ("a,0,0.6\nb,1.2,4.8\nc,1,1.5", "intervals are shorter than 1 s"),
        ("a,0,60\na,157700000,157800000\na,157900000,157900060", "for more than 5.01"),
        ("a,0,10.7\na,300,331\nb,20,30\nb,600,604.8", "for 10 min 5 s"),
        ("a,0,10.7\nb,604800,604810", None),
    ],
)
def test_times_in_another_unit_are_noticed(tmp_path: Path, rows: str, warning: str | None) -> None:
    path = put(tmp_path / "a.csv", f"device,start,end\n{rows}\n")
    # A declared window does not hide a doubt of short times.
    window = "9d" if warning and "min" in warning else None
    doubt = implausible_times(import_("table", path, time_unit="s", window=window))
    assert (doubt is None) == (warning is None)
    assert doubt is None or (str(warning) in str(doubt) and "-s time_unit=" in str(doubt))
    assert ("time_unit=unix_s" in str(doubt)) == ("1700000000" in rows)


@pytest.mark.parametrize(
    ("unit", "rates", "doubtful"),
    [
        ("Mbps", (6.5, 3, 45), ""),
        ("Gbps", (6.5, 3, 45), "phone"),
        ("kbps", (6.5, 3, 45), "phone server"),
        ("bps", (20, 30, 40), "phone server"),
    ],
)
def test_rates_in_another_unit_are_noticed(
    tmp_path: Path, unit: str, rates: tuple[float, ...], doubtful: str
) -> None:
    for kind in ("phone", "server"):
        rows = "".join(f"d{rate},{rate},{kind}\n" for rate in rates)
        path = put(tmp_path / "a.csv", f"device,bandwidth,kind\n{rows}")
        doubt = implausible_rates(import_("table", path, rate_unit=unit))
        assert (doubt is not None) == (kind in doubtful)
        assert doubt is None or "-s rate_unit=" in str(doubt)


def test_commands_warn_of_doubtful_times(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("device,start,end\na,1700000000,1700003600\n")
    options = ("-s", "time_unit=s", "-o", tmp_path / "b")
    for arguments in (
        ("import", "table", tmp_path / "a.csv", *options),
        ("validate", tmp_path / "b"),
        ("inspect", tmp_path / "b", "--json"),
    ):
        assert "warning: " in invoke(*arguments).stderr
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "name: t\ntask: {name: timing, clients: 1, parameters: 9}\ntraining: {local_steps: 1}\n"
        "devices: {trace: b, compute: {name: values, step: [1]}, availability: {name: trace},\n"
        "  network: {name: static, latency: 0, down: 1e6, up: 1e6}}\nstop: {rounds: 1}\n"
    )
    checked = CliRunner().invoke(cli, ["scenario", "check", str(scenario)]).output
    assert "scenario.yaml:4:18: devices.trace: " in checked


def test_a_bundle_without_digests_is_not_verifiable_and_not_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("device,start,end\na,0,600\n")
    invoke("import", "table", tmp_path / "a.csv", "-s", "time_unit=s", "-o", tmp_path / "b")
    assert "not verifiable" not in invoke("validate", tmp_path / "b").stderr
    file = tmp_path / "b" / "manifest.json"
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"sha256": {}, "manifest_sha256": None})
    )
    done = invoke("validate", tmp_path / "b")
    assert "not verifiable: its manifest has no SHA-256 of devices, availability" in done.stderr
    assert "sound" in done.stdout


def test_the_window_is_an_option_not_the_last_stop_of_a_node(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avt", "x\t1\t 5 10", "y\t1\t 0 40")
    guessed = import_("avt", path)
    ends = [row["window_end_us"] for row in guessed.devices.to_pylist()]
    assert ends == [40 * US, 40 * US]
    assert any("no window was given" in caveat for caveat in guessed.manifest.caveats)
    with_window = import_("avt", path, window="60s")
    assert [row["window_end_us"] for row in with_window.devices.to_pylist()] == [60 * US, 60 * US]
    assert with_window.manifest.caveats == []
    assert online(with_window, 45 * US) == set()
    assert online(guessed, 45 * US) == {"x", "y"}
    cut = import_("avt", path, window=30)
    assert intervals(cut)["y"] == [(0, 30 * US)]
    assert cut.manifest.counts["cut_at_window"] == 1
    short = import_("avt", path, window=4)
    assert (short.manifest.counts["outside_window"], cut.manifest.counts["outside_window"]) == (
        1,
        0,
    )
    assert short.manifest.caveats == ["1 interval outside the window, 4 s from time 0, dropped"]
    rows = cut.tables["availability"].to_pylist()
    assert [row["censored"] for row in rows] == [0, 3]


def test_mahimahi_pairs_directions(tmp_path: Path) -> None:
    (tmp_path / "cell.down").write_text("0\n5\n")
    (tmp_path / "cell.up").write_text("1\n9\n")
    (tmp_path / "other.down").write_text("3\n")
    bundle = import_("mahimahi", tmp_path)
    assert bundle.device_ids.to_pylist() == ["cell", "other"]
    assert bundle.devices.to_pylist()[0]["window_end_us"] == 10_000
    assert rate_at(bundle, "cell", "up", 1500) == 12e6
    assert rate_at(bundle, "cell", "down", 1500) == 0.0
    (tmp_path / "plain").write_text("1\n")
    assert "the direction" in refused("mahimahi", tmp_path / "plain")
    assert import_("mahimahi", tmp_path / "plain", direction="up").device_count == 1


def mobiperf_test(results: list[Any], network: str = "WIFI") -> dict[str, Any]:
    return {
        "timestamp": 1514779787132000,
        "device_properties": {"network_type": network, "device_info": {"model": "SM"}},
        "tcp_speed_results": results,
    }


def test_mobiperf(tmp_path: Path) -> None:
    content = [
        mobiperf_test([1000.0, 3000.0]),
        mobiperf_test([]),
        mobiperf_test([0.0]),
        mobiperf_test([5.0], "Wifi"),
    ]
    bundle = import_("mobiperf", put(tmp_path / "m.json", json.dumps(content)))
    rows = bundle.tables["network"].to_pylist()
    assert [(r["device_id"], r["bandwidth_bps"], r["bandwidth_cv"]) for r in rows] == [
        ("test1", 2e6, 0.5),
        ("test4", 5e3, 0.0),
    ]
    assert [r["radio"] for r in rows] == ["wifi", "wifi"]
    assert [r["direction"] for r in rows] == ["down", "down"]
    assert bundle.manifest.counts == {"tests": 4, "without_samples": 1, "all_zero": 1}
    assert any("not a random sample" in caveat for caveat in bundle.manifest.caveats)


@pytest.mark.real_data
def test_real_mobiperf(real_traces: Path) -> None:
    source = real_traces / "mobiperf_tcp_down_2018" / "mobiperf_tcp_down_2018_sample.json"
    bundle = import_("mobiperf", source)
    data = json.loads(source.read_text())
    rows = bundle.tables["network"].to_pylist()
    assert bundle.manifest.counts == {"tests": 91, "without_samples": 0, "all_zero": 0}
    for row, test in zip(rows, data, strict=True):
        expected = sum(test["tcp_speed_results"]) / len(test["tcp_speed_results"]) * 1000
        assert row["bandwidth_bps"] == pytest.approx(expected)
    assert sorted({row["radio"] for row in rows}) == ["mobile", "wifi"]


@pytest.mark.real_data
def test_real_nyu(real_traces: Path) -> None:
    bundle = import_("nyu_mets", real_traces / "nyu_mets_lte")
    assert bundle.device_count == 12
    assert bundle.manifest.counts == {"seconds": 122721, "missing_rates": 0}
    lines = (real_traces / "nyu_mets_lte" / "bus62.csv").read_text().split()
    factor = {"Mbits/sec": 1e6, "Kbits/sec": 1e3, "bits/sec": 1.0}
    for second in (0, 100, 2000):
        value, unit = lines[second].split(",")
        expected = float(value) * factor[unit]
        assert rate_at(bundle, "bus62", "down", second * US) == pytest.approx(expected)
    assert sum("Kbits" in line for line in lines) == 183


def test_pensieve_rates_end_at_their_times(tmp_path: Path) -> None:
    path = tmp_path / "walk"
    path.write_text("0.0\t9.0\n0.5\t1.5\n2.0\t0.25\n")
    bundle = import_("pensieve", path)
    assert series_rows(bundle, "walk", "down") == [(0, 500_000, 1.5e6), (500_000, 1_500_000, 2.5e5)]
    assert bundle.manifest.counts == {"first_rates": 1, "zero_length": 0}
    path.write_text("0.0\tnan\n0.5\tnan\n2.0\t0.25\n")
    assert import_("pensieve", path).manifest.counts["missing_rates"] == 1
    device = bundle.devices.to_pylist()[0]
    assert (device["device_id"], device["period_us"]) == ("walk", 2 * US)
    assert bundle.tables["network_assign"].to_pylist() == [
        {"device_id": "walk", "series_id": "walk", "offset_us": 0, "scale": 1.0}
    ]


@pytest.mark.real_data
def test_real_pensieve(real_traces: Path) -> None:
    bundle = import_("pensieve", real_traces / "hsdpa_norway")
    files = [p for p in (real_traces / "hsdpa_norway").iterdir() if p.name.startswith("norway")]
    assert bundle.device_count == len(files) == 80
    generator = random.Random(4)
    for path in generator.sample(sorted(files), 8):
        raw = [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
        zero = raw[0][0]
        for _ in range(3):
            time_s = generator.uniform(0, raw[-1][0] - zero)
            # The rate of the interval that ends at the first later time.
            expected = next(rate for end, rate in raw[1:] if end - zero > time_s)
            rate_bps = rate_at(bundle, path.name, "down", int(time_s * 1e6))
            assert rate_bps == expected * 1e6


@pytest.mark.real_data
def test_real_puffer_archive(real_traces: Path) -> None:
    bundle = import_(
        "pensieve", real_traces / "puffer_broadband" / "puffer_300.zip", app_limited=True
    )
    assert bundle.device_count == 300
    assert bundle.manifest.counts["first_rates"] == 300


def test_two_files_of_one_name(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "walk").write_text("0 1\n1 2\n")
    bundle = import_("pensieve", tmp_path)
    assert bundle.device_ids.to_pylist() == ["x/walk", "y/walk"]
    export("pensieve", bundle, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["x_walk", "y_walk"]
    message = refused("pensieve", tmp_path / "x" / "walk", tmp_path / "y" / "walk")
    assert "has the same name 'walk'" in message


def test_what_has_no_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to(tmp_path / "a.txt")
    refused("pensieve", tmp_path / "a.txt")
    (tmp_path / "empty").mkdir()
    assert "no files to import" in refused("pensieve", tmp_path / "empty")
    with pytest.raises(UserError, match="no files to import"):
        recognize([tmp_path / "empty"])
