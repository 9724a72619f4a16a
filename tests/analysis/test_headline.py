"""The sentence at the head of a run's page."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedsim
from fedsim.analysis.figures.learning import late_rise
from fedsim.analysis.figures.time import waiting
from fedsim.analysis.headline import explanation, headline, notice, tiles
from fedsim.analysis.report import render
from fedsim.analysis.run import Run, load_run
from fedsim.composition.what_if import what_if
from fedsim.runs.folder import Status
from fedsim.scenario.overrides import Override
from fedsim.vocabulary.formatting import format_bytes, format_command, format_duration, format_share
from tests.analysis.documents import columns, embedded
from tests.analysis.figures.test_time import three_clients
from tests.composition.worlds import digits
from tests.runs.synthetic_runs import build_run


def test_headline_says_when_the_target_was_reached(run: Run) -> None:
    first = run.metrics.loc[run.metrics["accuracy"] >= 0.8, "time_s"].min()
    assert headline(run) == f"80% accuracy after {format_duration(first)}"
    page = render(run)
    assert f'<h1 id="headline">{headline(run)}</h1>' in page
    assert notice(run) == ""
    values = {tile.label: tile for tile in tiles(run)}
    assert values["Final accuracy"].value == format_share(run.metrics["accuracy"].iloc[-1])
    assert values["Dispatches"].value == f"{len(run.dispatches):,}"
    assert values["Wall time"].note == "6.2 s in the learning plane"
    moved = run.dispatches[["bytes_down", "bytes_up"]].to_numpy().sum()
    assert values["Data moved"].value == format_bytes(moved)


def test_the_client_that_set_the_pace_is_named(tmp_path: Path) -> None:
    """Rounds of 8 s until the slowest of three clients has answered; without it, the next one needs 4 s."""
    run = fedsim.run(
        {
            "task": {"name": "quadratic", "centers": [1.0, 2.0, 3.0]},
            "training": {"local_steps": 2, "dtype": "float64", "device": "cpu"},
            "devices": {
                "compute": {"name": "values", "step": [1.0, 3.0, 0.5]},
                "network": {"name": "static", "latency": "0s", "down": "64bps", "up": "64bps"},
            },
            "stop": {"rounds": 5},
        },
        tmp_path / "run",
    )
    first, second = explanation(run, waiting(run))
    assert first == (
        "Of the 40 s until the last server update, 75.0% went to: local steps, most of it by client 1, which set the "
        "pace of all 5 rounds."
    )
    assert "Leaving out client 1 would help most: about 50% less time" in second
    without, _ = what_if(run, without="1", output=tmp_path / "without")
    assert without.simulated_s == run.simulated_s / 2


def test_leaving_out_a_client_is_not_first_if_another_change_saves_far_more(tmp_path: Path) -> None:
    run = fedsim.run(three_clients("2.3s", 3, {"name": "sync"}, {"rounds": 5}), tmp_path / "run")
    figure = waiting(run)
    assert figure
    changes = [change["change"] for change in figure.extra["changes"]]
    assert changes == ["devices twice as fast", "leaving out client 2"]
    assert "Devices twice as fast would help most: about 48%" in explanation(run, figure)[1]


def test_rounds_of_edge_servers_have_a_measure(tmp_path: Path) -> None:
    run = fedsim.run("edge_servers", tmp_path / "run", overrides=["stop={rounds: 2}"])
    figure = waiting(run)
    assert "Devices twice as fast may help most: at most " in explanation(run, figure)[-1]
    share = figure.extra["changes"][0]["share"] if figure else 0.0
    twice = Override("devices.compute.speed_factor", "2x", "-s")
    faster, _ = what_if(run, [twice], output=tmp_path / "faster")
    assert faster.simulated_s == pytest.approx(run.simulated_s * (1 - share), rel=0.02)
    assert faster.simulated_s >= run.simulated_s * (1 - share) - 1e-6


def test_a_setting_with_a_warning_is_not_advised(tmp_path: Path) -> None:
    schedule = {"name": "sync", "deadline": "10s"}
    run = fedsim.run(three_clients("20s", 3, schedule, {"rounds": 5}), tmp_path / "run")
    assert run.info["notes"][0].startswith("server.schedule.deadline: at nominal speed")
    assert len(explanation(run, waiting(run))) == 1
    run.info["notes"] = []
    assert "Halving the deadline" in explanation(run, waiting(run))[1]


def test_a_configured_pause_is_called_so(tmp_path: Path) -> None:
    world = digits(server={"schedule": {"name": "sync", "pause": "1h"}}, stop={"rounds": 3})
    run = fedsim.run(world, tmp_path / "run")
    assert "% was the configured pause of 1 h between rounds." in explanation(run, waiting(run))[0]


def test_time_after_the_last_update_and_transfers_together_are_in_the_head(tmp_path: Path) -> None:
    """Rounds of 2 + 3 + 2 s, of which no third ends in 20 s."""
    devices = {
        "compute": {"name": "values", "step": ["3s"]},
        "network": {"name": "static", "latency": "0s", "down": "32bps", "up": "32bps"},
    }
    task = {"name": "quadratic", "centers": [1.0]}
    training = {"local_steps": 1, "dtype": "float64"}
    scenario = {"task": task, "training": training, "devices": devices}
    run = fedsim.run({**scenario, "stop": {"simulated_time": "20s"}}, tmp_path / "run")
    first = explanation(run, waiting(run))[0]
    assert first.startswith(
        "Of the 14 s until the last server update, 57.1% went to: download and upload"
    )
    assert first.endswith(" No update came in the 6 s after it.")


def test_a_rise_in_the_last_hour_is_called_so(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=10, hours=24)
    earlier = [*np.linspace(0.4, 0.5, 16), 0.78, 0.785, 0.79, 0.8]  # It rose hours before.
    gradual = np.linspace(0.5, 0.9, 20)
    for values, rises in (([0.5] * 19 + [0.9], True), (gradual, False), (earlier, False)):
        times_s = np.arange(1, 21) * 3600.0
        run.metrics = pd.DataFrame(
            {"time_s": times_s, "version": range(20), "round": 1, "accuracy": values}
        )
        assert bool(late_rise(run)) == rises


def test_headline_of_other_runs(tmp_path: Path) -> None:
    short = build_run(tmp_path / "short", clients=10, hours=0.5)
    assert "80% accuracy was not reached in 30 min; the best was" in headline(short)
    short.folder.update_info(status="interrupted", resumed=2)
    halted = load_run(short.path)
    assert "was not reached so far, in 30 min" in headline(halted)
    assert notice(halted).endswith(
        f" Finish the run with “{format_command('resume', short.path)}”."
    )
    values = {tile.label: tile for tile in tiles(halted)}
    assert values["Accuracy so far"].note.startswith("interrupted at 30 min; ")
    assert values["Wall time"].note.endswith("in total, resumed 2 times")
    short.folder.scenario.write_text("name: no-target\n")
    short.folder.close(Status.COMPLETE)
    assert headline(load_run(short.path)).endswith("accuracy after 0 s")
    timing = build_run(tmp_path / "timing", clients=10, hours=2, learning=False)
    assert headline(timing) == f"{len(timing.aggregations)} server updates in 2 h"
    assert "timing-only" in render(timing)
    assert "learning" not in embedded(render(timing))
    timing.folder.update_info(timing_only=False)
    assert "The run recorded no metric" in render(load_run(timing.path)), "an app's own loop"
    timing.folder.update_info(status="running")
    young = render(load_run(timing.path))
    assert "timing-only" not in young, "a run that learns, before its first evaluation"
    assert "No evaluation of the model has reached the disk yet" in young


def test_the_metric_of_the_target_is_the_main_one(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=10, hours=24)
    text = run.folder.scenario.read_text().replace("target: {accuracy: 0.8}", "target: {loss: 1.5}")
    run.folder.scenario.write_text(text)
    run.folder.close(Status.COMPLETE)
    run = load_run(run.path)
    assert headline(run).startswith("Loss of 1.5 after ")
    assert "Final loss" in {tile.label for tile in tiles(run)}
    page = render(run)
    data = embedded(page)
    assert data["learning"]["metrics"] == ["loss", "accuracy"]
    shown = columns(data, "targets")
    assert shown["level"][data["targets"]["stated"]] == 1.5
    assert (
        "The scenario's target is labeled" in page or "The scenario&#39;s target is labeled" in page
    )
    run.folder.scenario.write_text(text.replace("target: {loss: 1.5}", "target: {}"))
    run.folder.close(Status.COMPLETE)
    assert "target is labeled" not in render(load_run(run.path))


@pytest.mark.parametrize(
    ("method", "metric"), [("fedper", "client accuracy"), ("fedavg", "accuracy")]
)
def test_personal_models_come_first(method: str, metric: str, tmp_path: Path) -> None:
    world = digits(server={"method": method}, stop={"rounds": 1})
    world["task"]["partition"]["test"] = "split"
    run = fedsim.run(world, tmp_path / "run")
    assert re.search(rf"% {metric} after ", headline(run))
    labels = [tile.label for tile in tiles(run)]
    first = ["Simulated time", "Clients that contributed", "Work lost", "Data moved"]
    assert labels[:5] == [*first, f"Final {metric}"]


def test_warnings_of_a_run_are_sentences(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=10, hours=0.5)
    run.folder.update_info(notes=["2 of 10 are late", "3 of 10 have no battery."])
    assert notice(load_run(run.path)) == "2 of 10 are late. 3 of 10 have no battery."
    run.folder.update_info(notes=["no client is online"])
    assert notice(load_run(run.path)) == "No client is online."
