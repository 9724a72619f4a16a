"""Closed loop: simulate, calibrate from that log, simulate again."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import stats

import fedsim
from fedsim.calibration import Calibration, calibrate
from fedsim.calibration.calibrating import QUANTILES
from fedsim.calibration.prediction import round_durations_s, simulated_log
from fedsim.cli import cli
from fedsim.composition.build import build
from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.scenario.loading import load_scenario, load_scenario_dict
from fedsim.traces.bundle import TraceBundle
from tests.calibration.worlds import LOG, TIMES, TRUTH, calibrated, few_simulations
from tests.simulation.harness import online_bundle

SCHEDULES: dict[str, dict[str, Any]] = {
    "all": {"schedule": {"name": "sync"}},
    "deadline": {"schedule": {"name": "sync", "deadline": "10s"}},
    "over-selection": {"schedule": {"name": "sync", "over_selection": 1.5}},
    "buffered": {"method": "fedbuff", "schedule": {"name": "buffered", "buffer_size": 3}},
}


@pytest.fixture(scope="module")
def log() -> pd.DataFrame:
    return simulated_log(load_scenario_dict(TRUTH, Path.cwd()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, log: pd.DataFrame) -> Path:
    made = tmp_path_factory.mktemp("calibration")
    log.drop(columns="ended_s").to_csv(made / "log.csv", index=False)
    return made


@pytest.fixture(scope="module")
def calibration(folder: Path) -> Calibration:
    with few_simulations(20):
        return calibrate(folder / "log.csv", folder / "bundle", load_scenario_dict(TRUTH, folder))


def test_the_estimates_are_the_truth_within_their_errors(calibration: Calibration) -> None:
    assert [flag for flag in calibration.flags if "the transport is fluid" in flag]
    estimates = calibration.estimates
    assert estimates.step_s.cv == pytest.approx(0.15, abs=3 * 0.15 * estimates.step_s.cv_error)
    assert [rate.cv for rate in estimates.rates_bps] == pytest.approx([0.1, 0.1], rel=0.15)
    truth = build(load_scenario_dict(TRUTH, Path.cwd()), timing_only=True).population
    seen = estimates.dispatches > 0
    z = (estimates.step_s.mean / truth.compute.step_s - 1)[seen] / estimates.step_s.error[seen]
    assert np.abs(z).max() < 4
    for way in Direction:
        z = (estimates.rates_bps[way].mean / truth.network.rates_bps(way) - 1)[seen]
        assert np.abs(z / estimates.rates_bps[way].error[seen]).max() < 4


NETWORK = """
import numpy as np
from fedsim.network import NetworkKind
from fedsim.network.static import StaticNetwork


class Mine(NetworkKind):
    def build(self, context):
        rate = np.full(context.clients, 5e6)
        return StaticNetwork(
            latency_s=np.full(context.clients, 0.02), down_bps=rate, up_bps=rate, clients=context.clients
        )
