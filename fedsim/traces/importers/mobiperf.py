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
        tests: list[tuple[str, float, float, str | None, str | None]] = []
        counts = {"tests": 0, "without_samples": 0, "all_zero": 0}
        for source in sources:
            content = source.json()
            if not isinstance(content, list):
                raise source.error(
                    f"is a {type(content).__name__}; a list of tests is expected",
                    "check that the file is a MobiPerf export",
                )
            for number, record in enumerate(content, start=1):
                counts["tests"] += 1
                rates = _rates(record, f"{source.where}, record {number}")
                if not len(rates):
                    counts["without_samples"] += 1
                    continue
                if not rates.any():
                    counts["all_zero"] += 1
                    continue
                properties = record.get("device_properties") or {}
                model = (properties.get("device_info") or {}).get("model")
                # "WIFI" and "Wifi" are the same.
                network = properties.get("network_type")
                tests.append(
                    (
                        f"test{counts['tests']}",
                        float(rates.mean()) * 1000.0,
                        float(rates.std() / rates.mean()),
                        str(network).lower() if network else None,
                        str(model) if model else None,
                    )
                )
        if not tests:
            raise sources.error("no test has samples")
        ids, means, variations, radios, models = map(list, zip(*tests, strict=True))
        tables = {
            "devices": devices_table(ids, kind="phone", model=models),
            "network": per_device(
                ids,
                "network",
                direction=params.direction,
                bandwidth_bps=np.array(means),
                bandwidth_cv=np.array(variations, np.float32),
                radio=radios,
            ),
        }
        caveat = "tests that people chose to run: not a random sample of links or of times"
        return Imported(tables, counts, [caveat])


def _rates(record: Any, where: str) -> Floats:
    if not isinstance(record, dict) or not isinstance(record.get("tcp_speed_results"), list):
        raise UserError(
            "has no list 'tcp_speed_results'",
            where=where,
            hint="it must contain the throughput samples of the test in kbit/s",
        )
    return RATE.read(record["tcp_speed_results"], lambda row: where)
