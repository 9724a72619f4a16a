"""``fedsim compare`` on the command line."""

import json
import math
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedsim.analysis.comparison import Comparison, Target, compare
from fedsim.analysis.comparison.headline import headline
from fedsim.cli.compare import _print, _renaming, command
from fedsim.errors import UserError
from fedsim.sweeps import Sweep
from fedsim.vocabulary.formatting import format_mean
from tests.analysis.comparison import compared
from tests.analysis.comparison.made import of, run
from tests.analysis.comparison.test_groups import facts
from tests.cli.invoking import assert_refused, invoke
from tests.lines import rows


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return compared.once(tmp_path_factory)


@pytest.fixture(scope="session")
def pair(sweep: Sweep) -> list[str]:
    """A run of each of two variants, read in a sixth of the time."""
    return [str(compared.folders(sweep, "alpha=5", name)[0]) for name in compared.VARIANTS]


def test_command(sweep: Sweep, tmp_path: Path) -> None:
    args = [str(sweep.path), "-o", str(tmp_path / "out")]
    args += ["--target", "accuracy=0.5", "--target", "accuracy=0.99"]
    result = CliRunner().invoke(command, [*args, "--baseline", "fedbuff", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["baseline"] == "fedbuff"
    assert Path(document["page"]) == tmp_path / "out" / "compare.html"
    expected = compare(sweep.path, targets=["accuracy=0.5", "accuracy=0.99"], baseline="fedbuff")
    for shown, known in zip(document["targets"], expected.targets.to_dict("records"), strict=True):
        for name in ("time_s", "relative"):
            number = math.nan if shown[name] is None else shown[name]
            assert number == pytest.approx(known[name], nan_ok=True)
    assert document["headline"] == " ".join(headline(expected))
    shown = CliRunner().invoke(command, args, env={"COLUMNS": "200"}).output
    for line in expected.summary.itertuples():
        assert format_mean(line.final_accuracy, line.final_accuracy_sd, "share") in shown
    assert "– [0 of 3]" in shown
    assert str(tmp_path / "out" / "compare.html") in shown.replace("\n", "")


def test_a_note_on_relative_speeds_if_runs_missed_the_target(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """[2 of 3] has a mean over two seeds, which is not the one behind the factor."""
    monkeypatch.setenv("COLUMNS", "200")
    note = "Speeds are relative to fedavg, over the seeds with which both reached the target."
    for last, said in ((0.2, True), (0.9, False)):
        runs = [run("fedavg", seed, (0.1, 0.5, 0.9)) for seed in range(3)]
        values = (0.1, 0.1, last), (0.1, 0.9, 0.9), (0.1, 0.9, 0.9)
        runs += [run("mifa", seed, each) for seed, each in enumerate(values)]
        _print(of(*runs, goals=(Target("accuracy", 0.8),)), Path("page"))
        assert (note in capsys.readouterr().out) == said


def test_options_of_the_command(pair: list[str], tmp_path: Path) -> None:
    options = "--metric accuracy --metric loss --against bytes --ylim 40%:90% --log x --width 84mm --height 3in"
    options += " --labels fedavg=FedAvg --target accuracy=0.5 --target accuracy=0.7 --json"
    result = invoke("compare", *pair, "-o", tmp_path / "out", *options.split())
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert {row["label"] for row in document["groups"]} == {"FedAvg", "fedbuff"}
    assert "70% accuracy" in document["headline"]
    assert [text for text in document["other_targets"] if "50% accuracy" in text]
    assert "server.method.name" in document["differing"]
    assert (tmp_path / "out" / "curves.png").stat().st_size > 5000


LABELS = r"""
fedavg=FedAvg | fedavg | FedAvg
fedprox, mu=0.1=FedProx | fedprox, mu=0.1 | FedProx
fedavg=$K=2$ steps | fedavg | $K=2$ steps
lr=0.1=$\eta=0.1$, $K=2$ | lr=0.1 | $\eta=0.1$, $K=2$
fedavg=1=5$ | fedavg=1 | 5$
"""


def test_a_formula_in_a_label_may_hold_an_equals_sign() -> None:
    for text, *names in rows(LABELS):
        assert list(_renaming(text)) == names


def test_an_unknown_label_is_answered_with_an_option_that_works() -> None:
    runs = tuple(
        facts({"server": {"method": {"name": "fedavg"}, "schedule": {"deadline": deadline}}})
        for deadline in (25.0, 60.0)
    )
    with pytest.raises(UserError) as caught:
        Comparison((runs, (), None), labels={"deadline": "FedAvg 25 s"})
    option = shlex.split((caught.value.hint or "").splitlines()[-1])[-1]
    old, new = _renaming(option)
    assert new == "FedAvg 25 s"
    assert Comparison((runs, (), None), labels={old: new}).groups[0].label == new
    # A new name may hold "=", too.
    old, new = _renaming("deadline=60=FedAvg, T=1min")
    assert Comparison((runs, (), None), labels={old: new}).groups[1].label == "FedAvg, T=1min"
    # What controls a terminal is escaped.
    labels = {"deadline=60": "\x1b[31m"}
    for given in ("\x1b[31m", "\\x1b[31m"):
        comparison = Comparison((runs, (), None), labels=labels, baseline=given)
        assert comparison.groups[1].label == comparison.baseline == "\\x1b[31m"


def test_logs_do_not_differ_in_a_key_that_no_scenario_has(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("client,start,end,round\na,0,5,0\na,7,12,1\n")
    result = invoke("compare", tmp_path / "a.csv", tmp_path / "b.csv")
    assert result.exit_code == 0
    assert "keys that differ" not in result.output
    assert [*(tmp_path / "comparison").glob("*.html")]


MISTAKES = r"""
--xlim 0:2parsecs | xlim: '0:2parsecs' is not a range
--xlim 5d:6d | xlim: the range is outside the data
--labels nothing=x | labels: there is no variant
--labels fedavg | write the current name
--width wide | width:
--metric acuracy | no run measured 'acuracy'\n  did you mean 'accuracy'?
--target los=0.2 | los=0.2: no run measured 'los'\n  did you mean 'loss'?
--baseline fedbuf | baseline: there is no variant 'fedbuf'\n  did you mean
--against times | against: curves cannot be drawn against 'times'
--settings stop | settings: the runs do not differ in 'stop'
"""


@pytest.mark.parametrize(("option", "message"), rows(MISTAKES))
def test_mistakes_name_the_option(
    pair: list[str], tmp_path: Path, option: str, message: str
) -> None:
    assert_refused(invoke("compare", *pair, "-o", tmp_path / "out", *option.split()), message)