"""


@few_simulations()
def test_a_network_without_a_transport_is_accepted(folder: Path, tmp_path: Path) -> None:
    """That of a user may have any parameters, or none."""
    (tmp_path / "net.py").write_text(NETWORK)
    devices = {**TRUTH["devices"], "network": f"{tmp_path}/net.py:Mine"}
    log = (folder / "log.csv").read_text()
    result = calibrated(tmp_path, log, {**TRUTH, "devices": devices})
    assert result.estimates.dispatches.sum()


def test_the_simulation_has_the_distributions_of_the_log(calibration: Calibration) -> None:
    """Two-sample Kolmogorov-Smirnov tests, on the spread within each client, which the seed draws anew."""
    assert calibration.scenario is not None
    again = simulated_log(load_scenario_dict({**calibration.scenario, "seed": 9}, Path.cwd()))
    for start, end in [
        ("start_s", "downloaded_s"),
        ("downloaded_s", "computed_s"),
        ("computed_s", "end_s"),
    ]:
        samples = []
        for each in (calibration.log, again):
            seconds = (each[end] - each[start]).dropna()
            samples.append(seconds / seconds.groupby(each["client"]).transform("mean"))
        assert stats.ks_2samp(*samples).pvalue > 0.01
    durations = [round_durations_s(each) for each in (calibration.log, again)]
    assert stats.ks_2samp(*durations).pvalue > 0.01
    assert len(set(durations[0].round(6))) > len(durations[0]) / 3, "not only the deadline"


def test_an_output_that_cannot_be_is_refused_before_the_log_is_read(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").touch()
    for output, message in (
        (tmp_path / "thesis", "is not a trace bundle"),
        (tmp_path / "thesis" / "chapter.txt" / "b", "is not a folder in which you may write"),
        (Path.cwd(), "is the current folder"),
    ):
        with pytest.raises(UserError, match=message):
            calibrate(tmp_path / "no.csv", output)


def test_schedules_rank_as_they_do_in_truth(calibration: Calibration) -> None:
    assert calibration.scenario is not None
    order = []
    for base in (TRUTH, calibration.scenario):
        times = {}
        for name, server in SCHEDULES.items():
            section = {"method": "fedavg", "selection": {"name": "uniform", "cohort": 6}, **server}
            scenario = {**base, "server": section, "stop": {"arrivals": 150}}
            run = simulated_log(load_scenario_dict(scenario, Path.cwd()))
            times[name] = run["end_s"].dropna().max()
        order.append(sorted(times, key=times.__getitem__))
    assert order[0] == order[1]


def test_ninety_percent_bands_hold(calibration: Calibration) -> None:
    assert {each.name for each in calibration.predictions} == {
        "duration of a round (s)",
        "total time (s)",
        "late clients per round",
    }
    for prediction in calibration.predictions:
        assert prediction.coverage >= 0.8
    late = calibration.lateness
    assert late is not None
    assert late.right > late.commonest, "better than the commonest outcome for all"
    assert late.skill > 0.5
    assert late.right == np.mean((late.probability > 0.5) == late.late)


@few_simulations()
def test_schedules_without_a_deadline_predict_no_lateness(tmp_path: Path) -> None:
    server = {"method": "fedavg", "schedule": {"name": "async", "concurrency": 4}}
    truth = {**TRUTH, "server": server, "stop": {"arrivals": 30}}
    result = calibrated(tmp_path, simulated_log(load_scenario_dict(truth, tmp_path)), truth)
    assert result.lateness is None
    assert [each.name for each in result.predictions] == [
        "duration of a round (s)",
        "total time (s)",
    ]


@pytest.mark.parametrize("is_offline", [True, False])
@few_simulations()
def test_dispatches_that_the_cross_validation_lacks_are_flagged(
    tmp_path: Path, is_offline: bool
) -> None:
    """The log has both clients in all rounds, but one of them is offline after the first second."""
    world = _named_world(tmp_path)
    online_bundle([(0, 1e5)], [(0, 1e5)], [(0, 1 if is_offline else 1e5)]).write(tmp_path / "seen")
    world["devices"]["availability"] = {"name": "trace", "trace": str(tmp_path / "seen")}
    world["server"]["schedule"]["deadline"] = "100s"
    result = calibrated(tmp_path, _named_log(("d1", 2.0), ("d2", 3.0), rounds=10), world)
    small = "only 2 rounds with completed dispatches of 2 of 3 clients"
    assert any(small in flag for flag in result.flags)
    flags = [flag for flag in result.flags if "cross-validation lack" in flag]
    # In the rounds after the first two, every second dispatch is missing.
    said = "The simulations of the cross-validation lack 50.0% of the log's dispatches, because"
    assert [flag[: len(said)] for flag in flags] == ([said] if is_offline else [])


@few_simulations()
def test_only_total_times(tmp_path: Path, log: pd.DataFrame) -> None:
    log[["client", "start_s", "end_s", "round"]].to_parquet(tmp_path / "log.parquet")
    result = calibrate(tmp_path / "log.parquet", tmp_path / "bundle")
    assert any("cannot be separated" in flag for flag in result.flags)
    assert set(TraceBundle.read(tmp_path / "bundle").tables) == {"devices", "compute"}
    done = log.dropna(subset="end_s")
    totals = (done["end_s"] - done["start_s"]).groupby(done["client"]).mean()
    for name, step_s in zip(result.estimates.clients, result.estimates.step_s.mean, strict=True):
        if name in totals:
            assert step_s == pytest.approx(totals[name])
    known = calibrate(
        tmp_path / "log.parquet", tmp_path / "known", load_scenario_dict(TRUTH, tmp_path)
    )
    assert known.estimates.step_s.mean.mean() * 20 < result.estimates.step_s.mean.mean()


@few_simulations(10)
def test_the_time_of_the_server_between_rounds_is_estimated(tmp_path: Path) -> None:
    slow = {**TRUTH, "server": {**TRUTH["server"], "aggregation_time": "21s"}}
    slow["server"]["schedule"] = {"name": "sync"}
    log = simulated_log(load_scenario_dict(slow, tmp_path))
    # The scenario does not know that the server takes this time.
    stated = {**slow, "server": {**slow["server"], "aggregation_time": "0s"}}
    result = calibrated(tmp_path, log, stated)
    assert result.estimates.rounds.gap_s == pytest.approx(21.0)
    assert result.estimates.rounds.gap_error_s == pytest.approx(0.0, abs=1e-6)
    assert result.scenario is not None
    assert result.scenario["server"]["aggregation_time"] == pytest.approx(21.0)
    (flag,) = (flag for flag in result.flags if "server.aggregation_time" in flag)
    assert flag.startswith("21 s pass between")
    total = next(each for each in result.predictions if each.name == "total time (s)")
    assert total.coverage == 1.0
    # Without the server's time, the total would be short by 21 s per round.
    assert total.low[0] > 21.0 * len(result.predictions[0].logged)
    # A scenario that knows it needs no flag.
    known = calibrated(tmp_path, log, slow)
    assert not [flag for flag in known.flags if "server.aggregation_time" in flag]


@few_simulations()
@pytest.mark.parametrize("factor", [1.05, 40])
def test_transfers_of_another_size_are_flagged(
    tmp_path: Path, log: pd.DataFrame, factor: float
) -> None:
    sizes = {f"bytes_{way}": log[f"bytes_{way}"] * factor for way in ("down", "up")}
    result = calibrated(tmp_path, log.assign(**sizes), TRUTH)
    flags = [flag for flag in result.flags if "in the scenario" in flag and "task.size" in flag]
    assert len(flags) == (factor > 2)
    if flags:
        assert "40 MB down, 1 MB in the scenario" in flags[0]


@few_simulations()
def test_links_that_leave_no_time_for_local_steps(tmp_path: Path, log: pd.DataFrame) -> None:
    """Transfers of 5 s are longer than some dispatches, those of 16 s longer than most."""
    totals = log[["client", "start_s", "end_s", "round"]]

    def flags(rate: str) -> tuple[str, ...]:
        devices = {**TRUTH["devices"], "network": {"name": "static", "down": rate, "up": rate}}
        return calibrated(tmp_path, totals, {**TRUTH, "devices": devices}).flags

    share = ((log["end_s"] - log["start_s"]).dropna() <= 5.0).mean()
    (flag,) = (flag for flag in flags("3.2Mbps") if "no time is left" in flag)
    assert f"{share:.1%} of the log's dispatches" in flag
    with pytest.raises(UserError, match=r"no time is left(?s:.*)Correct devices\.network"):
        flags("1Mbps")


def test_the_command_writes_bundle_page_and_scenario(folder: Path) -> None:
    (folder / "truth.json").write_text(json.dumps(TRUTH))
    arguments = ["calibrate", str(folder / "log.csv"), "--scenario", str(folder / "truth.json")]
    with few_simulations(10):
        result = CliRunner().invoke(cli, [*arguments, "-o", str(folder / "out"), "--json"])
        said = CliRunner().invoke(cli, [*arguments, "-o", str(folder / "out"), "--force"]).stdout
    document = json.loads(result.stdout)
    assert "The 90% band for the duration of a round (s) covers " in said
    assert " lies within its 90% band, " in said
    assert document["coverage"]["total time (s)"] == 1
    assert document["lateness"]["right"] > document["lateness"]["commonest"]
    assert 0 < document["variation"]["step_s"]["relative_error"] < 0.1
    assert document["medians"]["down_bps"]["error"] > 0
    assert document["devices"][0]["up_relative_error"] > 0
    assert (folder / "out" / "manifest.json").exists()
    page = (folder / "out.html").read_text()
    assert all(f"<td>{share:.0%}</td>" in page or f">{share:.0%}<" in page for share in QUANTILES)
    assert page.count('"series":[{"key":"logged"') == 4 + 2, "distributions and bands"
    check = CliRunner().invoke(cli, ["scenario", "check", str(folder / "out.yaml")])
    assert check.exception is None or check.exit_code == 0


def test_the_calibrated_scenario_can_be_moved_with_its_files(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "own.py").write_text(
        "from fedsim.methods.fedavg import FedAvg\nclass Own(FedAvg): ...\n"
    )
    scenario = project / "small.yaml"
    scenario.write_text(
        "task: {name: timing, clients: 3}\n"
        "devices: {trace: builtin:phones_week, compute: {name: values, step: 1s}, availability: always}\n"
        "server: {method: own.py:Own}\nstop: {rounds: 2}\n"
    )
    fedsim.run(scenario, project / "log")
    arguments = ["calibrate", str(project / "log"), "-o", str(project / "runs" / "phones")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert "A scenario that names this bundle needs devices.availability: always." in result.output
    moved = tmp_path / "moved"
    project.rename(moved)
    written = (moved / "runs" / "phones.yaml").read_text()
    assert str(tmp_path) not in written
    loaded = load_scenario(moved / "runs" / "phones.yaml")
    assert loaded.scenario.name == "small-calibrated"
    assert "name: ../own.py:Own\n" in written
    assert written.count("trace: phones\n") == 2
    assert "trace: builtin:phones_week\n" in written
    assert (
        CliRunner()
        .invoke(cli, ["scenario", "check", str(moved / "runs" / "phones.yaml")])
        .exit_code
        == 0
    )


def test_a_trained_run_whose_scenario_has_a_target(tmp_path: Path) -> None:
    """Time alone is simulated, until the log ends; the scenario that is written keeps the target."""
    path = tmp_path / "run"
    run = fedsim.run("quickstart", path, overrides=["stop={target: {accuracy: 0.9}, rounds: 3}"])
    result = calibrate(path, tmp_path / "bundle", load_scenario(run.folder.scenario))
    assert result.scenario is not None
    assert result.scenario["stop"]["target"] == {"accuracy": 0.9}
    assert result.distributions["dispatch to arrival (s)"][1]


@few_simulations()
def test_a_log_that_begins_long_after_the_scenario(tmp_path: Path) -> None:
    """All clients are offline for two hours: the simulation lasts as long as the log after its first dispatch."""
    hours = [(7200.0, 1e6)]
    online_bundle(*[hours] * 4).write(tmp_path / "late")
    scenario = {
        "task": {
            "dataset": {"name": "digits"},
            "partition": {"name": "iid", "clients": 4},
            "model": {"name": "logistic_regression"},
        },
        "devices": {
            "compute": {"name": "lognormal", "median": "1s"},
            "network": {"name": "static", "down": "8Mbps", "up": "8Mbps"},
            "availability": {"name": "trace", "trace": str(tmp_path / "late")},
        },
        "server": {"method": "fedbuff", "schedule": {"name": "buffered", "buffer_size": 2}},
        "stop": {"rounds": 20, "target": {"accuracy": 0.999}},
    }
    run = fedsim.run(scenario, tmp_path / "run")
    result = calibrate(run.path, tmp_path / "bundle", load_scenario(run.folder.scenario))
    assert not [flag for flag in result.flags if "has only" in flag]
    assert len(result.distributions["dispatch to arrival (s)"][1]) > 0.8 * len(run.dispatches)


def test_power_and_memory_are_those_of_the_devices(tmp_path: Path) -> None:
    """The bundle has the kinds and the memory of the scenario's trace, so that both apply to the same clients."""
    watts = "{compute_w: 5, download_w: 1, upload_w: 1}"
    overrides = [f"devices.energy.classes={{phone: {watts}}}", "stop={rounds: 3}"]
    run = fedsim.run("quickstart", tmp_path / "run", overrides=overrides)
    logged = load_scenario(run.folder.scenario)
    result = calibrate(run.path, tmp_path / "bundle", logged)
    assert result.scenario is not None
    before, after = (
        build(loaded, timing_only=True)
        for loaded in (logged, load_scenario_dict(result.scenario, tmp_path))
    )
    assert list(result.scenario["devices"]["energy"]["classes"]) == ["phone"]
    phone = before.population.power.of_client == 1
    assert phone.sum() > 0
    assert (after.population.power.of_client == before.population.power.of_client).all()
    memory = before.devices.memory_in_trace()
    assert memory is not None
    np.testing.assert_array_equal(after.devices.memory_in_trace(), memory)


