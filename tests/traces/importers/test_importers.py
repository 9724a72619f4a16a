"""The formats that ship with fedsim, and importers of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fedsim.cli import cli
from fedsim.parts.catalog import CATALOG
from fedsim.parts.parameters import descriptions
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import registry as exporters
from fedsim.traces.importers import recognize
from tests.traces.helpers import intervals


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

class Base(Importer):
    """Lacks read."""
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


def test_what_an_importer_of_ones_own_makes_is_checked(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    reference = f"{tmp_path}/mine.py:Doors"
    source = tmp_path / "visits.txt"
    for text, says in (
        ("ann 0 5\nann 3 9\n", "availability row 1: starts at 3000000 us and overlaps"),
        ("ann 0 500\n", "is not inside the window"),
        ("ann 0\n", "visits.txt:1: is not a visit"),
    ):
        source.write_text(text)
        stderr = invoke(
            "import", source, "--format", reference, "-o", tmp_path / "b", code=2
        ).stderr
        assert says in stderr
        assert "Traceback" not in stderr
    for other, says in (("Base", "lacks read"), ("Nobody", "has no class named 'Nobody'")):
        words = ["--format", f"{tmp_path}/mine.py:{other}", "-o", tmp_path / "b"]
        assert says in invoke("import", source, *words, code=2).stderr
    assert not (tmp_path / "b").exists()


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


def test_a_file_of_no_known_format_asks_for_its_name(tmp_path: Path) -> None:
    path = tmp_path / "poem.txt"
    path.write_text("Shall I compare thee\n")
    stderr = invoke("import", path, "-o", tmp_path / "b", code=2).stderr
    assert "poem.txt: its format cannot be recognized\n" in stderr
    assert "--format table; formats: " in stderr


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        ("a,0,600\nb,1200,4800", None),
        ("a,0,600\nb,157000000,157000600", None),
        ("a,0,600000\nb,1200000,4800000", "half of the intervals are longer than 10 d"),
        ("a,1700000000000,1700000600000", "first interval begins 5.39e+04 years after time 0"),
        ("a,1700000000,1700003600", "first interval begins 53.9 years after time 0"),
        ("a,0,0.6\nb,1.2,4.8\nc,1,1.5", "half of the intervals are shorter than 1 min"),
        ("a,0,60\na,157700000,157800000\na,157900000,157900060", "observed for more than 5.01"),
        (
            "a,0,10.7\na,300,331\nb,20,30\nb,600,604.8",
            "half of the intervals are shorter than 1 min, and devices were observed for 10 min 5 s",
        ),
        ("a,0,10.7\nb,604800,604810", None),
    ],
)
def test_times_in_another_unit_are_noticed(tmp_path: Path, rows: str, warning: str | None) -> None:
    (tmp_path / "a.csv").write_text(f"device,start,end\n{rows}\n")
    made = invoke("import", "table", tmp_path / "a.csv", "-s", "time_unit=s", "-o", tmp_path / "b")
    for done in (
        made,
        invoke("validate", tmp_path / "b"),
        invoke("inspect", tmp_path / "b", "--json"),
    ):
        assert ("warning:" in done.stderr) == (warning is not None)
        assert (warning or "") in done.stderr
        assert ("-s time_unit" in done.stderr) == (warning is not None)
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "name: t\ntask: {name: timing, clients: 1, parameters: 9}\ntraining: {local_steps: 1}\n"
        "devices: {trace: b, compute: {name: values, step: [1]}, availability: {name: trace},\n"
        "  network: {name: static, latency: 0, down: 1e6, up: 1e6}}\nstop: {rounds: 1}\n"
    )
    checked = CliRunner().invoke(cli, ["scenario", "check", str(scenario)]).output
    assert ("scenario.yaml:4:18: devices.trace: " in checked) == (warning is not None)
    assert (warning or "") in checked


@pytest.mark.parametrize(
    ("unit", "rows", "fitting"),
    [
        ("time_unit=ms", "a,0,10800\na,86400,90000\nb,600000,604800", "time_unit=s (the median would be 1 h 20 min)"),
        ("time_unit=s", "a,0,10800000\nb,86400000,90000000", "time_unit=ms (the median would be 2 h)"),
        ("time_unit=ms", "a,0,10800000\nb,86400000,90000000", None),
    ],
)  # fmt: skip
def test_the_unit_that_fits_times_is_suggested(
    tmp_path: Path, unit: str, rows: str, fitting: str | None
) -> None:
    (tmp_path / "a.csv").write_text(f"device,start,end\n{rows}\n")
    # A declared window does not hide a doubt of short times.
    windows = ([], ["-s", "window=9d"]) if unit == "time_unit=ms" else ([],)
    for number, window in enumerate(windows):
        arguments = ("-s", unit, *window, "-o", tmp_path / f"b{number}")
        stderr = invoke("import", "table", tmp_path / "a.csv", *arguments).stderr
        assert stderr.endswith(f"import it again with -s {fitting}\n") if fitting else not stderr


@pytest.mark.parametrize(
    ("unit", "rates", "fitting"),
    [
        ("Mbps", "6.5,3,45", None),
        ("Gbps", "6.5,3,45", "rate_unit=Mbps (the median would be 6.5 Mbit/s)"),
        ("kbps", "6.5,3,45", "rate_unit=Mbps (the median would be 6.5 Mbit/s)"),
        ("bps", "20,30,40", "rate_unit=Mbps (the median would be 30 Mbit/s)"),
    ],
)
@pytest.mark.parametrize("kind", ["phone", "server"])
def test_the_unit_that_fits_rates_is_suggested(
    tmp_path: Path, unit: str, rates: str, fitting: str | None, kind: str
) -> None:
    rows = "".join(f"d{rate},{rate},{kind}\n" for rate in rates.split(","))
    (tmp_path / "a.csv").write_text(f"device,bandwidth,kind\n{rows}")
    option = f"rate_unit={unit}"
    stderr = invoke(
        "import", "table", tmp_path / "a.csv", "-s", option, "-o", tmp_path / "b"
    ).stderr
    if fitting is None or (unit, kind) == ("Gbps", "server"):
        assert not stderr
    elif kind == "phone":
        assert fitting in stderr
        assert ("give them the kind server" in stderr) == (unit == "Gbps")
    else:
        assert "are its rates in the right unit?" in stderr


def test_an_offset_without_a_colon_is_written_with_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("device,start,end\na,2024-05-01T08:00,2024-05-01T09:00\n")
    for offset, correct in (("+0200", "+02:00"), ("-0130", "-01:30"), ("+2", "+02:00")):
        option = ("-s", f"time_zone={offset}", "-o", tmp_path / "b")
        stderr = invoke("import", "table", tmp_path / "a.csv", *option, code=2).stderr
        assert f"write {correct}" in stderr
    invoke("import", "table", tmp_path / "a.csv", "-s", "time_zone=-01:30", "-o", tmp_path / "b")


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
