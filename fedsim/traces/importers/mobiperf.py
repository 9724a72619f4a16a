"""MobiPerf throughput tests of phones (M-Lab), as JSON records.

A record: ``timestamp`` (epoch microseconds), ``device_properties`` (``network_type``, ``device_info.model`` ...) and
``tcp_speed_results``, the throughput samples of one test in kbit/s.
"""

from __future__ import annotations

from typing import Literal

import pandas as pd

from fedsim.errors import UserError
from fedsim.files.sources import Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import numbers_of


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
        tests = []
        counts = {"tests": 0, "without_samples": 0, "all_zero": 0}
        for source in sources:
            content = source.json()
            if not isinstance(content, list):
                raise source.error(f"is a {type(content).__name__}, not a list of tests")
            for number, record in enumerate(content, start=1):
                counts["tests"] += 1
                where = f"{source.where}, record {number}"
                samples = record.get("tcp_speed_results") if isinstance(record, dict) else None
                if not isinstance(samples, list):
                    hint = "it must contain the throughput samples of the test in kbit/s"
                    raise UserError("has no list 'tcp_speed_results'", where=where, hint=hint)
                places = [where] * len(samples)
                name = "a throughput sample"
                kbps = numbers_of(samples, name, places.__getitem__, unit="kbit/s")
                if not kbps.any():
                    counts["all_zero" if len(samples) else "without_samples"] += 1
                    continue
                properties = record.get("device_properties") or {}
                model = (properties.get("device_info") or {}).get("model")
                tests.append(
                    {
                        "device_id": f"test{counts['tests']}",
                        "mean": kbps.mean(),
                        "deviation": kbps.std(),
                        # "WIFI" and "Wifi" are the same.
                        "radio": str(properties.get("network_type") or "").lower() or None,
                        "model": str(model) if model else None,
                    }
                )
        if not tests:
            raise sources.error("no test has samples")
        table = pd.DataFrame(tests).astype({"radio": object, "model": object})
        ids, radio, model = (table[name].tolist() for name in ("device_id", "radio", "model"))
        tables = {
            "devices": {"device_id": ids, "kind": "phone", "model": model},
            "network": {
                "device_id": ids,
                "direction": params.direction,
                "bandwidth_bps": table["mean"].to_numpy() * 1000.0,
                "bandwidth_cv": (table["deviation"] / table["mean"]).to_numpy("float32"),
                "radio": radio,
            },
        }
        caveat = "tests that people chose to run: not a random sample of links or of times"
        return Imported(tables, counts, [caveat])