@pytest.mark.parametrize("assign", ["sample", "by_name"])
@few_simulations()
def test_estimates_belong_to_clients_and_availability_to_their_devices(
    assign: str, tmp_path: Path
) -> None:
    """Clients on devices in another order: each has its own step time, and is online as its device is."""
    online = [[(0, 1e5)], [(0, 2e5)], [(0, 3e5)], [(0, 4e5)]]
    online_bundle(*online).write(tmp_path / "devices")
    names = ["d2", "d0", "d3", "d1"]
    (tmp_path / "rows.csv").write_text(
        "owner,x,y\n" + "".join(f"{name},{row},{row % 2}\n" for row in range(8) for name in names)
    )
    logged = load_scenario_dict(
        {
            "name": "paired",
            "task": {
                "dataset": {"name": "table", "path": "rows.csv", "target": "y", "group": "owner"},
                "partition": "natural",
                "model": "logistic_regression",
            },
            "devices": {
                "trace": str(tmp_path / "devices"),
                "assign": assign,
                "compute": {"name": "values", "step": ["1s", "2s", "3s", "4s"]},
                "network": {"name": "static", "latency": 0, "down": "8Mbps", "up": "8Mbps"},
            },
            "server": {"selection": {"name": "uniform", "cohort": 4}},
            "stop": {"rounds": 5},
        },
        tmp_path,
    )
    log = simulated_log(logged)
    log.to_csv(tmp_path / "log.csv", index=False)
    result = calibrate(tmp_path / "log.csv", tmp_path / "bundle", logged)
    assert result.scenario is not None
    before, after = (
        build(loaded, timing_only=True).population
        for loaded in (logged, load_scenario_dict(result.scenario, tmp_path))
    )
    assert after.compute.step_s == pytest.approx([1.0, 2.0, 3.0, 4.0])
    last_ns = [
        [population.availability.online_until(client, 0) for client in range(4)]
        for population in (before, after)
    ]
    assert last_ns[1] == last_ns[0]
    assert len(set(last_ns[0])) > 1


