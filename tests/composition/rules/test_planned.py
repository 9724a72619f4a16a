"""Every rule on a scenario, with a scenario that triggers it and one that does not, and where its bounds lie."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fedsim
from fedsim.api import read_scenario
from fedsim.composition.build import check_scenario as check
from fedsim.composition.rules.planned import PLANNED
from fedsim.scenario.loading import LoadedScenario
from fedsim.traces.bundle import TraceBundle
from tests.cli.invoking import invoke
from tests.composition import worlds
from tests.composition.worlds import JITTERY, sync, timed
from tests.devices.worlds import phones
from tests.lines import rows
from tests.simulation.harness import online_bundle

World = str | dict[str, Any] | Callable[[Path], dict[str, Any]]
"""A scenario, or settings of three clients."""

LINKS = {"down": "8Mbps", "up": "4Mbps"}
STATIC = {"name": "static", **LINKS}
PHONES = {"name": "trace", "trace": "builtin:phones_week"}
RATES = {"network": {"direction": ["both"] * 4, "bandwidth_bps": [1e6] * 4, "rtt_s": [0.08] * 4}}
FAST = {"network": {**RATES["network"], "bandwidth_bps": [6.5e9] * 4}}
SLOW = {"compute": {"task": ["*"] * 4, "phase": ["training"] * 4, "sample_s": [1e5] * 4}}
STEPS = {"task": ["*"] * 4, "phase": ["training"] * 4, "sample_s": [0.01] * 4}


def on_phones(compute: Any = "1s", **devices: Any) -> dict[str, Any]:
    """A method on phones of which a tenth is online on average."""
    links = {"compute": {"name": "values", "step": compute}, "network": STATIC}
    task = {"name": "timing", "clients": 40, "parameters": 10}
    return timed(task=task, devices={**links, **devices}, stop={"simulated_time": "1h"})


def of_table(folder: Path, **changes: Any) -> dict[str, Any]:
    """A table of 20 samples on two clients, with these arrays or sections changed."""
    arrays = {"x": np.ones((20, 3)), "y": np.arange(20) % 2, "group": ["d1", "d3"] * 10}
    sections = {
        key: changes.pop(key)
        for key in ("devices", "server", "evaluation", "stop")
        if key in changes
    }
    partition = changes.pop("partition", {"name": "iid", "clients": 2, "test": "split"})
    np.savez(folder / "own.npz", **{**arrays, **changes})
    return {
        "task": {
            "dataset": {"name": "npz", "path": str(folder / "own.npz")},
            "partition": partition,
            "model": "logistic_regression",
        },
        "devices": {"compute": {"name": "values", "step": "1s"}, "network": STATIC},
        "stop": {"rounds": 2},
        **sections,
    }


def of_named_phones(folder: Path, **devices: Any) -> dict[str, Any]:
    """Clients with the names of phones."""
    steps = {"name": "values", "step": "1s"}
    devices |= {"trace": phones(folder), "compute": steps, "network": STATIC}
    return of_table(folder, partition="natural", devices=devices)


def traced(folder: Path, tables: dict[str, Any], **devices: Any) -> dict[str, Any]:
    """Three clients on phones whose trace has these tables."""
    return timed(devices={"trace": phones(folder, **tables), **devices})


def of_marked_devices(folder: Path, valid: list[bool]) -> dict[str, Any]:
    bundle = online_bundle([(0.0, 86_400.0)], [], [])
    index = bundle.devices.column_names.index("valid")
    devices = bundle.devices.set_column(index, "valid", pa.array(valid))
    TraceBundle(bundle.manifest, {**bundle.tables, "devices": devices}).write(folder / "trace")
    return timed(devices={"trace": str(folder / "trace")})


ONE_DAY = {"simulated_time": "1d"}


def of_days(
    folder: Path, window_h: int, start: str = "2025-03-03T00:00", zone: str = "Z", **changes: Any
) -> dict[str, Any]:
    """One device that is observed for these hours; if its zone is known, time 0 is midnight."""
    start = np.datetime64(start)
    (folder / "days.csv").write_text(
        f"device,start,end\na,{start}{zone},{start + np.timedelta64(window_h, 'h')}{zone}\n"
    )
    bundle = str(folder / "days")
    done = invoke("traces", "import", "table", folder / "days.csv", "-o", bundle)
    assert done.exit_code == 0, done.output
    compute = {**JITTERY["compute"], "step": "1s"}
    task = {"name": "timing", "clients": 1, "parameters": 250_000}
    devices = {"trace": bundle, "compute": compute}
    return timed(devices=devices, task=task, server=sync(pause="3h"), **changes)


def of_topology(capacity: str, latency: str) -> dict[str, Any]:
    """A core node with three sites behind the server's link of this capacity and latency."""
    levels = {"capacity": [capacity, "1Gbps"], "latency": [latency, "5ms"]}
    topology = {"name": "tree", "fan_out": [1, 3], **levels}
    return timed(devices={"network": {"name": "shared", "topology": topology, **LINKS}})


