"""Measurements of phones: compute speeds of AI Benchmark and Propius, and throughput tests of MobiPerf.

AI Benchmark: scores of ai-benchmark.com, collected by Yang et al. (FLASH), WWW 2021, ``models/utils/device_util``.
Propius: ``client_spec_speed``, milliseconds per inference. MobiPerf (M-Lab): JSON records with ``timestamp`` (epoch
microseconds), ``device_properties`` (``network_type``, ``device_info.model`` ...) and ``tcp_speed_results``, the
throughput samples of one test in kbit/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedsim.errors import UserError
from fedsim.files.cells import POSITIVE, Bounds
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import Records, numbers_of

MIB, GIB, TIB = 2**20, 2**30, 2**40
UNKNOWN = "unknown"


class AiBenchmark(Importer):
    """The raw list, ``benchmark2score`` (optionally with ``real2benchmark``), or Propius' speeds (JSON or pickle).

    Scores: one device per model; a model listed twice keeps its last score, as in FLASH. With ``real2benchmark``, one
    device per code, without those of unknown models. Speeds: one device per record, milliseconds per inference;
    ``score`` is its ``cpu_f``, on a different scale. RAM in "GB" means GiB, as in the specifications of phones.
    """

    name = "ai_benchmark"
    description = "AI Benchmark scores (FLASH) and per-device inference speeds (Propius)"
    signature = r'"AI_Score"|"cpu_f"'

    @classmethod
    def read(cls, sources: Sources, params: ImporterParams) -> Imported:
        """One device and one compute row per model, code or record."""
        files: dict[str, tuple[SourceFile, Any]] = {}
        for source in sources:
            content = source.records()
            files[_kind(source, content)] = source, content
        given = frozenset(files)
        if given == {"speed"}:
            return Imported(_speeds(Records(files["speed"][0], "device")))
        if given - {"codes"} not in ({"raw"}, {"score"}) or len(given) < len(sources.paths):
            raise sources.error(
                "these files cannot be imported together",
                "give one of the raw list, benchmark2score and client_spec_speed; real2benchmark only with scores",
            )
        counts: dict[str, int] = {}
        table = _raw(*files["raw"], counts) if "raw" in files else _plain(*files["score"])
        ids = models = table.index.tolist()
        if "codes" in files:
            _, content = files["codes"]
            known = {code: model for code, model in content.items() if model in table.index}
            counts["unknown_codes"] = sum(model == UNKNOWN for model in content.values())
            counts["codes_without_score"] = len(content) - len(known) - counts["unknown_codes"]
            ids, models = list(known), list(known.values())
        columns = {str(name): column.to_numpy() for name, column in table.loc[models].items()}
        work = {"task": "*", "phase": "inference", **columns}
        tables = {
            "devices": {"device_id": ids, "kind": "phone", "model": models},
            "compute": {"device_id": ids, **work},
        }
        caveat = "scores are relative: they need a reference time to become seconds"
        return Imported(tables, counts, [caveat])


def _kind(source: SourceFile, content: Any) -> str:
    values = list(content.values()) if isinstance(content, dict) else content
    types = {type(value) for value in values} if isinstance(values, list) else set()
    if isinstance(content, list) and types == {dict}:
        return "raw"
    if isinstance(content, dict) and types:
        if types <= {int, float}:
            return "score"
        if types in ({str}, {dict}):
            return "codes" if types == {str} else "speed"
    raise source.error(
        "is not one of the known files",
        "give the raw AI Benchmark list, benchmark2score, real2benchmark or client_spec_speed",
    )


def _raw(source: SourceFile, content: Any, counts: dict[str, int]) -> pd.DataFrame:
    """Score and memory of each model, in the order in which the models appear first."""
    for place, record in enumerate(content, start=1):
        if not isinstance(record.get("Model"), str):
            raise source.error(f"record {place} has no text 'Model'", "correct or remove it")
    table = pd.DataFrame(content).reindex(columns=["Model", "AI_Score", "RAM"])
    # In "76206 1,6", the text after the first number is a remnant of the web page.
    first = table["AI_Score"].astype(str).str.extract(r"^\s*(\d+(?:\.\d+)?)(?:\s|$)", expand=False)
    table["AI_Score"] = first.astype(float)
    memory = table["RAM"].astype(object).fillna("").astype(str).str.strip()
    parts = memory.str.extract(r"^(\d+(?:[.,]\d+)?) ?([MGT]B|)$")
    if (wrong := memory[parts[0].isna() & ~memory.isin(("", "-"))]).any():
        where = f"{source.where}, {table['Model'][wrong.index[0]]}"
        hint = "it must be a number of MB, GB or TB, as in 8GB, or empty if unknown"
        raise UserError(f"RAM is {wrong.iloc[0]!r}", where=where, hint=hint)
    number = parts[0].str.replace(",", ".").astype(float)
    table["RAM"] = number * parts[1].map({"MB": MIB, "TB": TIB}).fillna(GIB)
    scored = table[table["AI_Score"] > 0]
    counts["repeated_models"] = int(scored["Model"].duplicated().sum())
    counts["without_score"] = len(table) - len(scored)
    last = scored.drop_duplicates("Model", keep="last").set_index("Model")
    last = last.loc[scored["Model"].unique()]
    ram_bytes = last["RAM"].where(last["RAM"] > 0)
    return pd.DataFrame({"score": last["AI_Score"], "ram_bytes": ram_bytes})


def _plain(source: SourceFile, content: Mapping[str, Any]) -> pd.DataFrame:
    models = list(map(str, content))
    where = [f"{source.where}, {model}" for model in models].__getitem__
    scores = numbers_of(list(content.values()), "the score", where, POSITIVE)
    return pd.DataFrame({"score": scores}, index=models)


def _speeds(file: Records) -> dict[str, Any]:
    devices = {"device_id": file.ids, "kind": "phone", "model": file.texts("device")}
    sample_s = file.numbers("speed", "ms per inference", POSITIVE) / 1000.0
    work = {"task": "*", "phase": "inference", "step_fixed_s": 0.0, "sample_s": sample_s}
    work |= {"score": file.optional("cpu_f"), "ram_bytes": file.optional("ram") * GIB}
    return {"devices": devices, "compute": {"device_id": file.ids, **work}}


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
        tests: list[tuple[Any, ...]] = []
        counts = {"tests": 0, "without_samples": 0, "all_zero": 0}
        for source in sources:
            content = source.json()
            for number, record in enumerate(content, start=1):
                counts["tests"] += 1
                where = f"{source.where}, record {number}"
                samples = record.get("tcp_speed_results") if isinstance(record, dict) else None
                if not isinstance(samples, list):
                    hint = "it must contain the throughput samples of the test in kbit/s"
                    raise UserError("has no list 'tcp_speed_results'", where=where, hint=hint)
                places = [where] * len(samples)
                name = "a throughput sample"
                kbps = numbers_of(samples, name, places.__getitem__, Bounds(0, 1e100), "kbit/s")
                if not kbps.any():
                    counts["all_zero" if len(samples) else "without_samples"] += 1
                    continue
                properties = record.get("device_properties") or {}
                model = (properties.get("device_info") or {}).get("model")
                # "WIFI" and "Wifi" are the same.
                radio = str(properties.get("network_type") or "").lower()
                rate = kbps.mean() * 1000.0, kbps.std() / kbps.mean()
                test = f"test{counts['tests']}"
                tests.append((test, *rate, radio or None, str(model) if model else None))
        if not tests:
            raise sources.error("no test has samples")
        ids, bps, variations, radios, models = map(list, zip(*tests, strict=True))
        rates = {"bandwidth_bps": bps, "bandwidth_cv": np.array(variations, np.float32)}
        tables = {
            "devices": {"device_id": ids, "kind": "phone", "model": models},
            "network": {"device_id": ids, "direction": params.direction, "radio": radios, **rates},
        }
        caveat = "tests that people chose to run: not a random sample of links or of times"
        return Imported(tables, counts, [caveat])
