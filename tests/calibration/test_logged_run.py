"""Logs of real runs beside simulated ones."""

from pathlib import Path

import numpy as np
import pytest

import fedsim
from fedsim.analysis.comparison.cautions import cautions
from fedsim.calibration.logged_run import write_run
from fedsim.errors import UserError
from fedsim.runs import Run, RunFolder
from tests.runs.synthetic_runs import build_run

ROUNDS = """\
client,start,end,round,steps,bytes_down,bytes_up
a,100,110,1,10,100,50
b,100,120,1,10,100,50
a,122,130,2,10,100,50
b,122,140,2,10,100,50
a,145,150,3,10,100,50
b,145,,3,10,100,
"""


def _run(folder: Path, text: str) -> Run:
    (folder / "real.csv").write_text(text)
    write_run(folder / "real.csv", RunFolder(folder / "run"))
    return Run(RunFolder(folder / "run"))


def test_rounds_by_hand(tmp_path: Path) -> None:
    """Two clients, three rounds; the last update of b is lost, and its dispatch ends with the round."""
    run = _run(tmp_path, ROUNDS)
    made = run.aggregations
    assert made["time_s"].tolist() == [20, 40, 50]
    assert [ids.tolist() for ids in made["contributor_ids"]] == [[0, 1], [2, 3], [4]]
    assert run.dispatches["ended_s"].tolist() == [10, 20, 30, 40, 50, 50]
    assert run.dispatches["outcome"].tolist() == ["aggregated"] * 5 + ["dropped"]
    # The name is escaped where it is shown.
    (tmp_path / "\x1b[31m\udcff.csv").write_text(ROUNDS)
    facts = fedsim.compare(tmp_path / "\x1b[31m\udcff.csv").facts[0]
    assert facts.log == r"\x1b[31m\udcff.csv"
    figures = facts.figures
    expected = {
        "interval_s": 50 / 3,
        "age_s": (20 + 20 + 18 + 18 + 5) / 5,
        "turnaround_p50_s": 10,
        "rounds": 3,
        "per_update": 5 / 3,
        "contributed": 1,
        "client_updates_per_h": 5 / 50 * 3600,
        "bytes": 6 * 100 + 5 * 50,
        "lost_steps": 1 / 6,
        "lost_dispatches": 1 / 6,
        "staleness_mean": 0,
    }
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    assert all(np.isnan(figures[name]) for name in ("energy_j", "compute_s", "lost_seconds"))


def test_an_excerpt_of_a_log_is_compared(tmp_path: Path) -> None:
    """Its rounds have large numbers, with gaps."""
    rows = ["a,0,10,100", "a,20,30,200", "a,40,50,300"]
    (tmp_path / "real.csv").write_text("\n".join(["client,start,end,round", *rows]))
    assert fedsim.compare([tmp_path / "real.csv"]).facts[0].figures["rounds"] == 3


def test_missing_rounds_are_a_caution(tmp_path: Path) -> None:
    """Versions that nobody was sent while updates were under way are not missing, nor rounds whose updates are late."""
    lacking = ROUNDS.replace(",3,10", ",5,10").replace("b,145,,", "b,145,160,")
    (tmp_path / "real.csv").write_text(lacking)
    caution = cautions(fedsim.compare(tmp_path / "real.csv"))[0]
    assert "The log lacks 2 rounds, the first one after round 2" in caution
    late = "client,start,end,round,outcome\na,0,9,0,\na,10,30,1,late\nb,20,25,2,\n"
    # Round 1 is at work until 20 s, beside round 2, whose update is late.
    beside = "client,start,end,round,outcome\na,0,20,1,\nb,2,30,2,late\nc,8,25,4,\n"
    for text in (ROUNDS, lacking.replace("b,122,140", "b,122,150"), late, beside):
        (tmp_path / "real.csv").write_text(text)
        assert "lacks" not in str(cautions(fedsim.compare(tmp_path / "real.csv")))


def test_doubts_about_a_log_are_cautions(tmp_path: Path) -> None:
    """Times in milliseconds, and two runs in one log."""
    columns = "client,start,end,round,steps,bytes_down,bytes_up"
    rows = ["a,0,900000,0,10,9,9", "a,950000,1870000,1,10,9,9", "a,1900000,2900000,0,10,9,9"]
    (tmp_path / "real.csv").write_text("\n".join([columns, *rows]))
    (caution,) = cautions(fedsim.compare(tmp_path / "real.csv"))
    assert "Round 0 begins again" in caution
    assert "If they are milliseconds, divide them by 1000." in caution
    (tmp_path / "real.csv").write_text(ROUNDS)
    assert cautions(fedsim.compare(tmp_path / "real.csv"))[0].endswith("of the first run.")