def stopping_at(folder: Path, declaration: str) -> dict[str, Any]:
    (folder / "own.py").write_text(f"def brier(outputs, labels): return 0.5\n{declaration}\n")
    return of_table(
        folder,
        evaluation={"metrics": [f"{folder}/own.py:brier"]},
        stop={"rounds": 2, "target": {"brier": 0.2}},
    ) | {
        "task": {"dataset": "digits", "partition": {"name": "iid", "clients": 2}, "model": "linear"}
    }


def quadratic(evaluation: dict[str, Any], stop: dict[str, Any]) -> dict[str, Any]:
    task = {"name": "quadratic", "centers": [[0.0], [1.0], [2.0]]}
    return timed(task=task, evaluation=evaluation, stop=stop)


def personal(partition: dict[str, Any]) -> dict[str, Any]:
    task = {
        "dataset": "digits",
        "partition": {"name": "iid", "clients": 3, **partition},
        "model": {"name": "mlp", "hidden": [8]},
    }
    return timed(task=task, server={"method": "fedper"})


SETTINGS = r"""
unusual-schedule | server={method: fedprox, schedule: async} | server={method: fedprox, schedule: sync}
unused-setting | server.schedule.grace=5 | server.schedule={grace: 5, quorum: 2}
plain-fedavg | server.method=fedlga | server={method: fedlga, schedule: {deadline: 50}, partial_work: send}
large-cohort | server.selection.cohort=2 & server.schedule.over_selection=2 | server.selection.cohort=2
slow-clients | server.schedule.deadline=13.1 | server.schedule.deadline=43.1
frequent-crashes | devices.failures.crash_rate=1e3 | devices.failures.crash_rate=0.6e3
short-run | stop={simulated_time: 23.09} | stop={simulated_time: 23.1}
long-latency | devices.network.latency=40 | devices.network.latency=5s
fast-links | devices.network.down=160Gbps | devices.network.down=20Gbps
slow-links | devices.network.up=5 | devices.network={name: static, down: 1kbps, up: 1kbps}
high-power | devices.energy.compute_w=2500 | devices.energy.compute_w=1000
"""
"""Rules, and settings of three clients that trigger them and do not.

exp(-1e3 x 20 / 3600) is above 1 in 1,000; exp(-1e3 x 40 / 3600) is below. 23.1 s is the time of the middle client.
Dispatches of 1.05 s at 0.8 W, 10, 20 or 40 s at 2.5 W and 2.05 s at 1.2 W need 28.3, 53.3 and 103.3 J.
"""

