"""Kinds of bad input: each ends with exit code 2 and one message that names the place, never with a traceback."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.traces.bundle import Eligibility, Manifest, TraceBundle
from fedsim.traces.tables import make_table
from tests.cli.invoking import DIGITS, PARABOLAS, RunText, assert_refused, invoke
from tests.lines import rows

HOUR_US = 3_600_000_000


TRACED = """\
task: {name: quadratic, centers: [1, 2, 3]}
devices: {trace: week, network: {name: static, down: 1Mbps, up: 1Mbps}}
stop: {rounds: 2}
"""

UPDATES: dict[str, dict[str, Any]] = {
    "devices": {
        "device_id": ["a", "b", "c"],
        "window_start_us": [0, 0, 0],
        "window_end_us": [24 * HOUR_US] * 3,
        "period_us": [24 * HOUR_US] * 3,
        "valid": [True, True, True],
    },
    "availability": {
        "device_id": ["a", "a", "b", "c"],
        "start_us": [0, 3 * HOUR_US, HOUR_US, 0],
        "end_us": [2 * HOUR_US, 5 * HOUR_US, 2 * HOUR_US, 24 * HOUR_US],
    },
    "compute": {
        "device_id": ["a", "b", "c"],
        "task": ["*"] * 3,
        "phase": ["training"] * 3,
        "step_fixed_s": [0.01, 0.02, 0.03],
        "sample_s": [0.001, 0.002, 0.003],
    },
}


def write_bundle(path: Path, **changes: dict[str, list[Any]]) -> Path:
    """A bundle of three devices; ``changes`` replace columns of its tables."""
    tables = {name: {**columns, **changes.get(name, {})} for name, columns in UPDATES.items()}
    manifest = Manifest(
        name=path.name,
        horizon_us=24 * HOUR_US,
        importer="hand",
        importer_version="1",
        eligibility=Eligibility(words="always", expression="true"),
        counts={},
    )
    TraceBundle(
        manifest, {name: make_table(name, columns) for name, columns in tables.items()}
    ).write(path)
    return path


RAW: dict[str, tuple[str | bytes, *tuple[str, ...]]] = {
    "empty file": ("", "s.yaml: the scenario is empty"),
    "a list": ("- a\n", "s.yaml: a scenario is a mapping"),
    "tab": ("task:\n\tname: timing\n", "s.yaml:2:1: a tab where"),
    "a key that looks like another": (
        PARABOLAS.replace("training", "train\u200bing"),
        *("s.yaml:2:1: ", "train\\u200bing"),
    ),
    "more digits than Python writes": (
        f"{PARABOLAS}seed: 0x{4000 * 'f'}\n",
        *("s.yaml:7:7: seed", "whole number"),
    ),
    "open bracket": ("task: [1, 2\n", "s.yaml:1:7: this [ is never closed"),
    "key twice": ("a: 1\na: 2\n", "s.yaml:2:1: the key 'a' appears twice"),
    "not UTF-8": (b"name: \xff\n", "s.yaml: is not UTF-8"),
    "python tag": ("a: !!python/name:os.system\n", "s.yaml:1:4: the YAML tag"),
    "endless alias": ("a: &x [*x]\n", "s.yaml:1:4: aliases repeat too many values"),
    "two documents": ("a: 1\n---\nb: 2\n", "s.yaml:2:1: a second document"),
    "missing trace": (TRACED, "s.yaml", "devices.trace: no such trace bundle", "week"),
    "not a trace": (TRACED.replace("week", "."), "is not a trace bundle"),
    "a target without training": (
        "task: {name: timing, clients: 3}\nstop: {rounds: 2, target: {loss: 1}}\n"
        "devices: {compute: {name: values, step: 1}, network: {down: 1, up: 1}}\n",
        "s.yaml:2:27: stop.target",
    ),
    "more evaluations than a run makes": (
        PARABOLAS.replace("rounds: 2", "simulated_time: 100s") + "evaluation: {every: 99us}\n",
        *("s.yaml:7:21: evaluation.every", "set at least 100us"),
    ),
}
CHANGES = r"""
unknown key | + trainning: {} | s.yaml:7:1: trainning | did you mean 'training'?
wrong unit | step: 1s => step: 1parsec | s.yaml:4:33: devices.compute.step | ms, s, min, h, d
negative rate | down: 1Mbps => down: -1Mbps | s.yaml:5:33: devices.network.down | negative
size for a duration | latency: 0 => latency: 2MB | s.yaml:5:60: devices.network.latency
NaN | local_steps: 2 => optimizer: {lr: .nan} | s.yaml:2:28: training.optimizer.lr | not nan
number too large | local_steps: 2 => optimizer: {lr: 1e400} | s.yaml:2:28: training.optimizer.lr | not inf
text for a number | local_steps: 2 => local_steps: many | s.yaml:2:25: training.local_steps | not 'many'
true for a number | local_steps: 2 => local_steps: true | s.yaml:2:25: training.local_steps | not true
two amounts of work | local_steps: 2 => local_steps: 2, local_epochs: 1 | s.yaml:2:11: training: give only one of
a run without an end | {rounds: 2} => {} | s.yaml:6:7: stop: give at least one of
evaluations without time between them | + evaluation: {every: 0} | s.yaml:7:21: evaluation.every | longer than 0 s
unknown method | + server: {method: {name: fedavgg}} | s.yaml:7:25: server.method.name | did you mean 'fedavg'?
unknown parameter | + server: {method: {server_lrr: 1}} | s.yaml:7:19: server.method.server_lrr | mean 'server_lr'?
unknown method in short | + server: {method: fedavgg} | s.yaml:7:18: server.method | did you mean 'fedavg'?
missing parameter | digits iid => dirichlet | task.partition.alpha: is missing
missing file | + server: {method: {name: mine.py:Mine}} | s.yaml:7:25: server.method.name | no such file | mine.py
more clients than samples | digits clients: 3 => clients: 3000 | s.yaml:1:44: task.partition | 3,000 clients | 1,438
missing data | digits {name: digits} => {name: npz, path: no.npz} | s.yaml:1:35: task.dataset.path: | no.npz: no such
a device for data | digits {name: digits} => {name: npz, path: /dev/null} | s.yaml:1:35: task.dataset.path: | regular
ragged centers | centers: [1, 2, 3] => centers: [[1, 2], [3]] | quadratic
fewer step times | step: 1s => step: [1s, 2s] | s.yaml:4:33: devices.compute.step: 2 step times for 3 clients
many runs where one is wanted | + sweep: {seeds: [1, 2]} | sweep | fedsim sweep
step times from no trace | {name: values, step: 1s} => {name: trace} | s.yaml:4:12: devices.compute
no trace of one part | {name: values, step: 1s} => {name: trace, trace: no} | s.yaml:4:33: devices.compute.trace
empty rounds | + server: {selection: {name: bernoulli, probability: 0.5, allow_empty: true}} | schedule.min_updates
more updates than clients | + server: {schedule: {min_updates: 3}, selection: {cohort: 2}} | server.schedule.min_updates
a deadline of nothing | + server: {schedule: {name: sync, deadline: 0s}} | s.yaml:7:43: server.schedule.deadline
a script and tiers | + server: {schedule: tiered, selection: {name: scripted, rounds: [[0], [1]]}} | server.selection
Nesterov | local_steps: 2 => local_steps: 2, optimizer: {name: sgd, nesterov: true} | s.yaml:2:39: training.optimizer
a misspelled name of a part | digits model: {name: => model: {namex: | task.model.namex | did you mean 'name'?
clients measured on nothing | digits + evaluation: {per_client: true} | 7:26: evaluation.per_client | partition.test
a mapping for a path | devices: => devices:\n  trace: {bundle: week} | devices.trace: must be a path, not {'bundle
"""
"""The name of each mistake, what makes it in a scenario that runs, and parts of the message."""
ONCE_BEGUN = """
unknown client | + server: {selection: {name: scripted, rounds: [[0, 7]]}} | 7:46: server.selection.rounds | client 7
unknown metric | {rounds: 2} => {rounds: 2, target: {acuracy: 0.9}} | s.yaml:6:37: stop.target.acuracy | loss
a schedule that would wait forever | + server: {failure_detection: never} | server.schedule | deadline
"""
"""Mistakes that appear when the run begins."""


def cases(table: str) -> Iterator[tuple[str, str, list[str]]]:
    """The name, the scenario and the parts of the message of each row."""
    for name, change, *fragments in rows(table):
        text = DIGITS if change.startswith("digits ") else PARABOLAS
        old, _, new = change.removeprefix("digits ").partition(" => ")
        changed = text.replace(old, new) if new else f"{text}{old.removeprefix('+ ')}\n"
        assert changed != text, name
        yield name, changed, fragments


MISTAKES = [(name, text, parts) for name, (text, *parts) in RAW.items()] + [*cases(CHANGES)]


def test_the_scenarios_without_the_mistakes_run(run: RunText, tmp_path: Path) -> None:
    write_bundle(tmp_path / "week")
    for number, text in enumerate((PARABOLAS, DIGITS, TRACED)):
        result = run(text, "-o", str(number))
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(("name", "text", "fragments"), MISTAKES)
def test_bad_scenarios(run: RunText, name: str, text: str | bytes, fragments: list[str]) -> None:
    result = run(text)
    assert_refused(result, *fragments)
    assert result.stderr.count("error: ") == 1
    assert not Path("runs").exists()
    if "fedsim sweep" not in fragments:
        checked = invoke("scenario", "check", "s.yaml")
        assert checked.exit_code == 2
        assert checked.stderr == result.stderr, "check refuses with the message of run"


@pytest.mark.parametrize(("name", "text", "fragments"), [*cases(ONCE_BEGUN)])
def test_scenarios_that_turn_out_impossible_once_the_run_begins(
    run: RunText, name: str, text: str, fragments: list[str]
) -> None:
    result = run(text)
    assert_refused(result, *fragments)
    assert result.stderr.count("error: ") == 1


def test_evaluations_without_end_end_where_the_run_has_no_end_in_time(
    run: RunText, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first round ends after 2 s: 40 evaluations at an interval are enough, 39 are not; what was done stays."""
    text = PARABOLAS.replace("rounds: 2", "rounds: 1") + "evaluation: {every: 50ms}\n"
    monkeypatch.setattr("fedsim.simulation.evaluations.MOST_EVALUATIONS", 39)
    assert_refused(
        run(text, "-o", "out"),
        "s.yaml:7:21: evaluation.every: 50 ms between evaluations reached the limit of 39",
    )
    assert json.loads(Path("out/run.json").read_text())["status"] == "failed"
    assert len(fedsim.load("out").metrics) > 0
    monkeypatch.setattr("fedsim.simulation.evaluations.MOST_EVALUATIONS", 40)
    assert run(text, "-o", "again").exit_code == 0


def test_several_mistakes_are_reported_together(run: RunText) -> None:
    result = run(PARABOLAS.replace("step: 1s", "step: 1x").replace("rounds: 2", "round: 2"))
    assert_refused(result, "s.yaml:4:33: ", "s.yaml:6:8: stop.round: unknown key")


def test_a_link_to_itself_a_long_name_and_a_long_value_are_one_short_error(run: RunText) -> None:
    Path("loop.yaml").symlink_to("loop.yaml")
    assert_refused(invoke("run", "loop.yaml"), "loop.yaml")
    assert_refused(run(PARABOLAS, "-o", "x" * 300), "xxx: File name too long")
    result = run(PARABOLAS.replace("1s", "9" * 100_000))
    assert_refused(result, "s.yaml:4:33: devices.compute.step")
    assert len(result.stderr) < 10_000


def test_of_many_unknown_keys_some_are_shown_and_the_others_counted(run: RunText) -> None:
    result = run(PARABOLAS + "".join(f"key{number}: 1\n" for number in range(300)))
    assert_refused(result, "s.yaml:26:1: key19: unknown key, and 280 more are not shown")
    assert result.stderr.count("error: ") == 20


@pytest.mark.parametrize(
    ("table", "column", "values", "fragments"),
    [
        ("availability", "start_us", [0, HOUR_US, HOUR_US, 0], ["row 1", "overlap"]),
        ("availability", "end_us", [2 * HOUR_US, HOUR_US, 2 * HOUR_US, 24 * HOUR_US], ["row 1"]),
        ("availability", "device_id", ["a", "a", "b", "nobody"], ["row 3", "nobody"]),
        ("compute", "sample_s", [0.001, float("nan"), 0.003], ["sample_s"]),
        ("compute", "sample_s", [0.001, -1.0, 0.003], ["sample_s"]),
        ("devices", "window_start_us", [-(2**63), 0, 0], ["row 0", "within 142 years"]),
        ("devices", "window_end_us", [2**63 - 1, 0, 0], ["row 0", "within 142 years"]),
        ("devices", "device_id", ["a", "a", "c"], ["device_id"]),
    ],
)
def test_bad_traces(
    run: RunText, table: str, column: str, values: list[Any], fragments: list[str]
) -> None:
    write_bundle(Path("week"), **{table: {column: values}})
    assert_refused(run(TRACED), "week", table, *fragments)
    for command in ("validate week", "inspect week", "scale week -n 20 -o more"):
        assert invoke("traces", *command.split()).exit_code == 2, command
    assert not Path("more").exists()
    assert not Path("runs").exists()


def test_a_bundle_that_lacks_compute_times_or_devices(run: RunText, tmp_path: Path) -> None:
    bundle = TraceBundle.read(write_bundle(tmp_path / "week"))
    fewer = "week has 3 devices for 4 clients"
    refused = run(TRACED.replace("[1, 2, 3]", "[1, 2, 3, 4]"))
    assert_refused(refused, "devices.trace: ", fewer, "devices.assign: sample")
    del bundle.tables["compute"]
    bundle.write(tmp_path / "week", overwrite=True)
    assert_refused(run(TRACED), "devices.compute: there is no compute table")


@pytest.mark.parametrize("file", ["availability.parquet", "compute.parquet", "manifest.json"])
@pytest.mark.parametrize("content", [None, b"{"])
def test_damaged_files_of_a_trace(
    run: RunText, tmp_path: Path, file: str, content: bytes | None
) -> None:
    path = write_bundle(tmp_path / "week") / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert_refused(run(TRACED), file if content is not None else "week")


@pytest.mark.parametrize(
    ("code", "fragments"),
    [
        ("import nowhere\n", ["mine.py cannot be imported", "install the package of 'nowhere'"]),
        ("class Yours(FedAvg): pass\n", ["has no class named 'Mine'", "Yours"]),
    ],
)
def test_a_method_file_without_the_class(
    run: RunText, tmp_path: Path, code: str, fragments: list[str]
) -> None:
    (tmp_path / "mine.py").write_text(f"from fedsim.methods.fedavg import FedAvg\n{code}")
    result = run(PARABOLAS + "server: {method: {name: mine.py:Mine}}\n")
    assert_refused(result, "s.yaml:7:25", *fragments)


def test_a_required_argument_of_an_own_function_is_missing(run: RunText, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def score(outputs, labels, k): return 0.5\ndef net(in_features, classes): return None\n"
    )
    text = DIGITS.replace("logistic_regression", "mine.py:net")
    assert_refused(
        run(text, "-s", "evaluation.metrics=[mine.py:score]"),
        "task.model.in_features: is missing\n  write {name: mine.py:net, in_features: ...}; only input_shape, classes",
        "evaluation.metrics.0.k: is missing\n  write {name: mine.py:score, k: ...}\n",
    )


def test_data_that_do_not_fit(run: RunText, tmp_path: Path) -> None:
    text = DIGITS.replace("{name: digits}", "{name: npz, path: rows.npz}")
    x = np.ones((40, 5))
    np.savez(tmp_path / "rows.npz", x=x, y=np.arange(40) % 2)
    result = run(text.replace("logistic_regression", "cnn"))
    assert_refused(result, "s.yaml:1:", "task.model: model cnn does not fit data set rows")
    x[3, 2] = np.nan
    np.savez(tmp_path / "rows.npz", x=x, y=np.arange(40) % 2)
    assert_refused(run(text), "rows", "not finite")


def test_no_cuda(run: RunText) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    result = run(PARABOLAS, "-s", "training.device=cuda")
    assert_refused(result, "option -s training.device=cuda", "no CUDA device")


OPTIONS = r"""
seed | option -s seed: write a dotted path
training.lr=1 | option -s training.lr=1: unknown key
stop.target={mse:0.5} | write a space after the colon: mse: 0.5
task.centers.9=1 | option -s task.centers.9=1 | list of 3 items
seed=-1 | option -s seed=-1: must be greater than or equal to 0, not -1
seed=[ | option -s seed=[:1:1: this [ is never closed
training.local_step=1 | \n  did you mean 'local_steps'?\n
server.method.nam=fedbuff | did you mean 'name'?
server.method.name=fedavgg | \n  did you mean 'fedavg'?\n
training.qqq=1 | known keys: optimizer, lr_schedule,
server.method.name=qqq | known: |  ditto,
checkpoint_models={every: 10} | 10 versions
checkpoint_models={every: '10'} | 10 versions
checkpoint_models={every: 0s} | 10 versions
checkpoint_models={every: 10 rounds} | 10 versions
"""


UNDECODED = ["name=\udcff", "option -s name=", "it must be plain UTF-8 text"]


@pytest.mark.parametrize(
    ("option", "fragments"), [(row[0], row[1:]) for row in [*rows(OPTIONS), UNDECODED]]
)
def test_bad_overrides(run: RunText, option: str, fragments: list[str]) -> None:
    result = run(PARABOLAS, "-s", option)
    assert_refused(result, *fragments)
    shows_all = any(text.startswith("known") for text in fragments)
    assert ("known" in result.stderr.replace("unknown", "")) == shows_all


def test_a_scenario_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "night.yaml").write_text(PARABOLAS)
    assert_refused(invoke("run", tmp_path / "day.yaml"), "day.yaml: no such file", "night.yaml")
    assert_refused(invoke("run", tmp_path), "is a folder, not a scenario")


OF_THE_COMMAND_LINE = """
a part of a round | forecast s.yaml --target rounds=2.5 | whole number
rounds without end | forecast s.yaml --target rounds=1e18 | whole number
a part of an arrival | decide s.yaml --over training.local_steps=1,2 --metric time_to:arrivals=4.5 | whole number
a page for a folder | board show -o board.html | name a folder: -o board
"""


@pytest.mark.parametrize(("_", "arguments", "fragment"), list(rows(OF_THE_COMMAND_LINE)))
def test_bad_arguments(run: RunText, _: str, arguments: str, fragment: str) -> None:
    assert run(PARABOLAS, "-o", "out").exit_code == 0
    assert_refused(invoke(*arguments.split()), fragment)


def test_no_process_of_a_run(run: RunText, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "-1"), ("WORLD_SIZE", "0"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    refused = run(PARABOLAS, "-s", "training.workers=distributed")
    assert_refused(refused, "environment: RANK, WORLD_SIZE, LOCAL_RANK are -1, 0, 0")


def test_a_working_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.yaml").write_text(PARABOLAS)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for path in ("../s.yaml", tmp_path / "s.yaml"):
        assert_refused(invoke("run", path), "the working folder no longer exists")


def test_a_folder_named_as_the_home_folder(run: RunText, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path("home").absolute()
    (home / "out").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for command in (("run", "s.yaml", "-o"), ("report",), ("export", "--format", "csv")):
        Path("s.yaml").write_text(PARABOLAS)
        result = invoke(*command, "~/out")
        assert result.exit_code == 0, result.output
    assert "intact" in invoke("verify", "~/out").stdout
    assert list(home.rglob("*")) == [home / "out"]


@pytest.mark.usefixtures("with_reports")
def test_names_of_folders_never_reach_the_terminal_as_they_are(run: RunText) -> None:
    names = {"z\u202ez": "z\\u202ez", "y\x1b[31my": "y\\x1b[31my", "x\udcffx": "x\\udcffx"}
    Path("runs").mkdir()
    assert run(PARABOLAS, "-o", "run").exit_code == 0
    for name in names:
        shutil.copytree("run", Path("runs", name))
    verify = ("verify", *(Path("runs", name) for name in names))
    for command in (("ls", "runs"), verify, ("watch", "--once", "runs")):
        result = invoke(*command)
        assert result.exit_code == 0, result.output
        for name, escaped in names.items():
            assert escaped in result.stdout
            assert name not in result.output
    assert "$'runs/x\\xffx'" in invoke("what-if", "runs/x\udcffx").output
    assert_refused(
        invoke("compare", *(Path("runs", name) for name in names)), "a name is not UTF-8"
    )
    Path("x\udcff.up").write_text("1\n2\n")
    assert_refused(
        invoke("traces", "import", "mahimahi", "x\udcff.up", "-o", "b"), "a name is not UTF-8"
    )


@pytest.mark.parametrize("command", ["resume", "report"])
def test_a_run_that_is_none(command: str, tmp_path: Path) -> None:
    assert_refused(invoke(command, tmp_path / "nowhere"), "nowhere: no such run folder")
    assert_refused(invoke(command, tmp_path), "not a fedsim run")
    (tmp_path / "sweep.json").write_text("{}")
    assert_refused(invoke(command, tmp_path), "continue the sweep by repeating the 'fedsim sweep'")
    (tmp_path / "run.json").write_text("{")
    assert_refused(invoke(command, tmp_path), "run.json: cannot be read")
    (tmp_path / "run.json").write_text(json.dumps({"format": 10**6}))
    assert_refused(invoke(command, tmp_path), "later version of fedsim")


@pytest.mark.usefixtures("with_reports")
def test_a_run_whose_table_was_cut_off(run: RunText, tmp_path: Path) -> None:
    assert run(PARABOLAS, "-o", "out").exit_code == 0
    table = tmp_path / "out" / "dispatches.parquet"
    table.write_bytes(table.read_bytes()[:-20])
    assert_refused(invoke("report", "out"), "dispatches.parquet")


def test_a_complete_run_that_lacks_a_file_is_mended_by_what_the_message_says(
    run: RunText,
) -> None:
    assert run(PARABOLAS, "-o", "out").exit_code == 0
    table = Path("out/clients.parquet")
    before = table.read_bytes()
    table.unlink()
    refused = invoke("resume", "out")
    assert_refused(refused, "out/clients.parquet: no such file, though the run is complete")
    command = refused.stderr.partition("repeat the run: fedsim ")[2].split()
    assert invoke(*command).exit_code == 0
    assert table.read_bytes() == before


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("mlp, hidden: [1000000000000]", "the model takes 300 TB"),
        (f"mlp, hidden: [{'1, ' * 1001}]", "task.model.hidden: list should have at most 1000"),
        (f"cnn, hidden: [{'1, ' * 1001}]", "task.model.hidden: list should have at most 1000"),
        ("char_lstm, layers: 1001", "task.model.layers: must be less than or equal to 1000"),
        ("char_transformer, layers: 1001", "task.model.layers: must be less than or equal to 1000"),
    ],
)
def test_a_model_of_too_many_values_or_layers_is_refused(
    run: RunText, model: str, problem: str
) -> None:
    result = run(DIGITS.replace("logistic_regression", model))
    assert_refused(result, problem)


def test_a_share_of_over_selection_is_added_to_the_cohort() -> None:
    result = invoke("scenario", "check", "quickstart", "-s", "server.schedule.over_selection=30%")
    assert_refused(result, "must be a number, not '30%'", "write 1.3 for 30% more")


def test_no_message_steers_the_terminal(run: RunText) -> None:
    result = run('"a\\x1b[31mb": 1\n' + PARABOLAS)
    assert_refused(result, "a control character: 'a\\x1b[31mb'")
    assert "\x1b" not in result.stderr