def test_versions_of_an_asynchronous_run_by_hand(tmp_path: Path) -> None:
    """Every arrival makes a version, with which its client begins at once."""
    rows = ["a,0,10,0", "b,0,25,0", "a,10,20,1", "a,20,30,2", "b,25,,3", "a,30,,4"]
    run = _run(tmp_path, "\n".join(["client,start,end,round", *rows]))
    assert run.aggregations["time_s"].tolist() == [10, 20, 25, 30]
    entered = run.dispatches.dropna(subset="aggregated_version")
    by_client = entered[["client_id", "aggregated_version", "staleness"]].to_numpy().tolist()
    assert by_client == [[0, 1, 0], [1, 3, 2], [0, 2, 0], [0, 4, 1]]


def test_a_log_is_compared_with_a_simulated_run(tmp_path: Path) -> None:
    """What it lacks is left out and named; it shares the seed and the scenario of the run."""
    run = build_run(tmp_path / "simulated", clients=4, hours=2, cohort=2, seed=3)
    text = "\n".join(line.rsplit(",", 2)[0] for line in ROUNDS.splitlines())
    (tmp_path / "real.csv").write_text(text)
    comparison = fedsim.compare([run.path, tmp_path / "real.csv"])
    assert [group.label for group in comparison.groups] == ["clock=simulated", "real.csv"]
    assert [facts.seed for facts in comparison.facts] == [3, 3]
    page = comparison.write(tmp_path / "page").read_text()
    assert "without metrics, energy, times of phases" in page
    assert set(comparison.spent["label"]) == {"clock=simulated"}
    assert fedsim.compare(tmp_path / "real.csv").write(tmp_path / "logs").exists()


def test_the_log_of_a_server_says_nothing_of_single_clients(tmp_path: Path) -> None:
    lines = [
        f"2024-05-01T12:0{minute}:00Z INFO : {said}"
        for number in range(3)
        for minute, said in (
            (2 * number, "configure_train: Sampled 5 nodes (out of 10)"),
            (2 * number + 1, "aggregate_train: Received 5 results and 0 failures"),
        )
    ]
    (tmp_path / "fl.log").write_text("\n".join(lines))
    (tmp_path / "real.csv").write_text(ROUNDS)
    comparison = fedsim.compare([tmp_path / "fl.log", tmp_path / "real.csv"])
    figures = comparison.facts[0].figures
    assert figures["interval_s"] == 100
    for name in ("client_updates_per_h", "contributed", "per_update", "gini", "dispatches"):
        assert np.isnan(figures[name])
        assert not np.isnan(comparison.facts[1].figures[name])
    page = comparison.write(tmp_path / "page").read_text()
    assert "local steps and single clients" in page


TIMING = {
    "name": "timed",
    "task": {"name": "timing", "clients": 6, "parameters": 1e6},
    "training": {"local_steps": 3},
    "devices": {
        "compute": {"name": "values", "step": [0.101, 0.203, 0.307, 0.503, 0.709, 1.103]},
        "network": {"name": "static", "latency": 0, "down": "8Mbps", "up": "4Mbps"},
    },
    "stop": {"simulated_time": "5min"},
}
SYNC = {
    "schedule": {"name": "sync", "deadline": "13s"},
    "selection": {"name": "uniform", "cohort": 4},
}
FEDBUFF = {"schedule": {"name": "buffered", "buffer_size": 2}, "method": "fedbuff"}


@pytest.mark.parametrize("server", [SYNC, FEDBUFF], ids=["sync", "fedbuff"])
def test_the_log_of_a_simulated_run_gives_its_figures(
    tmp_path: Path, server: dict[str, object]
) -> None:
    run = fedsim.run({**TIMING, "server": server}, tmp_path / "run", timing_only=True)
    log = tmp_path / "real.csv"
    run.dispatches.rename(columns={"client_id": "client"}).to_csv(log, index=False)
    simulated, logged = (dict(each.figures) for each in fedsim.compare([run.path, log]).facts)
    for name in ("wall_s", "energy_j", "compute_s", "paused_s", "lost_seconds"):
        assert simulated.pop(name) >= 0
        assert np.isnan(logged.pop(name))
    assert logged == pytest.approx(simulated, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,start,end\na,0,1", "needs the column round in every row"),
        ("client,start,end,round\na,0,1,1\nb,0,1,", "needs the column round in every row"),
        ("client,start,end,round\na,5,6,1\nb,0,1,2", "round 2 begins before round 1"),
        ("client,start,round\na,5,6", "no column end"),
    ],
)
def test_a_log_that_cannot_be_compared(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "real.csv").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        fedsim.compare([tmp_path / "real.csv"])
    assert "real.csv" in str(caught.value.where)
    assert caught.value.hint