EXAMPLES: dict[str, tuple[World, World]] = {
    **{rule: (triggers, passes) for rule, triggers, passes in rows(SETTINGS)},
    "small-battery": (
        "devices.energy={battery_j: 53.2, battery_floor: 0.54}",
        "devices.energy={battery_j: 103.4, battery_floor: 0.9999}",
    ),
    "low-battery-floor": (
        "devices.energy={battery_j: 120, battery_floor: 0.5}",
        "devices.energy={battery_j: 120, battery_floor: 0.862}",
    ),
    "unmatched-names": (
        lambda folder: of_named_phones(folder),
        lambda folder: of_named_phones(folder, assign="by_name"),
    ),
    "unused-latency": (
        lambda folder: traced(folder, RATES, network={"name": "static"}),
        lambda folder: traced(folder, RATES, network={"name": "static", "latency": "bundle"}),
    ),
    "implausible-times": (
        lambda folder: of_days(folder, 24 * 400, stop={"simulated_time": "1d"}),
        lambda folder: of_days(folder, 24 * 7, stop={"simulated_time": "1d"}),
    ),
    "implausible-rates": (
        lambda folder: traced(folder, FAST, network={"name": "static"}),
        lambda folder: traced(folder, FAST, network={"name": "static", "down": "6Mbps"}),
    ),
    "invalid-devices": (
        lambda folder: of_marked_devices(folder, [True, False, False]),
        lambda folder: of_marked_devices(folder, [True, True, True]),
    ),
    "doubtful-task": (lambda folder: of_table(folder, y=np.arange(20) % 2 + 1), of_table),
    "nothing-measured": (lambda folder: of_table(folder, is_test=np.zeros(20)), of_table),
    "seldom-evaluated": (
        quadratic({"every": "2h"}, {"simulated_time": "1h"}),
        quadratic({"every": "2h"}, {"rounds": 5}),
    ),
    "undeclared-direction": (
        lambda folder: stopping_at(folder, ""),
        lambda folder: stopping_at(folder, "brier.higher_is_better = False"),
    ),
    "unmeasured-personal-models": (personal({}), personal({"test": "split"})),
    "absent-clients-weigh": (
        on_phones(availability=PHONES) | {"server": {"method": "fedcompass"}},
        on_phones(availability=PHONES) | {"server": {"method": "fedbuff"}},
    ),
    "drifting-hours": (
        lambda folder: of_days(folder, 7 * 24 + 10, stop={"simulated_time": "8d"}),
        lambda folder: of_days(folder, 7 * 24 + 10, stop={"simulated_time": "7d"}),
    ),
    "unobserved-time": (
        lambda folder: of_days(folder, 48, "2025-03-03T08:00", "+01:00", stop=ONE_DAY),
        lambda folder: of_days(folder, 48, stop=ONE_DAY),
    ),
}


def scenario_of(world: World, folder: Path) -> LoadedScenario:
    if isinstance(world, str):
        return read_scenario(timed(), world.split(" & "))
    return read_scenario(world(folder) if callable(world) else world)


def rules_of(world: World, folder: Path, *ignored: str) -> list[str | None]:
    return [each.rule for each in check(scenario_of(world, folder).ignoring(ignored))]


def test_every_rule_has_examples() -> None:
    assert EXAMPLES.keys() == PLANNED.checks.keys()


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_rule_applies_to_its_example_only_and_can_be_ignored(rule: str, tmp_path: Path) -> None:
    triggers, passes = EXAMPLES[rule]
    scenario = triggers(tmp_path) if callable(triggers) else triggers
    found = rules_of(scenario, tmp_path)
    others = [each for each in found if each != rule]
    assert len(found) > len(others)
    assert rules_of(scenario, tmp_path, rule) == others
    (tmp_path / "quiet").mkdir()
    assert rule not in rules_of(passes, tmp_path / "quiet")


WHOLE = {"cohort": None}
PARTIAL = {"local_steps": 2, "limited": {"share": 0.5}}


