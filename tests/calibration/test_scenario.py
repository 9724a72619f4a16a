"""The scenario of a log: which client each name means, and logs of Flower apps."""

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from fedsim.calibration.log import read_log
from fedsim.calibration.scenario import as_timing, paired
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario_dict
from fedsim.traces.importers import import_bundle
from fedsim.traces.importers.table import Table
from tests.calibration.worlds import calibrated, few_simulations

ON_DEVICES = {"device": pa.array([str(1 + number) for number in range(4)])}
"""Four clients, on the devices 1 to 4."""
NUMBERS, IDS = ["0", "1", "2", "3"], ["1", "2", "3", "4"]


def test_names_in_the_data_set_identify_clients() -> None:
    names = {"name": ("ann", "bob", "eve"), "device": pa.array(["x", "y", "x"])}
    assert paired(["bob", "eve"], "client", 3, names, "log.csv") == (["ann", "bob", "eve"], [])
    with pytest.raises(UserError, match="several clients of the scenario are on one device"):
        paired(["x", "y"], "client", 3, names, "log.csv")


@pytest.mark.parametrize(
    ("column", "clients", "expected"),
    [
        ("client", ["0", "2"], NUMBERS),
        ("client", ["2", "4"], IDS),
        ("client_id", ["1", "2"], NUMBERS),
        ("client_id", ["2", "4"], IDS),
        ("device", ["1", "2"], IDS),
        ("device_id", ["1", "2"], IDS),
    ],
)
def test_the_column_decides_between_numbers_and_device_ids(
    column: str, clients: list[str], expected: list[str]
) -> None:
    assert paired(clients, column, 4, ON_DEVICES, "log.csv") == (expected, [])


def test_names_that_may_mean_different_clients_are_refused() -> None:
    with pytest.raises(UserError) as caught:
        paired(["1", "2", "3"], "client", 4, ON_DEVICES, "log.csv")
    assert "client numbers or device ids" in caught.value.message
    assert "rename the column client to client_id if they are client numbers" in str(
        caught.value.hint
    )
    same: dict[str, Any] = {"device": pa.array(NUMBERS)}
    assert paired(["1", "2", "3"], "client", 4, same, "log.csv") == (NUMBERS, [])


def test_names_in_the_data_set_that_are_numbers_have_a_column() -> None:
    names = {"name": ("3", "2", "1", "0")}
    assert paired(["3", "1"], "client_name", 4, names, "log.csv") == (["3", "2", "1", "0"], [])
    with pytest.raises(UserError, match="client numbers or names in the data set"):
        paired(["3", "1"], "client", 4, names, "log.csv")


@pytest.mark.parametrize(
    ("devices", "clients", "hint"),
    [
        ([], ["0", "1", "ghost"], "its client numbers are 0, 1, 2 and 3"),
        (["north", "south", "east", "west"], ["north", "?", "east"], "its device ids are north,"),
    ],
)
def test_a_few_unknown_names_are_refused(devices: list[str], clients: list[str], hint: str) -> None:
    names = {"device": pa.array(devices)} if devices else {}
    with pytest.raises(UserError, match="not among the scenario's") as caught:
        paired(clients, "client", 4, names, "log.csv")
    assert str(caught.value.hint).startswith(hint)


def test_names_most_of_which_are_unknown_are_paired_in_order() -> None:
    clients, (flag,) = paired(["ph1", "ph2", "0"], "client", 4, {}, "log.csv")
    assert clients == ["ph1", "ph2", "0", "unseen-0"]
    assert "(ph1 and ph2): they are paired with its clients 0, 1, ... in the order" in flag


DEVICES = {
    "name": "app",
    "task": {"name": "flower", "clients": 3},
    "devices": {
        "compute": {"name": "values", "step": "1s"},
        "network": {"name": "static", "latency": "100ms", "down": "8Mbps", "up": "4Mbps"},
    },
    "stop": {"simulated_time": "1h"},
}


