"""MobiPerf throughput tests of phones (M-Lab), as JSON records.

A record: ``timestamp`` (epoch microseconds), ``device_properties`` (``network_type``, ``device_info.model`` ...) and
``tcp_speed_results``, the throughput samples of one test in kbit/s.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedsim.errors import UserError
from fedsim.traces.importers import Imported, Importer, ImporterParams, Sources
from fedsim.traces.importers._assemble import devices_table, per_device
from fedsim.traces.importers._numbers import Number
from fedsim.traces.tables import Floats

RATE = Number("a throughput sample", "kbit/s")


class Mobiperf(Importer):
    """One device per test: mean rate and its variation over the test's samples, type of network, model.

    The records do not identify phones, so two tests of one phone are two devices. The samples of a test are sorted, so
    they show how much the rate varied, but not when. Tests without samples, or with only zeros, are dropped.
    """

    name = "mobiperf"
    description = "MobiPerf TCP throughput tests (JSON list), one device per test"
    signature = r'"tcp_speed_results"'

    class Params(ImporterParams):
        """Options of the MobiPerf importer."""

        direction: Literal["down", "up", "both"] = "down"
        """Direction that was measured."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One device and one network row per test."""
        models: list[str | None] = []
        radios: list[str | None] = []
        rates: list[Floats] = []
        ids = []
        counts = {"tests": 0, "without_samples": 0, "all_zero": 0}
        for source in sources:
            content = source.json()
            if not isinstance(content, list):
                raise source.error(f"is a {type(content).__name__}, not a list of tests")
            for number, record in enumerate(content, start=1):
                counts["tests"] += 1
                samples = _rates(record, f"{source.where}, record {number}")
                if not samples.any():
                    counts["all_zero" if len(samples) else "without_samples"] += 1
                    continue
                properties = record.get("device_properties") or {}
                model = (properties.get("device_info") or {}).get("model")
                network = properties.get("network_type")
                ids.append(f"test{counts['tests']}")
                rates.append(samples)
                # "WIFI" and "Wifi" are the same.
                radios.append(str(network).lower() if network else None)
                models.append(str(model) if model else None)
        if not ids:
            raise sources.error("no test has samples")
        means = np.array([float(each.mean()) for each in rates])
        deviations = np.array([float(each.std()) for each in rates])
        tables = {
            "devices": devices_table(ids, kind="phone", model=models),
            "network": per_device(
                ids,
                "network",
                direction=params.direction,
                bandwidth_bps=means * 1000.0,
                bandwidth_cv=(deviations / means).astype(np.float32),
                radio=radios,
            ),
        }
        caveat = "tests that people chose to run: not a random sample of links or of times"
        return Imported(tables, counts, [caveat])


def _rates(record: Any, where: str) -> Floats:
    if not isinstance(record, dict) or not isinstance(record.get("tcp_speed_results"), list):
        hint = "it must contain the throughput samples of the test in kbit/s"
        raise UserError("has no list 'tcp_speed_results'", where=where, hint=hint)
    return RATE.read(record["tcp_speed_results"], lambda row: where)
