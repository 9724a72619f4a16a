"""The world of a run: what grows with the clients is built once, and what they can never do is refused with the fix."""

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.api import read_scenario
from fedsim.composition.build import build
from fedsim.composition.build import check_scenario as check
from fedsim.errors import UserError
from fedsim.runs.folder import Status
from fedsim.runs.tables import read_parquet
from fedsim.scenario.loading import load_scenario_dict
from fedsim.simulation.simulation import Simulation
from fedsim.traces.bundle import TraceBundle
from tests.composition.worlds import quadratic, sync, timed
from tests.lines import rows
from tests.simulation.harness import online_bundle


def test_what_grows_with_the_clients_is_built_once_and_not_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten million clients each time plane takes seconds to build, and so would each reading of their table."""
    built, read = [], []

    def counting_server(*args: Any, **more: Any) -> Simulation:
        built.append(args)
        return Simulation(*args, **more)

    def counting_read(path: Path) -> Any:
        read.append(path.name)
        return read_parquet(path)

    monkeypatch.setattr("fedsim.composition.planes.Simulation", counting_server)
    monkeypatch.setattr("fedsim.runs.run.read_parquet", counting_read)
    run = fedsim.run(quadratic([[0, 1]]), tmp_path / "run")
    assert run.status is Status.COMPLETE
    assert len(built) == 1
    assert "clients.parquet" not in read


@pytest.mark.parametrize(
    ("clock", "epoch", "availability", "time_of_day_s"),
    [
        ("local", None, {"start": "30h"}, 6 * 3600),
        ("utc", "2026-01-01T22:00:00+00:00", {"start": "3h", "shift": "days"}, 3600),
        ("local", None, {"shift": "any"}, None),
        ("device-relative", None, {}, None),
    ],
)
def test_the_time_of_day_is_that_of_the_clock_of_the_trace(
    tmp_path: Path,
    clock: str,
    epoch: str | None,
    availability: dict[str, Any],
    time_of_day_s: float | None,
) -> None:
    bundle = online_bundle(*[[(0, 1e6)]] * 3)
    manifest = bundle.manifest.model_copy(update={"clock": clock, "epoch": epoch})
    TraceBundle(manifest, bundle.tables).write(tmp_path / "bundle")
    scenario = quadratic([[0, 1]])
    trace = {"name": "trace", "trace": str(tmp_path / "bundle"), **availability}
    scenario["devices"]["availability"] = trace
    world = build(load_scenario_dict(scenario, tmp_path))
    assert world.devices.time_of_day_s == time_of_day_s


CROWD = {"compute": {"name": "values", "step": "1s"}, "network": timed()["devices"]["network"]}
CERTAIN = r"""
server.schedule.deadline=13 | no client can finish a dispatch within 13 s; the fastest needs 13.1 s\n  raise server.sch
server.schedule.deadline=13 | raise server.schedule.deadline to at least 13.1s for the fastest client, 43.1s for all, or
server.schedule={name: async, timeout: 1ns} | no client can finish
server.schedule={name: window, deadline: 13} | no client can finish
server={schedule: {deadline: 4}, partial_work: send} | no client can finish one local step within 4 s
server.schedule.over_selection=1e38 | over_selection.* 1000
server.selection.cohort=2000000000 | cohort.* 1000000000
server.schedule.min_cohort=4 | a round needs 4 clients, but there are 3
"""
OF_CROWD = r"""
server.schedule={name: async, concurrency: 4000} | 4,000 clients cannot be busy at once: there are only 3,000
devices.memory=1kB | none of the 3,000 clients .*: 3,000 have less memory than
server.schedule={name: buffered, buffer_size: 2000} | a version needs 2,000 updates, but the run ends after 1,000
server.selection.cohort=4000 | a cohort of 4,000 cannot be drawn from 3,000 clients
"""
"""What 3,000 equal clients cannot do, in a run that ends after 1,000 arrivals."""


@pytest.mark.parametrize(
    ("clients", "setting", "message"),
    [*((3, *row) for row in rows(CERTAIN)), *((3000, *row) for row in rows(OF_CROWD))],
)
def test_what_is_certain_is_refused(clients: int, setting: str, message: str) -> None:
    scenario = timed()
    if clients == 3000:
        task = {"name": "timing", "clients": clients, "parameters": 250_000}
        scenario = timed(task=task, devices=CROWD, stop={"arrivals": 1000})
    with pytest.raises(UserError, match=message):
        check(read_scenario(scenario, [setting]))


def test_a_time_budget_is_added_to_the_transfers() -> None:
    scenario = timed(training={"time_budget": 60}, server=sync(deadline=60))
    with pytest.raises(UserError, match=r"needs 1 min 3(.|\n)* to at least 63.1s, or give less"):
        check(read_scenario(scenario))
    size = "task={name: timing, clients: 3, size: 90TB}"
    with pytest.raises(UserError, match=r"\n  give less work, or faster clients"):
        check(read_scenario(scenario, [size, "devices.network.down=1kbps"]))


def test_a_start_after_all_sessions_is_named_as_the_cause(tmp_path: Path) -> None:
    online_bundle([(100.0, 200.0)], [(100.0, 200.0)], []).write(tmp_path / "trace")
    trace = {"name": "trace", "trace": str(tmp_path / "trace")}
    scenario = timed(devices={"availability": {**trace, "start": "1h"}})
    with pytest.raises(UserError, match="none of the 3 clients") as caught:
        check(read_scenario(scenario))
    assert "devices.availability: on_end or an earlier start (now 1 h)" in str(caught.value.hint)


def _tcp(**more: Any) -> dict[str, Any]:
    """The same links with TCP."""
    return {"network": {**timed()["devices"]["network"], "transport": {"name": "tcp"}, **more}}


@pytest.mark.parametrize("more", [{}, {"loss": 0.01}], ids=["no loss", "loss"])
def test_the_deadline_suggested_with_tcp_is_met(more: dict[str, Any], tmp_path: Path) -> None:
    """The nominal duration includes what the transport adds, so that nobody is late with the value of the hint."""
    scenario = timed(server=sync(deadline=30), devices=_tcp(**more))
    warning = next(
        one for one in check(read_scenario(scenario)) if "cannot finish a dispatch" in one.message
    )
    assert warning.hint is not None
    deadline = warning.hint.split(" at least ")[1].split(",")[0]
    assert float(deadline.removesuffix("s")) > 43.1, "more than with a fluid transfer"
    met = fedsim.run(timed(server=sync(deadline=deadline), devices=_tcp(**more)), tmp_path / "run")
    assert set(met.dispatches["outcome"]) == {"aggregated"}
    # The hint is no longer than needed: a round takes as long as its slowest client.
    assert met.aggregations["time_s"][0] > 0.99 * float(deadline.removesuffix("s"))
