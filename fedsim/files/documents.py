"""JSON as fedsim reads it, and writes it to files and for scripts."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any


def json_text(data: Any, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Plain data as JSON, in which numbers that are not finite are null, because JSON has no word for them."""
    written = functools.partial(json.dumps, indent=indent, sort_keys=sort_keys, allow_nan=False)
    try:
        return written(data)
    except (TypeError, ValueError):  # other mappings, or a number that is not finite
        return written(_finite(data))


def parsed(text: str | bytes, *, unique: bool = False) -> Any:
    """The data in JSON.

    Args:
        text: the JSON.
        unique: refuse an object that has a name twice; otherwise the last value counts.

    Raises:
        ValueError: it is not JSON, or too deep to be read.
    """
    try:
        return json.loads(text, object_pairs_hook=_once if unique else None)
    except RecursionError:
        raise ValueError("its lists and objects are nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in content if names.count(name) > 1)
        raise ValueError(f"an object has the name {twice!r:.80} twice")
    return content


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    return list(map(_finite, data)) if isinstance(data, list | tuple) else data