def _named_world(folder: Path) -> dict[str, Any]:
    """Devices d0, d1 and d2 of a trace, with steps of 1, 2 and 3 s."""
    online_bundle(*[[(0, 1e5)]] * 3).write(folder / "devices")
    devices = {
        "trace": str(folder / "devices"),
        "compute": {"name": "values", "step": ["1s", "2s", "3s"]},
        "network": {"name": "static", "latency": 0, "down": "8Mbps", "up": "8Mbps"},
        "availability": {"name": "always"},
    }
    return {
        "name": "named",
        "task": {"name": "timing", "clients": 3, "size": "1MB"},
        "training": {"local_steps": 4},
        "devices": devices,
        "server": {"selection": {"name": "uniform", "cohort": 2}, "schedule": {"name": "sync"}},
        "stop": {"rounds": 4},
    }


def _named_log(*steps: tuple[str, float], rounds: int = 4) -> str:
    """Rounds of clients with these step times; 1 s of download and of upload."""
    rows = ["client,start,downloaded,computed,end,steps,bytes_down,bytes_up,round"]
    for number in range(rounds):
        start = 100 * number
        for name, step_s in steps:
            computed = start + 1 + 4 * step_s
            sizes = "4,1000000,1000000"
            rows.append(f"{name},{start},{start + 1},{computed},{computed + 1},{sizes},{number}")
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    ("names", "clients", "flagged"),
    [
        (("d2", "d1"), ("d0", "d1", "d2"), None),
        (("ph2", "ph1"), ("ph1", "ph2", "unseen-0"), "ph1 and ph2"),
        # One name of a device does not make the other one known.
        (("d2", "ph1"), ("d2", "ph1", "unseen-0"), "ph1"),
    ],
    ids=["devices", "unknown", "one unknown"],
)
def test_clients_are_paired_by_number_or_device(
    names: tuple[str, str], clients: tuple[str, ...], flagged: str | None, tmp_path: Path
) -> None:
    """The log is of the clients 2 (3 s per step) and 1 (2 s); client 0 is not in it."""
    log = _named_log((names[0], 3.0), (names[1], 2.0))
    result = calibrated(tmp_path, log, _named_world(tmp_path))
    assert result.estimates.clients == clients
    step_s = dict(zip(clients, result.estimates.step_s.mean, strict=True))
    assert [step_s[name] for name in names] == pytest.approx([3.0, 2.0])
    flags = [flag for flag in result.flags if "names that the scenario does not" in flag]
    assert len(flags) == (flagged is not None)
    assert flagged is None or f"({flagged}): they are paired with" in flags[0]


