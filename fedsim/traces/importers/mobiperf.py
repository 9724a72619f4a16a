"""MobiPerf throughput tests of phones (M-Lab), as JSON records.

A record: ``timestamp`` (epoch microseconds), ``device_properties`` (``network_type``, ``device_info.model`` ...) and
``tcp_speed_results``, the throughput samples of one test in kbit/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._assemble import STATIC_HORIZON_US, bundle, devices_table
from fedsim.traces.importers._files import source_files
from fedsim.traces.tables import id_column, make_table


class MobiperfParams(ImporterParams):
    """Options of the MobiPerf importer."""

    direction: Literal["down", "up", "both"] = "down"
    """Direction that was measured."""


class Mobiperf(Importer):
    """A device a test: mean rate and its variation over the test's samples, kind of network, model.

    The records do not name their phones, so two tests of one phone are two devices. The samples of a test come sorted,
    so they say how much the rate varied and not when. Tests without samples, or all at 0, are dropped.
    """

    name: ClassVar[str] = "mobiperf"
    description: ClassVar[str] = "MobiPerf TCP throughput tests (JSON list), a device a test"
    Params: ClassVar[type[Parameters]] = MobiperfParams

    @classmethod
    def read(cls, paths: Sequence[Path], params: MobiperfParams) -> TraceBundle:
        """See :meth:`Importer.read`."""
        ids: list[str] = []
        means: list[float] = []
        cvs: list[float] = []
        radios: list[str | None] = []
        models: list[str | None] = []
        counts = {"tests": 0, "without_samples": 0, "all_zero": 0}
        for source in source_files(paths):
            content = source.json()
            if not isinstance(content, list):
                raise UserError(
                    f"is a {type(content).__name__}; a list of tests is expected",
                    where=source.where,
                    hint="check that the file is a MobiPerf export",
                )
            for number, record in enumerate(content, start=1):
                where = f"{source.where}, record {number}"
                counts["tests"] += 1
                rates = _rates(record, where)
                if not len(rates):
                    counts["without_samples"] += 1
                    continue
                if not rates.any():
                    counts["all_zero"] += 1
                    continue
                properties = record.get("device_properties") or {}
                info = properties.get("device_info") or {}
                ids.append(f"test{counts['tests']}")
                means.append(float(rates.mean()) * 1000.0)
                cvs.append(float(rates.std() / rates.mean()))
                # "WIFI" and "Wifi" are one.
                network = properties.get("network_type")
                radios.append(str(network).lower() if network else None)
                model = info.get("model")
                models.append(str(model) if model else None)
        if not ids:
            raise UserError("no test has samples", where=", ".join(map(str, paths)))
        device = id_column(np.arange(len(ids)), ids)
        tables = {
            "devices": devices_table(
                ids, window_end_us=STATIC_HORIZON_US, kind="phone", model=models
            ),
            "network": make_table(
                "network",
                {
                    "device_id": device,
                    "direction": [params.direction] * len(ids),
                    "bandwidth_bps": np.array(means),
                    "bandwidth_cv": np.array(cvs, np.float32),
                    "radio": radios,
                },
            ),
        }
        return bundle(
            cls,
            params,
            paths,
            tables,
            counts,
            horizon_us=STATIC_HORIZON_US,
            on_end="wrap",
            caveats=["tests that people chose to run: not a random sample of links or of times"],
        )


def _rates(record: Any, where: str) -> np.typing.NDArray[np.float64]:
    if not isinstance(record, dict) or not isinstance(record.get("tcp_speed_results"), list):
        raise UserError(
            "has no list 'tcp_speed_results'",
            where=where,
            hint="it must hold the throughput samples of the test in kbit/s",
        )
    values = record["tcp_speed_results"]
    for value in values:
        if not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise UserError(
                f"a throughput sample is {value!r}",
                where=where,
                hint="it must be a number of 0 or more (kbit/s)",
            )
    return np.array(values, np.float64)