@pytest.mark.parametrize(
    ("method", "changes", "because"),
    [
        ({"name": "fedprox", "mu": 0}, {"server.schedule": "async"}, ""),
        ({"name": "fedavgm", "momentum": 0}, {}, "momentum is 0"),
        ("rescale", {}, "no client sends partial work"),
        ("rescale", {"training": PARTIAL}, ""),
        ("fednova", {}, "the same number of local steps"),
        ("fednova", {"training": PARTIAL}, ""),
        ("fedau", {"server.selection": WHOLE}, "all clients take part in every round"),
        ("fedvarp", {"server.selection": WHOLE}, "all clients take part in every round"),
        ("fedau", {"server.selection": WHOLE, "devices.failures.crash_rate": 1}, ""),
        ("fedau", {"server.selection": {"cohort": 2}}, ""),
    ],
)
def test_a_method_that_is_fedavg_says_why(method: Any, changes: World, because: str) -> None:
    scenario = read_scenario(timed(), {"server.method": method, **changes})
    said = [str(warning) for warning in check(scenario) if warning.rule == "plain-fedavg"]
    assert len(said) == bool(because)
    assert all(because in text for text in said)


@pytest.mark.parametrize(
    ("method", "is_fedavg"),
    [
        ({"name": "fedprox", "mu": 0}, True),
        ({"name": "fedprox", "mu": 1}, False),
        ({"name": "fedavgm", "momentum": 0}, True),
        ({"name": "diloco", "momentum": 0, "server_lr": 1}, True),
        ({"name": "delayed_nesterov", "momentum": 0, "server_lr": 1}, False),
        ({"name": "generalized_fedavg", "amplification": 1}, True),
        ("fedlga", True),
        ("rescale", True),
        ("fednova", True),
        ("mifa", True),
        ("fedvarp", True),
        ("fedau", True),
        ("fedawe", True),
        ({"name": "fedawe", "clip_norm": 0.01}, False),
        ("twice.py:TwiceAsFar", False),
    ],
)
def test_a_method_is_called_fedavg_if_and_only_if_its_models_are_those_of_fedavg(
    method: Any, is_fedavg: bool, tmp_path: Path
) -> None:
    """On clients with unequal numbers of samples."""

    def run(method: Any) -> fedsim.Run:
        scenario = worlds.quadratic([[0, 1, 2]] * 3)
        scenario["task"]["samples"] = [1, 5, 9]
        scenario["server"] = {"selection": WHOLE, "method": method}
        return fedsim.run(scenario, tmp_path / str(len(list(tmp_path.iterdir()))))

    (tmp_path / "twice.py").write_text(
        "from fedsim.methods.fedavg import FedNova\n"
        "class TwiceAsFar(FedNova):\n"
        "    def factors(self, updates):\n"
        "        return 2 * super().factors(updates)\n"
    )
    if method == "twice.py:TwiceAsFar":
        method = str(tmp_path / method)
    made = run(method)
    warnings = check(read_scenario(made.folder.path / "scenario.yaml"))
    said = [warning for warning in warnings if warning.rule == "plain-fedavg"]
    assert len(said) == is_fedavg
    given = made.scenario["server"]["method"].get("weights", "samples")
    uniform = "weights: uniform" in str(said and said[0])
    expected = run({"name": "fedavg", "weights": "uniform" if uniform else given})
    assert np.allclose(made.metrics["loss"], expected.metrics["loss"], rtol=1e-12) == is_fedavg


