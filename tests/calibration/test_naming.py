"""Which client of the scenario each name in a log means."""

from typing import Any

import pyarrow as pa
import pytest

from fedsim.calibration.naming import paired
from fedsim.errors import UserError

DEVICES = {"device": pa.array([str(1 + number) for number in range(4)])}
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
    assert paired(clients, column, 4, DEVICES, "log.csv") == (expected, [])


def test_names_that_may_mean_different_clients_are_refused() -> None:
    with pytest.raises(UserError) as caught:
        paired(["1", "2", "3"], "client", 4, DEVICES, "log.csv")
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
