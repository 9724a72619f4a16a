"""``fedsim traces`` as a user meets it: outputs, refusals, exit codes."""

import json
import shlex

import numpy as np
import pytest
from click.testing import CliRunner

from fedsim.cli import cli
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.synthesis import FAMILIES, PRESETS
from fedsim.traces.validation import validate_bundle
from tests.lines import rows


def call(*arguments, code=0):
    result = CliRunner().invoke(cli, ["traces", *map(str, arguments)], prog_name="fedsim")
    assert result.exit_code == code, result.output
    return result


def make(path, *more):
    return call("synthesize", "phone_mostly_on", "-n", 12, "--days", 2, "-o", path, *more)


def test_synthesize_writes_a_bundle_and_its_command_makes_it_again(tmp_path):
    first = make(
        tmp_path / "one" / "phones",
        "-s",
        "availability.amplitude=0.2",
        "-s",
        "compute_series.sd=0.1",
    )
    assert "phones: 12 devices" in first.stdout
    bundle = TraceBundle.read(tmp_path / "one" / "phones")
    words = shlex.split(bundle.manifest.command)
    assert words[:2] == ["fedsim", "traces"]
    words[words.index("-o") + 1] = str(tmp_path / "two" / "phones")
    call(*words[2:])
    for file in sorted((tmp_path / "one" / "phones").glob("*.parquet")):
        assert file.read_bytes() == (tmp_path / "two" / "phones" / file.name).read_bytes()


def test_lists_of_populations_and_formats():
    names = json.loads(call("synthesize", "--json").stdout)
    assert set(names) == {*PRESETS, *FAMILIES}
    assert "phone_idle_charging_wifi" in call("synthesize").stdout
    assert {"flash", "fedscale", "avt"} <= set(json.loads(call("import", "--json").stdout))
    assert {"fedscale", "avt"} <= set(json.loads(call("export", "--json").stdout))


def test_an_output_that_exists_is_refused_and_replaced_with_force(tmp_path):
    make(tmp_path / "b")
    refused = call("synthesize", "always", "-n", 3, "-o", tmp_path / "b", code=2)
    assert "already exists" in refused.stderr
    make(tmp_path / "b", "--force", "--seed", 5)
    assert TraceBundle.read(tmp_path / "b").manifest.seed == 5


MISTAKES = r"""
synthesize martians -n 3 -o {}/x | no population 'martians'
synthesize desktops -n 3 -o {}/x | did you mean 'desktop'?
synthesize always -n 3 -o {}/x --days 1e-300 | days
synthesize always -n 3 | give the number of devices
synthesize always -n 3 -o {}/x -s mood=1 | -s mood
synthesize bernoulli -n 3 -o {}/x -s availability.p=2 | less than or
import papyrus f -o {}/x | no importer named 'papyrus'
import missing.csv | missing.csv: there is no such file
import avt -o {}/x | give the files
import avt {}/none.avt -o {}/x | none.avt
export papyrus {}/b -o {}/x | no format 'papyrus'
export fedscal | did you mean 'fedscale'?
export avt {}/none -o {}/x | no such trace bundle
inspect {}/none | no such trace bundle
inspect {}/b --plot {} | error: {}: is a folder\n  name a file in it, such as {}/traces.html\n
inspect {}/b --plot {}/old.html | already exists\n  name another file
inspect {}/b --plot {}/p.doc | cannot draw
sample {}/b -n 13 -o {}/x | fewer than 13
join {}/b -o {}/x | fedsim traces join {}/b --network builtin:phones_week
join {}/b --compute builtin:phone_week -o {}/x | did you mean 'builtin:phones_week'
join {}/b --compute {}/b --network-correlation 0.5 -o {}/x | needs
"""


@pytest.mark.parametrize(("arguments", "message"), rows(MISTAKES))
def test_mistakes_end_with_code_2_and_a_message(tmp_path, arguments, message):
    make(tmp_path / "b")
    (tmp_path / "old.html").touch()
    result = call(*arguments.replace("{}", str(tmp_path)).split(), code=2)
    assert message.replace("{}", str(tmp_path)) in result.stderr
    assert "Traceback" not in result.output
    assert not result.stdout, "nothing is printed before the refusal"
    assert not (tmp_path / "x").exists()


