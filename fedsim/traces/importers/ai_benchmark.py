"""Compute speed of phones: AI Benchmark scores collected for FLASH, and inference times of Propius.

Sources: ai-benchmark.com through Yang et al. (FLASH), WWW 2021, ``models/utils/device_util``; Propius
``client_spec_speed`` (milliseconds per inference).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedsim.errors import UserError
from fedsim.files.cells import POSITIVE
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import numbers_of

GIB = 2**30
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
            return Imported(_speeds(*files["speed"]))
        if given - {"codes"} not in ({"raw"}, {"score"}) or len(given) < len(sources.paths):
            raise sources.error(
                "these files cannot be imported together",
                "give one of the raw list, benchmark2score and client_spec_speed; real2benchmark only with scores",
            )
        counts: dict[str, int] = {}
        table = _raw(*files["raw"], counts) if "raw" in files else _plain(*files["score"])
        ids = models = table.index.tolist()
        if "codes" in files:
            source, content = files["codes"]
            known = {code: model for code, model in content.items() if model in table.index}
            counts["unknown_codes"] = sum(model == UNKNOWN for model in content.values())
            counts["codes_without_score"] = len(content) - len(known) - counts["unknown_codes"]
            if not known:
                raise source.error("no code names a model with a score")
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
    table = pd.DataFrame(content).reindex(columns=["Model", "AI_Score", "RAM"])
    unnamed = ~table["Model"].map(lambda model: isinstance(model, str) and model != "")
    if unnamed.any():
        number = int(unnamed.to_numpy().argmax()) + 1
        raise UserError("has no 'Model'", where=f"{source.where}, record {number}")
    # In "76206 1,6", the text after the first number is a remnant of the web page.
    for name in ("AI_Score", "RAM"):
        first = table[name].astype(str).str.extract(r"^\s*(\d+(?:\.\d+)?)", expand=False)
        table[name] = first.astype(float)
    scored = table[table["AI_Score"] > 0]
    counts["repeated_models"] = int(scored["Model"].duplicated().sum())
    counts["without_score"] = len(table) - len(scored)
    if scored.empty:
        raise source.error("has no 'AI_Score'")
    last = scored.drop_duplicates("Model", keep="last").set_index("Model")
    last = last.loc[scored["Model"].unique()]
    ram_bytes = last["RAM"].where(last["RAM"] > 0) * GIB
    return pd.DataFrame({"score": last["AI_Score"], "ram_bytes": ram_bytes})


def _plain(source: SourceFile, content: Mapping[str, Any]) -> pd.DataFrame:
    models = list(map(str, content))
    where = [f"{source.where}, {model}" for model in models].__getitem__
    scores = numbers_of(list(content.values()), "the score", where, POSITIVE)
    return pd.DataFrame({"score": scores}, index=models)


def _speeds(source: SourceFile, content: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    ids, records = [str(key) for key in content], list(content.values())

    def column(name: str, unit: str = "") -> Any:
        values = [record.get(name) for record in records]
        where = [f"{source.where}, device {key}" for key in ids].__getitem__
        return numbers_of(values, f"'{name}'", where, POSITIVE, unit, missing=not unit)

    model = [record.get("device") for record in records]
    return {
        "devices": {"device_id": ids, "kind": "phone", "model": model},
        "compute": {
            "device_id": ids,
            "task": "*",
            "phase": "inference",
            "step_fixed_s": 0.0,
            "sample_s": column("speed", "ms per inference") / 1000.0,
            "score": column("cpu_f"),
            "ram_bytes": column("ram") * GIB,
        },
    }
