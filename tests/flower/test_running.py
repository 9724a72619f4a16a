"""Whole runs: their times against the native simulator, their learning against Flower's engine, their run folder."""

import asyncio
import re
import shutil
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

import fedsim
from fedsim.analysis.comparison import compare
from fedsim.errors import UserError
from fedsim.flower.grid import node_ids
from fedsim.flower.running import App, execute, load_devices
from fedsim.flower.workers import AppSource
from tests.flower import apps
from tests.flower.worlds import RunApp, devices
from tests.simulation.harness import online_bundle

SLOW = {
    "compute": {"name": "values", "step": ["1s", "2s", "4s"], "jitter": {"cv": 0.3}},
    "network": {"name": "static", "latency": "50ms", "down": "8kbps", "up": "4kbps"},
}


@pytest.mark.parametrize("pauses", [False, True])
def test_same_times_as_the_native_scenario(run_app: RunApp, tmp_path: Path, pauses: bool) -> None:
    """FedAvg as an app and as a scenario: the same work, bytes and devices give the same instants and emissions."""
    section: dict[str, Any] = {
        **SLOW,
        "carbon": {"file": "builtin:carbon_week.csv", "region": {"GB": 1, "DE": 2}},
        "cost": {"per_byte": 1e-6, "per_device_hour": 3},
    }
    if pauses:
        intervals = [(0.0, 3.0), (5.0, 400.0)], [(0.0, 400.0)], [(0.0, 9.0), (11.0, 400.0)]
        online_bundle(*intervals).write(tmp_path / "trace")
        trace = {"name": "trace", "trace": str(tmp_path / "trace"), "on_disconnect": "pause"}
        section["availability"] = trace
    server = apps.strategy_server(rounds=3, fraction_evaluate=0.0)
    app_run = run_app(server, apps.torch_client(), {"task": {"clients": 3}, "devices": section})
    (down,), (up,) = (set(app_run.dispatches[name]) for name in ("bytes_down", "bytes_up"))
    native = fedsim.run(
        {
            "name": "native",
            # Sizes are exact: a power of two, times a factor that is a multiple of its inverse.
            "task": {"name": "timing", "clients": 3, "size": "1MiB"},
            "training": {"local_steps": apps.STEPS},
            "devices": section,
            "server": {
                "compression": {"down": {"factor": down / 2**20}, "up": {"factor": up / 2**20}}
            },
            "stop": {"rounds": 3},
        },
        tmp_path / "native",
    )
    columns = ["dispatched_s", "downloaded_s", "computed_s", "arrived_s", "steps_done", "outcome"]
    columns += ["energy_j", "gco2e", "cost"]
    keys = ["client_id", "sequence"]
    ours, theirs = (
        run.dispatches.sort_values(keys)[[*keys, *columns]].reset_index(drop=True)
        for run in (app_run, native)
    )
    assert len(ours) == 9
    assert ours.equals(theirs)
    assert app_run.aggregations["time_s"].equals(native.aggregations["time_s"])
    assert [app_run.info[name] for name in ("gco2e", "cost")] == [
        pytest.approx(ours[name].sum()) for name in ("gco2e", "cost")
    ]
    assert app_run.clients["gco2e"].equals(native.clients["gco2e"])
    assert app_run.clients["region"].equals(native.clients["region"])


class _Backend:
    """Runs ClientApps in the process of Flower's engine, which is otherwise left as it is."""

    def __init__(self, config: Any) -> None:
        self.num_workers = 1

    def build(self, app_fn: Any) -> None:
        self._app = app_fn()

    def process_message(self, message: Any, context: Any) -> Any:
        return self._app(message, context), context

    def terminate(self) -> None:
        pass


def flowers_own_engine(server: Any, client: Any, ids: tuple[int, ...]) -> None:
    """Flower's simulation engine with the given node ids, and without Ray."""
    from flwr.server.superlink.linkstate import in_memory_linkstate
    from flwr.simulation.run_simulation import _run_simulation
    from flwr.supercore.telemetry import EventType

    stand_in = types.SimpleNamespace(RayBackend=_Backend)
    name = "flwr.server.superlink.fleet.vce.backend.raybackend"
    with (
        mock.patch.dict(sys.modules, {name: stand_in}),
        mock.patch.object(in_memory_linkstate, "generate_rand_int_from_bytes", side_effect=ids),
    ):
        _run_simulation(
            num_supernodes=len(ids),
            exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
            client_app=client,
            server_app=server,
            backend_name="here",
        )


