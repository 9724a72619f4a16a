"""Phones' compute: AI Benchmark scores as FLASH collected them, and Propius' inference times.

Sources: ai-benchmark.com through Yang et al. (FLASH), WWW 2021, ``models/utils/device_util``; Propius
``client_spec_speed`` (milliseconds an inference).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._assemble import (
    STATIC_HORIZON_US,
    bundle,
    devices_table,
    nullable,
)
from fedsim.traces.importers._files import SourceFile, source_files
from fedsim.traces.importers._pickles import load_records
from fedsim.traces.tables import constant_column, id_column, make_table

GIB = 2**30
UNKNOWN = "unknown"


class AiBenchmarkParams(ImporterParams):
    """The AI Benchmark importer has no options of its own."""


class AiBenchmark(Importer):
    """The raw list, ``benchmark2score`` (with ``real2benchmark`` if wanted), or Propius' speeds (JSON or pickle).

    Scores: a device a model; a model listed twice keeps its last score, as in FLASH. With ``real2benchmark`` a device a
    code, those of unknown models dropped. Speeds: a device a record, milliseconds an inference; ``score`` is its
    ``cpu_f``, on a scale of its own. RAM in "GB" is taken as GiB, as phones are sold.
    """

    name: ClassVar[str] = "ai_benchmark"
    description: ClassVar[str] = (
        "AI Benchmark scores (FLASH) and per-device inference speeds (Propius)"
    )
    Params: ClassVar[type[Parameters]] = AiBenchmarkParams

    @classmethod
    def read(cls, paths: Sequence[Path], params: AiBenchmarkParams) -> TraceBundle:
        """See :meth:`Importer.read`."""
        parts: dict[str, tuple[SourceFile, Any]] = {}
        for source in source_files(paths):
            content = load_records(source)
            kind = _kind(source, content)
            if kind in parts:
                raise UserError(f"a second {kind} file", where=source.where, hint="give one")
            parts[kind] = source, content
        counts: dict[str, int] = {}
        caveats = []
        if set(parts) == {"speed"}:
            tables = _speeds(*parts["speed"])
        elif len(parts) - ("codes" in parts) == 1 and "speed" not in parts:
            if "raw" in parts:
                scores, ram = _raw_scores(*parts["raw"], counts)
            else:
                scores, ram = _plain_scores(*parts["score"]), {}
            names = {model: model for model in scores}
            if "codes" in parts:
                names = _codes(*parts["codes"], scores, counts)
            tables = _scores(names, scores, ram)
            caveats.append("scores are relative: they need a reference time to become seconds")
        else:
            raise UserError(
                f"cannot be read together: {', '.join(sorted(parts))}",
                where=", ".join(map(str, paths)),
                hint="give one of the raw list, benchmark2score and client_spec_speed; real2benchmark only with scores",
            )
        return bundle(
            cls,
            params,
            paths,
            tables,
            counts,
            horizon_us=STATIC_HORIZON_US,
            on_end="wrap",
            caveats=caveats,
        )


def _kind(source: SourceFile, content: Any) -> str:
    if isinstance(content, list) and content and all(isinstance(item, dict) for item in content):
        return "raw"
    if isinstance(content, dict) and content:
        values = list(content.values())
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return "score"
        if all(isinstance(value, str) for value in values):
            return "codes"
        if all(isinstance(value, dict) for value in values):
            return "speed"
    raise UserError(
        "is not one of the known files",
        where=source.where,
        hint="give the raw AI Benchmark list, benchmark2score, real2benchmark or client_spec_speed",
    )


def _first_number(text: Any) -> float | None:
    # "76206 1,6": what follows the first number is left over from the web page.
    match = re.match(r"\s*(\d+(?:\.\d+)?)", str(text))
    return float(match.group(1)) if match else None


def _raw_scores(
    source: SourceFile, content: Any, counts: dict[str, int]
) -> tuple[dict[str, float], dict[str, float]]:
    scores: dict[str, float] = {}
    ram: dict[str, float] = {}
    counts |= {"repeated_models": 0, "without_score": 0}
    for number, item in enumerate(content, start=1):
        model = item.get("Model")
        if not isinstance(model, str) or not model:
            raise UserError("has no 'Model'", where=f"{source.where}, record {number}")
        score = _first_number(item.get("AI_Score", ""))
        if not score:
            counts["without_score"] += 1
            continue
        counts["repeated_models"] += model in scores
        scores[model] = score
        size = _first_number(item.get("RAM", ""))
        ram[model] = size * GIB if size else float("nan")
    if not scores:
        raise UserError("has no 'AI_Score'", where=source.where)
    return scores, ram


def _plain_scores(source: SourceFile, content: Mapping[str, Any]) -> dict[str, float]:
    for model, score in content.items():
        if not 0 < score < float("inf"):
            raise UserError(f"the score is {score}", where=f"{source.where}, {model}")
    return {str(model): float(score) for model, score in content.items()}


def _codes(
    source: SourceFile,
    content: Mapping[str, str],
    scores: Mapping[str, float],
    counts: dict[str, int],
) -> dict[str, str]:
    known = {code: model for code, model in content.items() if model in scores}
    counts["unknown_codes"] = sum(model == UNKNOWN for model in content.values())
    counts["codes_without_score"] = len(content) - len(known) - counts["unknown_codes"]
    if not known:
        raise UserError("no code names a model with a score", where=source.where)
    return known


def _scores(
    names: Mapping[str, str], scores: Mapping[str, float], ram: Mapping[str, float]
) -> dict[str, Any]:
    ids = list(names)
    count = len(ids)
    values: dict[str, Any] = {
        "device_id": id_column(np.arange(count), ids),
        "task": constant_column("*", count),
        "phase": constant_column("inference", count),
        "score": np.array([scores[model] for model in names.values()]),
    }
    if ram:
        memory = np.array([ram[model] for model in names.values()])
        values["ram_bytes"] = nullable(memory)
    return {
        "devices": devices_table(
            ids, window_end_us=STATIC_HORIZON_US, kind="phone", model=list(names.values())
        ),
        "compute": make_table("compute", values),
    }


def _speeds(source: SourceFile, content: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    ids = [str(key) for key in content]
    columns: dict[str, list[float]] = {"speed": [], "cpu_f": [], "ram": []}
    for key, record in content.items():
        for field, values in columns.items():
            value = record.get(field)
            if field != "speed" and value is None:
                values.append(float("nan"))
            elif not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise UserError(
                    f"'{field}' is {value!r}; it must be a positive number",
                    where=f"{source.where}, device {key}",
                    hint="speed is in milliseconds an inference",
                )
            else:
                values.append(float(value))
    count = len(ids)
    compute = make_table(
        "compute",
        {
            "device_id": id_column(np.arange(count), ids),
            "task": constant_column("*", count),
            "phase": constant_column("inference", count),
            "step_fixed_s": np.zeros(count),
            "sample_s": np.array(columns["speed"]) / 1000.0,
            "score": nullable(np.array(columns["cpu_f"])),
            "ram_bytes": nullable(np.array(columns["ram"]) * GIB),
        },
    )
    model = [None if (m := record.get("device")) is None else str(m) for record in content.values()]
    devices = devices_table(ids, window_end_us=STATIC_HORIZON_US, kind="phone", model=model)
    return {"devices": devices, "compute": compute}