def _several_runs() -> pd.DataFrame:
    later = LOG.assign(**{name: LOG[name] + 1000 for name in TIMES})
    return pd.concat([LOG, later])


def _throttled() -> pd.DataFrame:
    """Local steps that take 5% longer from round to round."""
    more = (LOG["computed"] - LOG["downloaded"]) * 0.05 * LOG["round"]
    return LOG.assign(computed=LOG["computed"] + more, end=LOG["end"] + more)


def test_a_trend_is_not_longer_than_a_client_was_seen(tmp_path: Path) -> None:
    """Half of the clients work two hours later, the others not any more."""
    log = _throttled()
    later = 7200 * (log["client"].rank(method="dense") % 2)
    apart = log.assign(**{name: log[name] + later for name in TIMES})
    for index, each in enumerate((log, apart)):
        (tmp_path / str(index)).mkdir()
        flags = " ".join(calibrated(tmp_path / str(index), each).flags)
        grown = re.search(r"Step times grow by ([\d.]+)%", flags)
        assert grown is not None
        assert float(grown[1]) < 100, "ten rounds of 5% each"


def _overlapping() -> pd.DataFrame:
    return LOG.assign(**{name: LOG[name] - 8 * LOG["round"] for name in TIMES})


def _paused() -> pd.DataFrame:
    return LOG.assign(**{name: LOG[name] + 30_000 * (LOG["round"] > 4) for name in TIMES})


DOUBTS = {
    "several runs": (_several_runs, "Round 0 begins again 16 min 40 s after"),
    "throttling": (_throttled, "Step times grow by "),
    "overlapping rounds": (_overlapping, "In 7 rounds, the next one begins before"),
    "a pause": (_paused, "pass after round 4, far more than after the others"),
}


@pytest.mark.parametrize(("make", "said"), DOUBTS.values(), ids=DOUBTS)
def test_a_doubtful_log_has_a_flag(
    make: Callable[[], pd.DataFrame], said: str, tmp_path: Path
) -> None:
    result = calibrated(tmp_path, make())
    sound = calibrated(tmp_path, LOG)
    starts = [text for _, text in DOUBTS.values()]
    assert [text for text in starts if any(text in flag for flag in result.flags)] == [said]
    assert not [text for text in starts if any(text in flag for flag in sound.flags)]


def test_a_pause_is_no_time_between_rounds(tmp_path: Path) -> None:
    rounds = calibrated(tmp_path, _paused()).estimates.rounds
    assert rounds.gap_s == pytest.approx(5.011, abs=2e-3)
    assert rounds.gap_error_s < 0.01
    assert rounds.pause == pytest.approx((4, 30_005.011), abs=0.01)