@pytest.mark.parametrize("name", list(apps.STRATEGIES))
def test_same_weights_as_flowers_engine(run_app: RunApp, name: str) -> None:
    """On equal devices that are always online, every strategy ends with the same bits as in Flower's simulation."""
    results: list[Any] = []
    # Flower's engine starts the ServerApp before it has registered all nodes.
    server = apps.strategy_server(
        apps.STRATEGIES[name],
        sort=True,
        results=results,
        fraction_evaluate=0.0,
        min_train_nodes=4,
        min_available_nodes=4,
    )
    run_app(server, apps.torch_client())
    flowers_own_engine(server, apps.torch_client(), node_ids(4, 0))
    ours, theirs = (result.arrays.to_numpy_ndarrays() for result in results)
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    start = [p.detach().numpy() for p in apps.model().parameters()]
    assert not all(np.array_equal(a, b) for a, b in zip(ours, start, strict=True))


def test_what_stop_says_ends_the_app(run_app: RunApp) -> None:
    server = apps.strategy_server(rounds=100, fraction_evaluate=0.0)
    run = run_app(server, apps.torch_client(), {"stop": {"simulated_time": "3s"}})
    assert run.simulated_s == 3.0
    assert (run.dispatches["outcome"] == "unfinished").sum() == 4
    run = run_app(server, apps.torch_client(), {"stop": {"rounds": 2}})
    assert run.info["rounds"] == 2