def test_the_present_folder_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "here" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    for output in (".", "..", "deep/.."):
        refused = call("synthesize", "always", "-n", 3, "-o", output, code=2)
        assert "is the current folder" in refused.stderr
    make("there/deeper/..")
    assert TraceBundle.read("there").manifest.name == "there"


def test_validate_names_the_rows_and_says_so_with_its_exit_code(tmp_path):
    make(tmp_path / "b")
    assert "sound (12 devices" in call("validate", tmp_path / "b").stdout
    assert json.loads(call("validate", tmp_path / "b", "--json").stdout) == []
    bundle = TraceBundle.read(tmp_path / "b")
    table = bundle.tables["compute"]
    values = table.column("sample_s").to_numpy().copy()
    values[[2, 5]] = [-1.0, np.nan]
    index = table.column_names.index("sample_s")
    bundle.tables["compute"] = table.set_column(index, table.schema.field(index), [values])
    bundle.write(tmp_path / "b", overwrite=True)
    problems = json.loads(call("validate", tmp_path / "b", "--json", code=2).stdout)
    assert {(item["table"], item["row"]) for item in problems} == {("compute", 2), ("compute", 5)}
    assert "compute row 2: sample_s is -1.0 s" in call("validate", tmp_path / "b", code=2).stdout


def test_inspect_shows_bundles_side_by_side_and_draws(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b", "--seed", 1)
    result = call("inspect", tmp_path / "a", tmp_path / "b", "--plot", tmp_path / "p.svg")
    assert "share per device" in result.stdout
    assert (tmp_path / "p.svg").stat().st_size > 10_000
    data = json.loads(call("inspect", tmp_path / "a", "--json").stdout)
    assert data[0]["devices"] == 12


def test_sample_scale_join_keep_where_they_come_from(tmp_path):
    make(tmp_path / "a")
    call("sample", tmp_path / "a", "-n", 5, "-o", tmp_path / "part")
    call("scale", tmp_path / "a", "-n", 30, "--seed", 2, "-o", tmp_path / "large")
    arguments = ["--compute", tmp_path / "a", "--compute-correlation", 0.5]
    report = call("join", tmp_path / "large", *arguments, "-o", tmp_path / "both", "--json")
    assert json.loads(report.stdout)["devices"] == 30
    for name in ("part", "large", "both"):
        bundle = TraceBundle.read(tmp_path / name)
        assert validate_bundle(bundle) == []
        assert bundle.manifest.name == name
    words = ["fedsim", "traces", "join", tmp_path / "large", *arguments, "-o", tmp_path / "both"]
    assert bundle.manifest.command == shlex.join(map(str, words))
    manifest = TraceBundle.read(tmp_path / "large").manifest
    assert (
        manifest.options["sources"]["bundle"]["sha256"]
        == TraceBundle.read(tmp_path / "a").manifest.sha256
    )


# The bundles that ship with the project -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["phones_week", "phones_mostly_on_week", "desktops_week"])
def test_shipped_bundles_are_sound_small_and_what_their_command_makes(checkout, tmp_path, name):
    folder = checkout / "traces" / name
    shipped = TraceBundle.read(folder)
    assert validate_bundle(shipped) == []
    assert sum(file.stat().st_size for file in folder.iterdir()) < 600_000
    readme = (checkout / "traces" / "README.md").read_text()
    command = shipped.manifest.command
    assert command.replace(f"-o {name}", f"-o traces/{name}") in readme
    call(*shlex.split(command)[2:-1], tmp_path / name)
    again = TraceBundle.read(tmp_path / name)
    for table in shipped.tables:
        for column in shipped.tables[table].column_names:
            ours = shipped.tables[table].column(column).to_pylist()
            theirs = again.tables[table].column(column).to_pylist()
            if ours and isinstance(ours[0], float):
                # Another build of the mathematics library may differ in the last bit.
                assert ours == pytest.approx(theirs, rel=1e-12)
            else:
                assert ours == theirs


def test_a_format_alone_is_described_with_its_parameters() -> None:
    result = CliRunner().invoke(cli, ["traces", "import", "table"])
    assert result.exit_code == 0, result.output
    assert "several files are joined by `device`" in result.stdout
    units = "ns us ms s min h d unix_s unix_ms unix_us unix_ns excel"
    assert f"  time_unit: {units.replace(' ', ' or ')}\n" in result.stdout
