"""Emissions and cost of a run's work, from the carbon intensity of the grid and from prices."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.analysis.figures.base import section
from fedsim.runs import Run
from fedsim.runs.phases import WORK_PHASES

if TYPE_CHECKING:
    from fedsim.scenario.model import Devices, Energy, EnergyClass

Floats = npt.NDArray[np.float64]
_J_PER_KWH = 3.6e6


def footprint(run: Run, clients: pd.DataFrame | None = None) -> pd.DataFrame | None:
    """Emissions and cost of each row of :attr:`Run.work`; None if the scenario has no ``devices.carbon`` or ``.cost``.

    Columns: ``client_id``, ``outcome``, ``gco2e`` (grams) and ``cost``, each only if the scenario defines it. A
    phase draws its energy evenly between its instants, which is exact unless the client pauses in it.

    Args:
        run: the run.
        clients: the columns ``kind`` and, with several regions, ``region`` of its clients; those of the run if None.
    """
    given = section(run, "devices")
    if given.get("carbon") is None and given.get("cost") is None:
        return None
    from fedsim.scenario.model import Devices  # Slow to import, and few scenarios need it.

    devices = Devices.model_validate(given)
    table = run.work
    result = table[["client_id", "outcome"]].copy()
    if devices.carbon is not None:
        result["gco2e"] = _grams(run, devices, run.clients if clients is None else clients)
    if devices.cost is not None:
        hours = sum(table[f"{phase}_s"] for phase in WORK_PHASES) / 3600
        moved = table["bytes_down"] + table["bytes_up"]
        result["cost"] = moved * devices.cost.per_byte + hours * devices.cost.per_device_hour
    return result


def _grams(run: Run, devices: Devices, clients: pd.DataFrame) -> Floats:
    from fedsim.devices.carbon import Grid

    assert devices.carbon is not None
    names = clients["region"].tolist() if "region" in clients else None
    grid = Grid.read(devices.carbon, names, len(clients))
    table = run.work
    ended = table["ended_s"].to_numpy()
    instants = [table["dispatched_s"].to_numpy()]
    for name in ("downloaded_s", "computed_s"):
        instants.append(np.minimum(table[name].fillna(np.inf).to_numpy(), ended))
    instants.append(ended)
    watts = _watts(clients, devices.energy)[table["client_id"]]
    region = grid.of_client[table["client_id"]]
    grams = np.zeros(len(table))
    for number, (phase, (begins, ends)) in enumerate(
        zip(WORK_PHASES, pairwise(instants), strict=True)
    ):
        joules = watts[:, number] * table[f"{phase}_s"].to_numpy()
        spans, total = ends - begins, np.zeros(len(table))
        for place, intensity in enumerate(grid.regions):
            rows = region == place
            total[rows] = intensity.integral(begins[rows], ends[rows])
        mean = np.divide(total, spans, out=np.zeros(len(table)), where=spans > 0)
        grams += joules * mean / _J_PER_KWH
    return grams


def _watts(clients: pd.DataFrame, energy: Energy) -> Floats:
    """Power of each client's device while downloading, computing and uploading, (N, 3)."""
    figures: list[Energy | EnergyClass] = [energy, *energy.classes.values()]
    watts = np.array([[one.download_w, one.compute_w, one.upload_w] for one in figures])
    kinds = pd.Index(list(energy.classes)).get_indexer(pd.Index(clients["kind"]))
    of_clients: Floats = watts[kinds + 1]
    return of_clients
