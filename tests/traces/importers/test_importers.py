"""The formats that ship with fedsim, and importers of the user's own."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fedsim.cli import cli
from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.parts.parameters import descriptions
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import registry as exporters
from fedsim.traces.importers import import_bundle, recognize
from fedsim.traces.validation import implausible_rates, implausible_times
from tests.traces.helpers import import_, intervals


def test_every_format_says_what_it_is() -> None:
    assert list(CATALOG.parts("importer")) == [
        "ai_benchmark",
        "avt",
        "fedscale",
        "flash",
        "fta",
        "mahimahi",
        "mobiperf",
        "nyu_mets",
        "pensieve",
        "rtt_matrix",
        "table",
        "throughput",
        "ucc5g",
    ]
    assert list(exporters()) == ["avt", "fedscale", "fta", "mahimahi", "pensieve"]
    for component in [*CATALOG.parts("importer").values(), *exporters().values()]:
        assert component.description
        assert set(descriptions(component.Params)) == set(component.Params.model_fields)


def test_command_line_prints_what_was_dropped(tmp_path: Path) -> None:
    source = tmp_path / "b.json"
    source.write_text(json.dumps({"1": {"active": [1, 5], "inactive": [2, 5], "finish_time": 60}}))
    runner = CliRunner()
    done = runner.invoke(
        cli, ["traces", "import", "fedscale", str(source), "-o", str(tmp_path / "bundle")]
    )
    assert done.exit_code == 0, done.output
    assert "zero length: 1\n" in done.output
    assert "out of order" not in done.output  # there are none
    done = runner.invoke(
        cli, ["traces", "export", "avt", str(tmp_path / "bundle"), "-o", str(tmp_path / "a.avt")]
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.avt").read_text() == "1\t1\t 1 2\n"


def invoke(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, ["traces", *map(str, arguments)], prog_name="fedsim")
    assert done.exit_code == code, done.output
    return done


MINE = '''
from fedsim.errors import UserError
from fedsim.traces.importers import Imported, Importer, ImporterParams

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
    assert bundle.manifest.importer == "Doors"
    assert "visits.txt (sha256" in (bundle.manifest.source or "")
    assert "length_s" in invoke("import", reference).stdout


HEADS = {
    "avt": "a\t1\t 1 2\n",
    "table": "device,start,end\na,1,2\n",
    "fedscale": '{"1": {"active": [1], "inactive": [2], "finish_time": 60}}',
    "flash": '{"a": {"isSuccess": true, "ready_time": [[1, 2]], "trace_start": 0, "trace_end": 9}}',
    "fta": "0\t1\t7\t1\thost7\t1\t1136073600.000\t1136073660.000\tNULL\n",
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
REFUSED: dict[str, tuple[dict[str, Any], list[tuple[Any, str]]]] = {
    "ai_benchmark": (
        {},
        [
            ({"1": {"speed": 0.0}}, ", device 1: 'speed'"),
            ({"1": {"device": "x"}}, ", device 1: 'speed'"),
            ({"A": -1}, ", A: "),
            ([{"AI_Score": "5"}], ", record 1: "),
            ([{"Model": "A"}], "'AI_Score'"),
            ({}, "give the raw AI Benchmark list"),
            ({"a": 1, "b": "x"}, "give the raw AI Benchmark list"),
        ],
    ),
    "avt": (
        {},
        [
            ("ok 1 1 2\nx\t2\t 1 2\n", ":2: "),
            ("ok 1 1 2\nx\t1\t 1 2 3\n", ":2: "),
            ("ok 1 1 2\nx\t1\t 1.5 2\n", ":2: a time is '1.5'"),
            ("ok 1 1 2\nx\n", ":2: "),
            ("x\t1\t 1 99999999999999999\n", "146,000 years"),
            ("ok 1 1 2\nok 1 1 2\n", ":2: repeats the node ok"),
            ("x\t0\t \n", "-s window="),
            ("", "has no nodes"),
        ],
    ),
    "fedscale": (
        {},
        [
            ({"9": {"active": [0, 7], "inactive": [5], "finish_time": 9}}, ", client 9: "),
            ({"9": {"active": "soon", "inactive": [5], "finish_time": 9}}, ", client 9: "),
            (
                {"9": {"active": [0], "inactive": [None], "finish_time": 9}},
                ", client 9: 'inactive'",
            ),
            (
                {"9": {"active": [0], "inactive": [5], "finish_time": 0}},
                ", client 9: 'finish_time'",
            ),
            ({"9": {"active": [0], "inactive": [5]}}, ", client 9: has no 'finish_time'"),
            ({"9": {"computation": -1.0, "communication": 1.0}}, ", client 9: 'computation'"),
            ({"9": {"computation": 1.0, "communication": "fast"}}, ", client 9: 'communication'"),
            ({"9": [1, 2]}, "record '9' is a list"),
            ({"9": {"x": 1}}, "has none of active, computation"),
            ({}, "is empty"),
            ([1], "is a list"),
            ('{\n"1": {"active": [1,\n', ":3:1: is not JSON"),
            (b'{"1": "\xff"}', ":1: is not a text file"),
            (pickle.dumps({1: {"active": [0]}})[:20], "give the JSON form"),
        ],
    ),
    "flash": (
        {},
        [
            ({"a": timer(1, [])}, ", device a: "),
            ({"a": {"isSuccess": True, "ready_time": [[1, 2]]}}, ", device a: "),
            ({"a": timer(9, 5)}, ", device a: 'ready_time'"),
            ({"a": timer(9, [[1]])}, ", device a: "),
            ({"a": timer(9, [[1, "x"]])}, ", device a: an end"),
            ({"a": {"isSuccess": "yes", "ready_time": []}}, ", device a: 'isSuccess'"),
            ({"a": {"messages": ["x"], "model": ""}}, ", device a: 'messages'"),
            (
                {"a": {"messages": "2020-02-01 wifi", "model": ""}},
                ", device a, line 1 of messages: ",
            ),
            ({"a": {"down_u": -1.0, "down_sigma": 0, "up_u": 1}}, ", device a: 'down_u'"),
            ({"a": {"y": 1}}, "give FLASH's state_traces"),
        ],
    ),
    "fta": (
        {},
        [
            ("1\t2\t3\n", ":1: has 3 fields, not 9"),
            ("0\t1\t7\t1\th\t2\t0\t9\tNULL\n", ":1: event_type"),
            ("0\t1\t7\t1\th\t1\tsoon\t9\tNULL\n", ":1: event_start_time"),
            ("0\t1\t7\t1\th\t1\t0\tnan\tNULL\n", ":1: event_stop_time"),
            ("0\t1\t7\t1\th\t1\t0\t9\tNULL\n0\t2\t7\t1\th\t1\t0\t9\tNULL\n", "component=2"),
            ("0\t1\t7\t1\th\t1\t5\t5\tNULL\n", "no node has an interval"),
            ("# nothing\n", "has no events"),
        ],
    ),
    "mahimahi": (
        {"direction": "up"},
        [
            ("1\n2.5\n", ":2: the time is '2.5'"),
            ("1\n\n-3\n", ":3: the time is '-3'"),
            ("99999999999999999999999\n", ":1: "),
            ("", "is empty"),
        ],
    ),
    "mobiperf": (
        {},
        [
            ({"a": 1}, "is a dict"),
            ([1], ", record 1: "),
            ([{"tcp_speed_results": [1.0]}, {"tcp_speed_results": 5}], ", record 2: "),
            ([{"tcp_speed_results": [-1.0]}], ", record 1: "),
            ([{"tcp_speed_results": []}], "no test has samples"),
        ],
    ),
    "nyu_mets": (
        {},
        [
            ("1,Mbits/sec\n1,MB/s\n", ":2: 'MB/s'"),
            ("1\n", ":1: has 1 fields"),
            ("nan,Mbits/sec\n", ":1: the rate is 'nan'"),
            ("-1,Mbits/sec\n", ":1: the rate is '-1'"),
            (",Mbits/sec\n", "has no rates"),
        ],
    ),
    "pensieve": (
        {},
        [
            ("0 1\n1 2 3\n", ":2: has 3 fields"),
            ("0 1\n\n1 fast\n", ":3: the rate is 'fast'"),
            ("0 1\n1 -2\n", ":2: the rate is '-2'"),
            ("0 1\n5 1\n4 1\n", "sample 3 is before"),
            ("0 1\n0 2\n", "no interval"),
            ("", "no interval"),
        ],
    ),
    "rtt_matrix": (
        {"unit": "ms"},
        [
            ("0 1\n1 0 2\n", ":2: has 3 numbers"),
            ("0 1 2\n1 0 2\n", "has 2 lines of 3 numbers"),
            ("0 x\n1 0\n", ":1: a round-trip time is 'x'"),
            ("0 0\n0 0\n", "no round-trip time"),
            ("", "has 0 lines"),
        ],
    ),
    "throughput": (
        {"time": "t", "down": "x", "time_unit": "s", "rate_unit": "B"},
        [
            ("t,y\n0,1\n1,1\n", "no column x\n  its columns are t, y"),
            ("t,x\n2024-05-01,1\n1,1\n", ":3: the time is '1'"),
            ("t,x\n0,1\n5,1\n4,1\n", ":4: the time is '4', before"),
            ("t,x\n0,1\n1,fast\n", ":3: down is 'fast'"),
            ("t,x\n0,1\n", "no interval"),
            ("t,x\n", "no rows"),
        ],
    ),
    "ucc5g": (
        {},
        [
            (f"{UCC}soon,5G,D,1,1\n", ":2: Timestamp is 'soon'"),
            (f"{UCC}2020.02.27_18.39.01,5G,D,x,1\n", ":2: DL_bitrate is 'x'"),
            (f"{UCC}2020.02.27_18.39.01,5G\n", ":2: has 2 cells"),
            (f"{UCC}2020.02.27_18.39.01,5G,I,1,1\n", "no row gives DL_bitrate"),
            (UCC, "has no rows"),
            ("a,b\n1,2\n", ":1: has no column Timestamp"),
        ],
    ),
    "table": (
        {"time_unit": "s", "compute_unit": "s", "rate_unit": "bps", "latency_unit": "s"},
        [
            (
                "device,strat,end\na,1,2\n",
                ":1: has the unknown column 'strat'\n  did you mean 'start'",
            ),
            ("device;start;end\na;1;2\n", "separate the columns by commas"),
            ("device,start\na,1\n", ":1: has the columns device, start"),
            ("start,end\n1,2\n", ":1: has the columns start, end"),
            ("device,start,end,start\na,1,2,3\n", ":1: has the column 'start' twice"),
            ("device,start,end\na,1,2\n\nb,1,2,3\n", ":4: has 4 cells"),
            ("device,start,end\n\na,1,inf\n", ":3: end is 'inf'"),
            ("device,start,end\na,1,1e300\n", "146,000 years"),
            ("device,start,end\na,1,\n", ":2: has a start without an end"),
            ("device,start,end\n,1,2\n", ":2: has no device"),
            ("device,start,end\na,08:00,12:30\n", ":2: start is '08:00'"),
            ("device,start,end\na,-5,-1\n", "-s window="),
            ("device,start,end\na,5,5\n", "-s window="),
            ("device,score\na,1\na,2\n", ":3: gives a different score"),
            ("device,down\na,-3\n", ":2: down is '-3'"),
            ("device,down,loss\na,3,1.5\n", ":2: loss is '1.5'"),
            ("device,down,bandwidth\na,3,3\n", "both bandwidth and down"),
            ("device,rtt\na,3\n", "none of the columns down, up, bandwidth"),
            ("device,ram_bytes\na,3\n", "none of the columns sample_time"),
            ("device,start,end\n", "has no rows"),
            ("", "is empty"),
            (b"PAR1" + b"x" * 50, "cannot be read as a table"),
            ("device,time\na,1\n", "no column of states"),
            ("device,time,state\na,1,idle\na,2,busy\n", "-s online='state == idle'"),
            ("device,time,state\na,,on\na,3,off\n", ":2: has a state without a time"),
            ("device,time,state\na,1,on\n", "-s window="),
            ("device,start,end,time,state\na,1,2,3,on\n", "import either of them"),
        ],
    ),
    "table ": (
        {},
        [
            (f"device,start,end\na,{DAY}00:00Z,7\n", ":2: end is '7'"),
            (f"device,start,end\na,{DAY}25:00Z,2024-05-02T00:00Z\n", f":2: start is '{DAY}25"),
            (f"device,start,end\na,{DAY}00:00,{DAY}01:00\n", "-s time_zone="),
            ("device,start,end\na,1,2\n", "-s time_unit="),
            ("device,sample_time\na,1\n", "-s compute_unit="),
            ("device,bandwidth\na,1\n", "-s rate_unit="),
            ("device,rtt\na,1\n", "-s latency_unit="),
        ],
    ),
    "table of Berlin": (
        {"time_zone": "Europe/Berlin"},
        [
            (
                "device,start,end\na,2024-03-31T02:30,2024-03-31T04:00\n",
                ":2: start is '2024-03-31T02:30'",
            )
        ],
    ),
    "table of Mars": (
        {"time_zone": "Mars/Olympus"},
        [("device,start,end\na,1,2\n", "Mars/Olympus")],
    ),
    "table of yesterday": (
        {"epoch": "yesterday"},
        [(f"device,start,end\na,{DAY}00:00Z,{DAY}01:00Z\n", "epoch is 'yesterday'")],
    ),
}


@pytest.mark.parametrize("format_", REFUSED)
def test_malformed_files_are_refused_with_their_place_or_fix(tmp_path: Path, format_: str) -> None:
    options, cases = REFUSED[format_]
    importer = CATALOG.parts("importer")[format_.split(" ")[0]]
    params = importer.Params(**options)
    for number, (content, says) in enumerate(cases):
        data = content if isinstance(content, str | bytes) else json.dumps(content)
        path = tmp_path / f"{number}.csv"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        with pytest.raises(UserError) as caught:
            import_bundle(importer, [path], params)
        assert says in str(caught.value), content
    with pytest.raises(UserError, match="No such file"):
        import_bundle(importer, [tmp_path / "missing"], params)


def test_a_file_of_no_known_format_asks_for_its_name(tmp_path: Path) -> None:
    path = tmp_path / "poem.txt"
    path.write_text("Shall I compare thee\n")
    stderr = invoke("import", path, "-o", tmp_path / "b", code=2).stderr
    assert "poem.txt: its format cannot be recognized\n" in stderr
    assert "--format table; formats: " in stderr


@pytest.mark.parametrize(
    ("rows", "warning", "unit"),
    [
        ("a,0,600\nb,1200,4800", None, ""),
        ("a,0,600\nb,157000000,157000600", None, ""),
        ("a,0,600000\nb,1200000,4800000", "intervals are longer than 10 d", "ms (the median would be 35 min)"),
        ("a,1700000000,1700003600", "begins 53.9 years after time 0", "..., for Unix times unix_s"),
        ("a,0,0.6\nb,1.2,4.8\nc,1,1.5", "intervals are shorter than 1 s", "h (the median would be 36 min)"),
        ("a,0,60\na,157700000,157800000\na,157900000,157900060", "for more than 5.01", "min (the median would be 1 h)"),
        ("a,0,10.7\na,300,331\nb,20,30\nb,600,604.8", "for 10 min 5 s", "min (the median would be"),
        ("a,0,10.7\nb,604800,604810", None, ""),
    ],
)  # fmt: skip
def test_times_in_another_unit_are_noticed(
    tmp_path: Path, rows: str, warning: str | None, unit: str
) -> None:
    (tmp_path / "a.csv").write_text(f"device,start,end\n{rows}\n")
    # A declared window does not hide a doubt of short times.
    bundle = import_(
        "table",
        tmp_path / "a.csv",
        time_unit="s",
        window="9d" if warning and "min" in warning else None,
    )
    doubt = implausible_times(bundle)
    assert (doubt is None) == (warning is None)
    if doubt is not None:
        assert str(warning) in str(doubt)
        assert f"-s time_unit={unit}" in str(doubt)


@pytest.mark.parametrize(
    ("unit", "rates", "fitting"),
    [
        ("Mbps", (6.5, 3, 45), {}),
        ("Gbps", (6.5, 3, 45), {"phone": "Mbps (the median would be 6.5 Mbit/s)"}),
        (
            "kbps",
            (6.5, 3, 45),
            {"phone": "Mbps (the median would be 6.5 Mbit/s)", "server": "Gbps"},
        ),
        ("bps", (20, 30, 40), {"phone": "Mbps (the median would be 30 Mbit/s)", "server": ""}),
    ],
)
def test_rates_in_another_unit_are_noticed(
    tmp_path: Path, unit: str, rates: tuple[float, ...], fitting: dict[str, str]
) -> None:
    for kind in ("phone", "server"):
        rows = "".join(f"d{rate},{rate},{kind}\n" for rate in rates)
        (tmp_path / "a.csv").write_text(f"device,bandwidth,kind\n{rows}")
        doubt = implausible_rates(import_("table", tmp_path / "a.csv", rate_unit=unit))
        assert (doubt is not None) == (kind in fitting)
        assert doubt is None or f"-s rate_unit={fitting[kind]}" in str(doubt)


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