@pytest.mark.parametrize(
    ("scenario", "messages"),
    [
        ("server.schedule.deadline=43.0999", ["1 of 3 clients cannot finish a dispatch"]),
        # A draw may be shorter, so nothing is certain.
        (
            "server.schedule.deadline=13 & devices.compute.jitter.cv=0.1",
            ["3 of 3 clients cannot finish"],
        ),
        (
            "server={schedule: {deadline: 5}, partial_work: send}",
            ["2 of 3 clients cannot finish"],
        ),
        (
            "server={schedule: {over_selection: 2}, partial_work: send, foresight: true}",
            ["a round without a cohort selects all", "the schedule announces no deadline"],
        ),
        (
            "devices.energy.battery_floor=0.5 & devices.failures.upload_retries=1",
            [
                "it changes nothing: no upload is lost",
                "it changes nothing: devices have no battery",
            ],
        ),
        (
            EXAMPLES["small-battery"][0],
            ["for 2 of 3 clients, a full battery (53.2 J) does not last for a dispatch, which"],
        ),
        (
            EXAMPLES["low-battery-floor"][0],
            ["for 1 of 3 clients, a battery at its floor (60 J) does not last for a dispatch"],
        ),
        (
            of_topology("1000", "2"),
            [
                "2 of 8 links of the topology have a latency above 1 s, the first from server to n0",
                "2 of 8 links of the topology have less than 10 kbit/s, the first from server to n0",
            ],
        ),
        (
            lambda folder: traced(
                folder,
                FAST | SLOW,
                network={"name": "static", "latency": "bundle"},
                compute={"name": "trace"},
            ),
            ["the median rate is 6.5 Gbit/s", "the median sample time is"],
        ),
        (
            quadratic({"every_rounds": 6, "at_start": False}, {"rounds": 5}),
            ["evaluation.every_rounds: only the final model"],
        ),
    ],
)
def test_warnings_count_what_they_are_about(
    scenario: World, messages: list[str], tmp_path: Path
) -> None:
    warnings = check(scenario_of(scenario, tmp_path))
    assert len(warnings) == len(messages)
    for warning, message in zip(warnings, messages, strict=True):
        assert message in warning.message


@pytest.mark.parametrize(
    ("stop", "before", "after"),
    [({"rounds": 2}, 0, 0), ({"rounds": 100}, 0, 1), ({"simulated_time": "8d"}, 1, 1)],
)
def test_hours_drift_by_the_check_if_the_length_of_the_run_is_known_else_at_its_end(
    stop: dict[str, Any], before: int, after: int, tmp_path: Path
) -> None:
    """100 rounds with pauses of 3 hours take 12 days."""
    scenario = of_days(tmp_path, 7 * 24 + 10, stop=stop)
    assert rules_of(scenario, tmp_path).count("drifting-hours") == before
    notes = fedsim.run(scenario, tmp_path / "run").info.get("notes", [])
    assert sum("repeats every 7 d 10 h, which is not" in note for note in notes) == after


def test_unobserved_time_is_named_with_its_share_until_the_scenario_says_what_happens(
    tmp_path: Path,
) -> None:
    """Observed from 8:00 on: 8 of the first 24 hours are not."""
    scenario = of_days(tmp_path, 48, "2025-03-03T08:00", "+01:00", stop=ONE_DAY)
    (warning,) = [each for each in check(read_scenario(scenario)) if each.rule == "unobserved-time"]
    assert "33.3%" in warning.message
    for settings in ({"on_end": "unavailable"}, {"start": "8h"}):
        scenario["devices"]["availability"] = {"name": "trace", **settings}
        assert "unobserved-time" not in [each.rule for each in check(read_scenario(scenario))]
    # Without a given length, the end of the run shows it.
    scenario["devices"].pop("availability")
    short = {**scenario, "stop": {"rounds": 3}}
    assert "unobserved-time" not in [each.rule for each in check(read_scenario(short))]
    notes = fedsim.run(short, tmp_path / "run").info.get("notes", [])
    assert sum("was not observed" in note for note in notes) == 1


OWN = """
from fedsim.parts.component import Parameters
from fedsim.scheduling.base import Schedule


class Own(Schedule):
    'A schedule whose parameters have names of those of sync.'

    class Params(Parameters):
        grace: float | None = None
        over_selection: str = "all"

    def run(self):
        self.server.dispatch(0)
        self.server.aggregate([(yield)])
"""


def test_parameters_of_a_schedule_of_the_user_have_meanings_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    schedule = {"name": f"{tmp_path / 'own.py'}:Own"}
    assert "unused-setting" not in rules_of(timed(server={"schedule": schedule}), tmp_path)
