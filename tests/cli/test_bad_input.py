"""Kinds of bad input: each ends with exit code 2 and one message that names the place, never with a traceback."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fedsim
from fedsim.cli import cli
from fedsim.traces.bundle import Eligibility, Manifest, TraceBundle
from fedsim.traces.tables import make_table
from tests.cli.invoking import DIGITS, PARABOLAS, assert_refused, invoke

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


@pytest.mark.parametrize("text", [PARABOLAS, DIGITS])
def test_the_scenarios_without_the_mistakes_run(run: Callable[..., Result], text: str) -> None:
    result = run(text)
    assert result.exit_code == 0, result.output


def test_the_bundle_without_the_mistakes_runs(run: Callable[..., Result], tmp_path: Path) -> None:
    write_bundle(tmp_path / "week")
    result = run(TRACED)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        # The text is no scenario at all.
        pytest.param("", ["s.yaml: the scenario is empty"], id="empty file"),
        pytest.param("- a\n", ["s.yaml: a scenario is a mapping"], id="a list"),
        pytest.param("task:\n\tname: timing\n", ["s.yaml:2:1: a tab where"], id="tab"),
        pytest.param("task: [1, 2\n", ["s.yaml:1:7: this [ is never closed"], id="open bracket"),
        pytest.param("a: 1\na: 2\n", ["s.yaml:2:1: the key 'a' appears twice"], id="key twice"),
        pytest.param(b"name: \xff\n", ["s.yaml: is not UTF-8"], id="not UTF-8"),
        pytest.param("a: !!python/name:os.system\n", ["s.yaml:1:4: the YAML tag"], id="python tag"),
        pytest.param("a: &x [*x]\n", ["s.yaml:1:4: aliases"], id="endless alias"),
        pytest.param("a: 1\n---\nb: 2\n", ["s.yaml:2:1: a second document"], id="two documents"),
        # A key or a value is wrong.
        pytest.param(
            PARABOLAS + "trainning: {}\n",
            ["s.yaml:7:1: trainning: unknown key", "did you mean 'training'?"],
            id="unknown key",
        ),
        pytest.param(
            PARABOLAS.replace("step: 1s", "step: 1parsec"),
            ["s.yaml:4:33: devices.compute.step: '1parsec' has no known unit", "ms, s, min, h, d"],
            id="wrong unit",
        ),
        pytest.param(
            PARABOLAS.replace("down: 1Mbps", "down: -1Mbps"),
            ["s.yaml:5:33: devices.network.down", "negative"],
            id="negative rate",
        ),
        pytest.param(
            PARABOLAS.replace("latency: 0", "latency: 2MB"),
            ["s.yaml:5:60: devices.network.latency"],
            id="size for a duration",
        ),
        pytest.param(
            PARABOLAS.replace("local_steps: 2", "optimizer: {lr: .nan}"),
            ["s.yaml:2:28: training.optimizer.lr: must be a finite number, not nan"],
            id="NaN",
        ),
        pytest.param(
            PARABOLAS.replace("local_steps: 2", "optimizer: {lr: 1e400}"),
            ["s.yaml:2:28: training.optimizer.lr: must be a finite number, not inf"],
            id="number too large",
        ),
        pytest.param(
            PARABOLAS.replace("local_steps: 2", "local_steps: many"),
            ["s.yaml:2:25: training.local_steps: must be a whole number, not 'many'"],
            id="text for a number",
        ),
        pytest.param(
            PARABOLAS.replace("local_steps: 2", "local_steps: true"),
            ["s.yaml:2:25: training.local_steps: must be a whole number, not true"],
            id="true for a number",
        ),
        pytest.param(
            PARABOLAS.replace("local_steps: 2", "local_steps: 2, local_epochs: 1"),
            ["s.yaml:2:11: training: give only one of"],
            id="two amounts of work",
        ),
        pytest.param(
            PARABOLAS.replace("{rounds: 2}", "{}"),
            ["s.yaml:6:7: stop: give at least one of"],
            id="a run without an end",
        ),
        pytest.param(
            PARABOLAS.replace("rounds: 2", "simulated_time: 100s") + "evaluation: {every: 99us}\n",
            [
                "s.yaml:7:21: evaluation.every: an interval of 99 µs gives 1,010,101 evaluations",
                "set at least 100us",
            ],
            id="more evaluations than a run makes",
        ),
        pytest.param(
            PARABOLAS + "evaluation: {every: 0}\n",
            ["s.yaml:7:21: evaluation.every: must be longer than 0 s"],
            id="evaluations without time between them",
        ),
        pytest.param(
            PARABOLAS + "server: {method: {name: fedavgg}}\n",
            ["s.yaml:7:25: server.method.name: there is no method", "did you mean 'fedavg'?"],
            id="unknown method",
        ),
        pytest.param(
            PARABOLAS + "server: {method: {name: fedavg, server_lrr: 1}}\n",
            ["s.yaml:7:33: server.method.server_lrr: unknown key", "did you mean 'server_lr'?"],
            id="unknown parameter of a method",
        ),
        pytest.param(
            PARABOLAS + "server: {method: fedavgg}\n",
            ["s.yaml:7:18: server.method: there is no method", "did you mean 'fedavg'?"],
            id="unknown method in short",
        ),
        pytest.param(
            DIGITS.replace("{name: iid, clients: 3}", "{name: dirichlet, clients: 3}"),
            ["task.partition.alpha: is missing"],
            id="missing parameter",
        ),
        pytest.param(
            PARABOLAS + "server: {method: {name: mine.py:Mine}}\n",
            ["s.yaml:7:25: server.method.name: no such file", "mine.py"],
            id="missing file of the user's",
        ),
        # The parts do not fit together.
        pytest.param(
            DIGITS.replace("clients: 3", "clients: 3000"),
            ["s.yaml:1:44: task.partition", "3,000 clients", "1,438"],
            id="more clients than samples",
        ),
        pytest.param(
            DIGITS.replace("{name: digits}", "{name: npz, path: nowhere.npz}"),
            ["nowhere.npz"],
            id="missing data",
        ),
        pytest.param(
            PARABOLAS.replace("centers: [1, 2, 3]", "centers: [[1, 2], [3]]"),
            ["quadratic"],
            id="ragged centers",
        ),
        pytest.param(
            PARABOLAS.replace("step: 1s", "step: [1s, 2s]"),
            ["s.yaml:4:33: devices.compute.step: 2 step times for 3 clients"],
            id="fewer step times than clients",
        ),
        pytest.param(
            "task: {name: timing, clients: 3}\nstop: {rounds: 2, target: {loss: 1}}\n"
            "devices: {compute: {name: values, step: 1}, network: {down: 1, up: 1}}\n",
            ["s.yaml:2:27: stop.target: a target needs training"],
            id="a target without training",
        ),
        pytest.param(
            PARABOLAS + "sweep: {seeds: [1, 2]}\n",
            ["sweep", "fedsim sweep"],
            id="many runs where one is wanted",
        ),
        pytest.param(
            PARABOLAS.replace("{name: values, step: 1s}", "{name: trace}"),
            ["s.yaml:4:12: devices.compute: there is no compute table"],
            id="step times from no trace",
        ),
        # The trace is missing.
        pytest.param(
            TRACED, ["s.yaml", "devices.trace: no such trace bundle", "week"], id="missing trace"
        ),
        pytest.param(
            PARABOLAS.replace("{name: values, step: 1s}", "{name: trace, trace: nowhere}"),
            ["s.yaml:4:33: devices.compute.trace: no such trace bundle", "nowhere"],
            id="missing trace of one part",
        ),
        pytest.param(
            PARABOLAS.replace(
                "stop:",
                "server: {selection: {name: bernoulli, probability: 0.5, allow_empty: true}}\nstop:",
            ),
            ["s.yaml", "server.schedule.min_updates: an empty round"],
            id="rounds that may be empty and may not",
        ),
        pytest.param(
            PARABOLAS.replace(
                "stop:",
                "server: {schedule: {name: sync, min_updates: 3}, selection: {name: uniform, cohort: 2}}\nstop:",
            ),
            ["s.yaml", "server.schedule.min_updates: a round of 2 clients never yields 3 updates"],
            id="more updates than clients asked",
        ),
        pytest.param(
            PARABOLAS.replace("stop:", "server: {schedule: {name: sync, deadline: 0s}}\nstop:"),
            ["s.yaml:6:43: server.schedule.deadline: must be greater than 0"],
            id="a deadline of nothing",
        ),
        pytest.param(
            PARABOLAS.replace(
                "stop:",
                "server: {schedule: {name: tiered, tiers: 2}, selection: {name: scripted, rounds: [[0], [1]]}}\nstop:",
            ),
            ["s.yaml", "server.selection: the scripted selection fixes the clients of each round"],
            id="a script and tiers",
        ),
        pytest.param(
            PARABOLAS.replace(
                "local_steps: 2", "local_steps: 2, optimizer: {name: sgd, nesterov: true}"
            ),
            ["s.yaml:2:39: training.optimizer: nesterov needs momentum, which is 0"],
            id="Nesterov without momentum",
        ),
        pytest.param(
            DIGITS + "evaluation: {per_client: true}\n",
            [
                "s.yaml:7:26: evaluation.per_client: clients have no separate test samples",
                "partition.test",
            ],
            id="clients measured on nothing",
        ),
        pytest.param(
            PARABOLAS.replace("devices:", "devices:\n  trace: {bundle: week}"),
            ["devices.trace: must be a path, not {'bundle': 'week'}"],
            id="a mapping in place of a path",
        ),
        pytest.param(TRACED.replace("week", "."), ["is not a trace bundle"], id="not a trace"),
    ],
)
def test_bad_scenarios(run: Callable[..., Result], text: str | bytes, fragments: list[str]) -> None:
    result = run(text)
    assert_refused(result, *fragments)
    assert result.stderr.count("error: ") == 1
    assert not Path("runs").exists()
    if "fedsim sweep" not in fragments:
        checked = invoke("scenario", "check", "s.yaml")
        assert checked.exit_code == 2
        assert checked.stderr == result.stderr, "check refuses with the message of run"


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        pytest.param(
            PARABOLAS + "server: {selection: {name: scripted, rounds: [[0, 7]]}}\n",
            ["s.yaml:7:46: server.selection.rounds: round 0 names client 7"],
            id="unknown client in a script",
        ),
        pytest.param(
            PARABOLAS.replace("{rounds: 2}", "{rounds: 2, target: {acuracy: 0.9}}"),
            ["s.yaml:6:37: stop.target.acuracy: there is no metric 'acuracy'", "loss"],
            id="unknown metric",
        ),
        pytest.param(
            PARABOLAS + "server: {failure_detection: never}\n",
            ["server.schedule", "deadline"],
            id="a schedule that would wait for ever",
        ),
    ],
)
def test_scenarios_that_turn_out_impossible_once_the_run_begins(
    run: Callable[..., Result], text: str, fragments: list[str]
) -> None:
    result = run(text)
    assert_refused(result, *fragments)
    assert result.stderr.count("error: ") == 1


def test_evaluations_without_end_end_where_the_run_has_no_end_in_time(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
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


def test_several_mistakes_are_reported_together(run: Callable[..., Result]) -> None:
    result = run(PARABOLAS.replace("step: 1s", "step: 1x").replace("rounds: 2", "round: 2"))
    assert_refused(result, "s.yaml:4:33: ", "s.yaml:6:8: stop.round: unknown key")


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        pytest.param(
            {"availability": {"start_us": [0, HOUR_US, HOUR_US, 0]}},
            ["availability", "row 1", "overlap"],
            id="overlapping intervals",
        ),
        pytest.param(
            {"availability": {"end_us": [2 * HOUR_US, HOUR_US, 2 * HOUR_US, 24 * HOUR_US]}},
            ["availability", "row 1"],
            id="reversed interval",
        ),
        pytest.param(
            {"availability": {"device_id": ["a", "a", "b", "nobody"]}},
            ["availability", "row 3", "nobody"],
            id="intervals of an unknown device",
        ),
        pytest.param(
            {"compute": {"sample_s": [0.001, float("nan"), 0.003]}},
            ["compute", "sample_s"],
            id="NaN in a trace",
        ),
        pytest.param(
            {"compute": {"sample_s": [0.001, -1.0, 0.003]}},
            ["compute", "sample_s"],
            id="negative time in a trace",
        ),
    ],
)
def test_bad_traces(
    run: Callable[..., Result],
    tmp_path: Path,
    changes: dict[str, dict[str, list[Any]]],
    fragments: list[str],
) -> None:
    write_bundle(tmp_path / "week", **changes)
    assert_refused(run(TRACED), "week", *fragments)
    assert not Path("runs").exists()


def test_a_bundle_without_compute_times(run: Callable[..., Result], tmp_path: Path) -> None:
    bundle = TraceBundle.read(write_bundle(tmp_path / "full"))
    del bundle.tables["compute"]
    bundle.write(tmp_path / "week")
    assert_refused(run(TRACED), "devices.compute: there is no compute table")


def test_fewer_devices_than_clients(run: Callable[..., Result], tmp_path: Path) -> None:
    write_bundle(tmp_path / "week")
    result = run(TRACED.replace("[1, 2, 3]", "[1, 2, 3, 4]"))
    assert_refused(
        result, "devices.trace: ", "week has 3 devices for 4 clients", "devices.assign: sample"
    )


def test_truncated_parquet_file(run: Callable[..., Result], tmp_path: Path) -> None:
    table = write_bundle(tmp_path / "week") / "availability.parquet"
    table.write_bytes(table.read_bytes()[:-20])
    assert_refused(run(TRACED), str(Path("week") / "availability.parquet"))


def test_missing_table_of_a_trace(run: Callable[..., Result], tmp_path: Path) -> None:
    (write_bundle(tmp_path / "week") / "compute.parquet").unlink()
    assert_refused(run(TRACED), "compute")


def test_damaged_manifest(run: Callable[..., Result], tmp_path: Path) -> None:
    manifest = write_bundle(tmp_path / "week") / "manifest.json"
    manifest.write_text("{")
    assert_refused(run(TRACED), "manifest.json")


def test_a_method_file_that_cannot_be_imported(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import nonexistent_library\n")
    result = run(PARABOLAS + "server: {method: {name: mine.py:Mine}}\n")
    assert_refused(
        result,
        "s.yaml:7:25",
        "mine.py cannot be imported",
        "install the package of 'nonexistent_library'",
    )


def test_a_method_file_without_the_class(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedsim.methods.fedavg import FedAvg\nclass Yours(FedAvg): pass\n"
    )
    result = run(PARABOLAS + "server: {method: {name: mine.py:Mine}}\n")
    assert_refused(result, "has no class named 'Mine'", "Yours")


def test_a_required_argument_of_an_own_function_is_missing(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "def score(outputs, labels, k): return 0.5\ndef net(in_features, classes): return None\n"
    )
    assert_refused(
        run(
            DIGITS.replace("logistic_regression", "mine.py:net"),
            "-s",
            "evaluation.metrics=[mine.py:score]",
        ),
        "task.model.in_features: is missing\n  write {name: mine.py:net, in_features: ...}; only input_shape, classes",
        "evaluation.metrics.0.k: is missing\n  write {name: mine.py:score, k: ...}\n",
    )


def test_a_model_that_does_not_fit_the_data(run: Callable[..., Result], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", x=rng.normal(size=(40, 5)), y=rng.integers(0, 2, 40))
    text = DIGITS.replace("{name: digits}", "{name: npz, path: rows.npz}")
    result = run(text.replace("logistic_regression", "cnn"))
    assert_refused(result, "s.yaml:1:", "task.model: model cnn does not fit data set rows")


def test_nan_in_the_data(run: Callable[..., Result], tmp_path: Path) -> None:
    x = np.ones((40, 5))
    x[3, 2] = np.nan
    np.savez(tmp_path / "rows.npz", x=x, y=np.arange(40) % 2)
    result = run(DIGITS.replace("{name: digits}", "{name: npz, path: rows.npz}"))
    assert_refused(result, "rows", "not finite")


def test_no_cuda(run: Callable[..., Result]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    result = run(PARABOLAS, "-s", "training.device=cuda")
    assert_refused(result, "option -s training.device=cuda", "no CUDA device")


@pytest.mark.parametrize(
    ("option", "fragments"),
    [
        ("seed", ["option -s seed: write a dotted path"]),
        ("training.lr=1", ["option -s training.lr=1: unknown key"]),
        (
            "server.method.nam=fedbuff",
            ["option -s server.method.nam=fedbuff: unknown key", "did you mean 'name'?"],
        ),
        ("stop.target={mse:0.5}", ["has no value", "write a space after the colon: mse: 0.5"]),
        ("task.centers.9=1", ["option -s task.centers.9=1", "list of 3 items"]),
        ("seed=-1", ["option -s seed=-1: must be greater than or equal to 0, not -1"]),
        ("seed=[", ["option -s seed=[:1:1: this [ is never closed"]),
    ],
)
def test_bad_overrides(run: Callable[..., Result], option: str, fragments: list[str]) -> None:
    assert_refused(run(PARABOLAS, "-s", option), *fragments)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("training.local_step=1", "did you mean 'local_steps'?\n"),
        ("server.method.name=fedavgg", "did you mean 'fedavg'?\n"),
        ("task.center=[1]", "did you mean 'centers'?\n"),
        ("training.qqq=1", "known keys: optimizer, lr_schedule, "),
        ("server.method.name=qqq", "known: ditto, "),
    ],
)
def test_a_list_of_names_is_shown_only_without_a_similar_name(
    run: Callable[..., Result], option: str, hint: str
) -> None:
    result = run(PARABOLAS, "-s", option)
    assert_refused(result, f"\n  {hint}")
    assert ("known" in result.stderr.replace("unknown", "")) == hint.startswith("known")


def test_missing_scenario(tmp_path: Path) -> None:
    (tmp_path / "night.yaml").write_text(PARABOLAS)
    assert_refused(invoke("run", tmp_path / "day.yaml"), "day.yaml: no such file", "night.yaml")


def test_a_folder_for_a_scenario(tmp_path: Path) -> None:
    assert_refused(invoke("run", tmp_path), "is a folder, not a scenario")


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


def test_a_run_whose_table_was_cut_off(run: Callable[..., Result], tmp_path: Path) -> None:
    assert run(PARABOLAS, "-o", "out").exit_code == 0
    table = tmp_path / "out" / "dispatches.parquet"
    table.write_bytes(table.read_bytes()[:-20])
    assert_refused(invoke("report", "out"), "dispatches.parquet")


def test_a_complete_run_that_lacks_a_file_is_mended_by_what_the_message_says(
    run: Callable[..., Result],
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
    ("part", "message"),
    [
        ("{name: values, step: 1e12}", "devices.compute.step: 1000000000000.0 is longer than a hu"),
        ("{name: values, step: 1e300}", "is longer than a hundred years"),
        # Each median may be given, and the slowest client's draw would pass the end of the clock.
        ("{name: lognormal, median: 3e9, sigma: 4}", "the step time of client"),
    ],
)
def test_times_beyond_the_clock_are_refused(tmp_path: Path, part: str, message: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(PARABOLAS.replace("{name: values, step: 1s}", part), encoding="utf-8")
    result = CliRunner().invoke(cli, ["run", str(path), "-o", str(tmp_path / "out")])
    assert result.exit_code == 2, result.output
    assert message in result.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("network={latency: 1e300, down: 1, up: 1}", "1e+300 is longer than a hundred years"),
        (
            "network.latency={name: lognormal, median: 3e9, sigma: 500}",
            "sigma: 500}: latency of client 0 is 1.569779484362042e+23 s (2 clients",
        ),
        ("network.down={name: lognormal, median: 1e300, sigma: 300}", None),
        ("network.down=1e-308", None),
        ("network={name: shared, down: 1e-308, up: 1e-308}", None),
        ("network={down: 1e300, up: bundle, up_ratio: 1e300}", None),
        ("compute={name: lognormal, median: 1, sigma: 1e300}", None),
        ("compute={name: lognormal, median: 1, sigma: 1e300, limit: 1e300}", "the step time of"),
        ("compute={name: lognormal, median: 0, redraw: 1}", None),
        ("compute={name: normal, mean: 3e9, cv: 1e305}", "the step time of client 0 is inf s"),
        (
            "compute.jitter.cv=1e200",
            "jitter.cv=1e200: must be less than or equal to 1000, not 1e+200",
        ),
        (
            "compute.step_noise.sd=1e300",
            "step_noise.sd=1e300: must be less than or equal to 20, not",
        ),
        ("compute.stragglers={probability: 1, slowdown_max: 1e300}", "less than or equal to 1"),
        ("compute.perturbations=[{at: 0, factor: 1e300}]", None),
        ("failures.crash_rate=1e-300", None),
    ],
)
def test_figures_beyond_all_measure_are_refused_or_simulated_and_never_warned_of(
    run: Callable[..., Result], change: str, message: str | None
) -> None:
    text = PARABOLAS.replace("{rounds: 2}", "{rounds: 2, simulated_time: 1d}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(text, "-s", f"devices.{change}")
    if message is None:
        assert result.exit_code == 0, result.output
    else:
        assert_refused(result, message)


@pytest.mark.parametrize(
    "change",
    [
        "training.local_steps",
        "training.batch_size",
        "training.local_epochs",
        "task.samples",
        "task.clients",
    ],
)
def test_numbers_that_no_machine_counts_are_refused(
    run: Callable[..., Result], change: str
) -> None:
    text = PARABOLAS.replace("training: {local_steps: 2}", "").replace(
        "name: quadratic, centers: [1, 2, 3]", "name: timing, clients: 3"
    )
    assert run(text, "-o", "sound").exit_code == 0
    assert_refused(run(text, "-s", f"{change}=1{'0' * 30}"), "0: must be less than or")


def test_a_file_without_end_is_no_scenario() -> None:
    result = CliRunner().invoke(cli, ["scenario", "check", "/dev/zero"])
    assert result.exit_code == 2
    assert "larger than 16 MiB" in result.stderr


def test_no_message_steers_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text('"a\\x1b[31mb": 1\ntask: {name: timing, clients: 1}\nstop: {rounds: 1}\n')
    result = CliRunner().invoke(cli, ["scenario", "check", str(path)])
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
    assert "a\\x1b[31mb: unknown key" in result.stderr


def test_a_model_larger_than_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "task: {dataset: digits, partition: {name: iid, clients: 2}, model: {name: mlp, hidden: [1000000000000]}}\n"
        "devices: {compute: {name: values, step: 1s}, network: {name: static, down: 8Mbps, up: 8Mbps}}\n"
        "stop: {rounds: 1}\n"
    )
    result = CliRunner().invoke(cli, ["scenario", "check", str(path)])
    assert result.exit_code == 2
    assert "the model takes 300 TB" in result.stderr


@pytest.mark.parametrize("every", ["10", "1e3", "'10'", "0s", "10 rounds"])
def test_models_are_not_kept_at_an_interval_without_unit(
    run: Callable[..., Result], every: str
) -> None:
    assert_refused(run(PARABOLAS, "-s", f"checkpoint_models={{every: {every}}}"), "10 versions")


def test_a_missing_data_file_is_named_with_its_key_and_line(run: Callable[..., Result]) -> None:
    text = """\
task: {name: supervised, partition: {name: iid, clients: 3}, model: mlp,
       dataset: {name: npz, path: nothere.npz}}
devices: {compute: {name: uniform, low: 1s, high: 2s}}
stop: {rounds: 2}
"""
    result = run(text)
    assert_refused(result, "s.yaml:2:35: task.dataset.path: ", "nothere.npz: no such file")


def test_a_share_of_over_selection_is_added_to_the_cohort() -> None:
    result = invoke("scenario", "check", "quickstart", "-s", "server.schedule.over_selection=30%")
    assert_refused(result, "must be a number, not '30%'", "write 1.3 for 30% more")