def _rows(late: bool) -> list[tuple[object, ...]]:
    """Rounds of 2 clients, 4 steps of 1 s and of 2 s, 1 MB each way at 8 and 4 Mbit/s, and 5 s of evaluation.

    With ``late``, the slower one misses the timeout of 10 s in every second round.
    """
    rows: list[tuple[object, ...]] = []
    start = 0.0
    for number in range(10):
        slow = late and number % 2 == 1
        for client, step in ((0, 1.0), (2, 3.0 if slow else 1.5)):
            downloaded = start + 1.1
            computed = downloaded + 4 * step
            end = computed + 2.1
            outcome = "late" if slow and client else "aggregated"
            rows.append(
                (client, start, downloaded, computed, end, 4, 1e6, 1e6, number, outcome, end)
            )
        start += (10.0 if slow else 9.2) + 5.0
    return rows


def _log(late: bool = True) -> pd.DataFrame:
    columns = "client,start,downloaded,computed,end,steps,bytes_down,bytes_up,round,outcome,ended"
    return pd.DataFrame(_rows(late), columns=columns.split(","))


@pytest.mark.parametrize("late", [True, False])
def test_rounds_are_those_of_the_log(tmp_path: Path, late: bool) -> None:
    _log(late).to_csv(tmp_path / "log.csv", index=False)
    scenario, _, flags = as_timing(
        load_scenario_dict(DEVICES, tmp_path), read_log(tmp_path / "log.csv").dispatches
    )
    assert scenario is not None
    schedule = scenario.scenario.server.schedule.params
    assert schedule.deadline == (pytest.approx(10.0) if late else None)
    assert scenario.scenario.server.selection.params.cohort == 2
    assert scenario.scenario.training.local_steps == 4
    assert any("10 s, which counts as the ServerApp's timeout" in flag for flag in flags) is late


@few_simulations()
def test_clients_that_are_offline_where_the_log_has_dispatches_are_flagged(tmp_path: Path) -> None:
    # One client is online at the start of each hour, and never two: rounds of one client, and not even ten.
    windows = "device,start,end\n0,0,60\n1,1200,1260\n2,2400,2460\n"
    (tmp_path / "windows.csv").write_text(windows)
    bundle = import_bundle(
        Table, [tmp_path / "windows.csv"], Table.Params(time_unit="s", window=3600.0)
    )
    bundle.write(tmp_path / "windows")
    devices = {**DEVICES["devices"], "availability": {"name": "trace", "trace": "windows"}}
    result = calibrated(tmp_path, _log(late=False), {**DEVICES, "devices": devices})
    (flag,) = [flag for flag in result.flags if "The simulation has only" in flag]
    assert flag.startswith("The simulation has only 10 dispatches, but the log has 20. Check")
    always = calibrated(tmp_path, _log(late=False), DEVICES)
    assert not any("The simulation has only" in flag for flag in always.flags)


@few_simulations(10)
def test_the_devices_of_the_file_and_the_log_are_simulated(tmp_path: Path) -> None:
    result = calibrated(tmp_path, _log(), DEVICES)
    assert result.estimates.latency_s == pytest.approx([0.1] * 3), "the file's latency"
    assert [rate.mean[0] for rate in result.estimates.rates_bps] == pytest.approx([8e6, 4e6])
    assert result.estimates.step_s.mean[0] == pytest.approx(1.0)
    assert result.scenario is not None
    logged, simulated = result.distributions["download (s)"]
    assert simulated[0] == pytest.approx(logged[0])
    (total,) = [each for each in result.predictions if each.name == "total time (s)"]
    assert total.coverage == 1


def test_messages_of_different_work_are_whole(tmp_path: Path) -> None:
    table = _log()
    table.loc[table["client"] == 2, "steps"] = 8
    table.to_csv(tmp_path / "log.csv", index=False)
    _, log, flags = as_timing(
        load_scenario_dict(DEVICES, tmp_path), read_log(tmp_path / "log.csv").dispatches
    )
    assert set(log["steps"]) == {1.0}
    assert any("4 to 8 units of work" in flag for flag in flags)


def test_an_app_without_rounds_is_not_simulated(tmp_path: Path) -> None:
    result = calibrated(tmp_path, _log().drop(columns="round"), DEVICES)
    assert result.scenario is None
    assert any("has no rounds" in flag for flag in result.flags)