def test_users_code_can_be_refused(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App.read(checkout / "fedsim" / "bundled" / "templates" / "flower")
    monkeypatch.setenv("FEDSIM_NO_USER_CODE", "1")
    with pytest.raises(UserError, match=r"digits_app/server_app\.py may not run"):
        execute(app, load_devices(None, "x"))


@pytest.mark.parametrize(
    ("reference", "file", "error"),
    [
        ("fedsim_both:app", "app/fedsim_both.py", "SystemExit: {}"),
        ("fedsim_other:app", "other/fedsim_other.py", "SystemExit: {}"),
        ("fedsim_package.inner:app", "other/fedsim_package/inner.py", "SystemExit: {}"),
        ("fedsim_package.lost:app", "other/fedsim_package/__init__.py", "No module named"),
        ("fedsim_space.inner:app", "app/fedsim_space/inner.py", "SystemExit: {}"),
        ("fedsim_deep.space.inner:app", "app/fedsim_deep/space/inner.py", "SystemExit: {}"),
        ("os:system", None, "is a builtin"),
    ],
)
def test_the_file_that_is_named_is_the_one_that_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, file: str | None, error: str
) -> None:
    for name in (
        *("app/fedsim_both.py", "other/fedsim_both.py", "other/fedsim_other.py"),
        *("other/fedsim_package/__init__.py", "other/fedsim_package/inner.py"),
        *("app/fedsim_space/inner.py", "app/fedsim_deep/space/inner.py"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("if '__init__' not in __file__: raise SystemExit(__file__)")
    monkeypatch.syspath_prepend(tmp_path / "other")
    monkeypatch.setenv("FEDSIM_NO_USER_CODE", "1")
    shown = "os" if file is None else re.escape(str(tmp_path / file))
    with pytest.raises(UserError, match=f"^the code in {shown} may not run"):
        AppSource(reference, tmp_path / "app").load()
    monkeypatch.delenv("FEDSIM_NO_USER_CODE")
    with pytest.raises(UserError, match=error.format(shown)):
        AppSource(reference, tmp_path / "app").load()


def test_the_folder_and_the_configuration_of_an_app(checkout: Path, tmp_path: Path) -> None:
    folder = checkout / "fedsim" / "bundled" / "templates" / "flower"
    app = App.read(folder, "num-server-rounds=3 learning-rate=0.5")
    assert app.run_config["num-server-rounds"] == 3
    assert app.run_config["learning-rate"] == 0.5
    assert app.run_config["local-epochs"] == 2
    (tmp_path / "nested").mkdir()
    (tmp_path / "nested" / "pyproject.toml").write_text("a=" + "[" * 100_000)
    (tmp_path / "typed").mkdir()
    (tmp_path / "typed" / "pyproject.toml").write_text("[project]\n[tool]\nflwr = 3\n")
    for read, text, message in (
        (tmp_path / "nested", "", "not a Flower app"),
        (tmp_path / "typed", "", "not a Flower app"),
        (tmp_path, "", r"not a Flower app: Cannot find pyproject\.toml"),
        (tmp_path / "missing", "", "no such folder"),
        (folder, "rounds=3", "the app has no key 'rounds'\n  keys of this app: num-server-rounds"),
        (folder, "local-epoch=3", "did you mean 'local-epochs'"),
        # Flower itself ignores words without a value.
        (folder, "local-epochs", "'local-epochs' is not key=value"),
        (folder, "local-epochs = 3", "'local-epochs' is not key=value"),
    ):
        with pytest.raises(UserError, match=message):
            App.read(read, text)
    for reference in ("../../x:app", "5", "digits_app"):
        with pytest.raises(UserError, match="is not a module and an app"):
            AppSource(reference, folder).load()
    shutil.copytree(folder, tmp_path / "elsewhere")
    project = (folder / "pyproject.toml").read_text()
    named = re.sub('(?m)^name = ".*"', 'name = "../../canary/evil"', project)
    (tmp_path / "elsewhere" / "pyproject.toml").write_text(named)
    assert load_devices(None, App.read(tmp_path / "elsewhere").name).scenario.name == "canary-evil"
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    with pytest.raises(UserError, match="cannot load the app"):
        AppSource("exits:app", tmp_path).load()


def test_comparing_apps_names_them_by_their_configuration(run_app: RunApp) -> None:
    server = apps.strategy_server(rounds=1, fraction_evaluate=0.0)
    configs = [{"lr": 0.1, "rounds": rounds} for rounds in (1, 2)]
    runs = [run_app(server, apps.torch_client(), run_config=config) for config in configs]
    comparison = fedsim.compare(runs)
    assert [group.name for group in comparison.groups] == ["rounds=1", "rounds=2"]
    assert comparison.grouping.differing == ("run_config.rounds",)


def test_progress_is_reported_after_each_version(tmp_path: Path) -> None:
    seen: list[Any] = []
    app = App("x", apps.strategy_server(rounds=3), apps.torch_client(), {"num-server-rounds": 3})
    given = {"task": {"clients": 4}, "devices": devices()}
    run = execute(app, load_devices(given, "x"), tmp_path / "run", on_progress=seen.append)
    assert [one.version for one in seen] == [1, 2, 3]
    assert [one.simulated_s for one in seen] == run.aggregations["time_s"].tolist()
    assert [round(one.share * 3) for one in seen] == run.aggregations["round"].tolist()


def one_round(then: Callable[[list[Message], float], None]) -> ServerApp:
    """A ServerApp that waits four seconds for the replies of all nodes."""

    def main(grid: Grid, context: Context) -> None:
        began = time.time()
        messages = [Message(RecordDict(), node, "train") for node in grid.get_node_ids()]
        replies = list(grid.send_and_receive(messages, timeout=4))
        then(replies, time.time() - began)

    return apps.own_loop(main)


def test_a_sleep_of_a_client_app_is_time_of_its_node(run_app: RunApp) -> None:
    """Two steps of 1 s; a node that sleeps 3 s more answers after 5 s, later than the timeout of 4 s."""
    seen: list[tuple[int, float]] = []
    server = one_round(lambda replies, s: seen.append((len(replies), s)))
    began = time.monotonic()
    run = run_app(server, SLEEPING, {"task": {"clients": 3}, "devices": devices()})
    assert seen == [(2, pytest.approx(4, abs=1e-3))]
    assert run.simulated_s == pytest.approx(4, abs=1e-3)
    assert time.monotonic() - began < 3 * 3


SLEEPING = apps.client_of(train=apps.stepping(2, lambda node: time.sleep(3 if node == 2 else 0)))
EXITING = apps.client_of(train=apps.stepping(2, lambda node: sys.exit(3) if node == 1 else None))


def test_a_client_app_that_exits_is_an_error_reply(run_app: RunApp) -> None:
    seen: list[list[bool]] = []
    server = one_round(lambda replies, _: seen.append([each.has_error() for each in replies]))
    run = run_app(server, EXITING, {"devices": devices()})
    assert sorted(seen[0]) == [False, False, False, True]
    assert run.info["status"] == "complete"


def test_a_server_app_may_end_by_exit(run_app: RunApp, tmp_path: Path) -> None:
    run = run_app(one_round(lambda replies, _: sys.exit(0)), EXITING, {"devices": devices()})
    assert run.info["status"] == "complete"
    with pytest.raises(UserError, match=r"ended .* after the start by sys\.exit\(3\)"):
        run_app(one_round(lambda replies, _: sys.exit(3)), EXITING, {"devices": devices()})
    failed = fedsim.load(tmp_path / "run2")
    assert failed.info["status"] == "failed"
    assert failed.messages.equals(run.messages)


def test_a_run_without_a_message_can_be_compared(run_app: RunApp) -> None:
    run = run_app(apps.own_loop(lambda grid, context: None), EXITING, {"devices": devices()})
    assert compare([run.path]).summary["runs"].tolist() == [1]


def test_what_asyncio_raises_in_a_server_app_is_its_error(run_app: RunApp) -> None:
    def cancel(*_: object) -> None:
        raise asyncio.CancelledError

    with pytest.raises(
        UserError, match=r"the ServerApp failed .* after the start\n(.|\n)*Cancelled"
    ):
        run_app(one_round(cancel), EXITING, {"devices": devices()})


def test_waiting_for_more_nodes_than_are_ever_online_at_once_is_said(
    run_app: RunApp, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Nodes that come and go, two of four at a time; the app looks for three."""
    hours = [(h * 3600.0, (h + 1) * 3600.0) for h in range(0, 48, 2)]
    later = [(begin + 3600.0, end + 3600.0) for begin, end in hours]
    online_bundle(hours, hours, later, later).write(tmp_path / "bundle")
    section = {**devices(), "trace": str(tmp_path / "bundle")}
    server = apps.strategy_server(rounds=1, min_available_nodes=3)
    stop, began = {"simulated_time": "12h"}, time.monotonic()
    run = run_app(server, apps.torch_client(), {"devices": section, "stop": stop})
    assert time.monotonic() - began < 30
    assert (run.info["messages"], run.info["dispatches"], run.simulated_s) == (0, 0, 12 * 3600)
    assert "of 4 nodes, at most 2 were online at once" in caplog.text


def test_wrong_use_gives_one_message(run_app: RunApp) -> None:
    server, client = apps.strategy_server(), apps.torch_client()
    partial = {"name": "always", "on_disconnect": "send_partial"}
    for scenario, message in (
        ({"server": {"method": "fedavg"}}, r"server\.method.*has no effect on a Flower app"),
        ({"task": {"name": "timing", "clients": 3}}, "the task of a Flower app is 'flower'"),
        ({"devices": {"availability": partial}}, "cannot send partial work"),
        ({"task": {"workers": {"name": "processes"}}}, "other processes cannot import"),
    ):
        with pytest.raises(UserError, match=message):
            run_app(server, client, scenario)
    with pytest.raises(UserError, match=r"fedsim flower APP"):
        fedsim.run({"task": {"name": "flower"}, "stop": {"rounds": 1}})
    with pytest.raises(UserError, match="took no step of a PyTorch optimizer") as caught:
        run_app(apps.sklearn_server(), apps.sklearn_client())
    assert "devices.compute.unit=example" in str(caught.value)


def test_rules_about_devices_and_the_run_can_be_ignored(
    run_app: RunApp, caplog: pytest.LogCaptureFixture
) -> None:
    """40 s of latency that were meant as milliseconds, and an app that waits for a fifth node."""
    section = devices()
    section["network"] = {"name": "static", "latency": 40, "down": "1Mbps", "up": "1Mbps"}
    server = apps.strategy_server(rounds=1, min_available_nodes=5)
    scenario = {"devices": section, "stop": {"simulated_time": "1d"}}
    rules = ["long-latency", "waited-for-nodes"]
    for ignored in ([], rules[:1], rules):
        caplog.clear()
        run = run_app(server, apps.torch_client(), {**scenario, "ignore": ignored})
        assert [rule for rule in rules if f"[{rule}]" in caplog.text] == rules[len(ignored) :]
        assert run.scenario["ignore"] == ignored
    with pytest.raises(UserError, match="there is no rule 'long-latencies'"):
        run_app(server, apps.torch_client(), {**scenario, "ignore": ["long-latencies"]})
