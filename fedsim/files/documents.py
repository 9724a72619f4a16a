"""JSON as fedsim reads it, and writes it to files and for scripts."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any

from fedsim.errors import reason
from fedsim.files.delimited import repeated


def json_text(data: Any, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Plain data as JSON, in which numbers that are not finite are null, because JSON has no word for them."""
    written = functools.partial(json.dumps, indent=indent, sort_keys=sort_keys, allow_nan=False)
    try:
        return written(data)
    except (TypeError, ValueError):  # other mappings, or a number that is not finite
        return written(_finite(data))


def parsed(text: str | bytes) -> Any:
    """The data in JSON.

    Raises:
        ValueError: it is not JSON, too deep to be read, or has a key twice in an object.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("its lists and objects are nested too deeply") from None
    except ValueError as error:
        raise (
            error if isinstance(error, json.JSONDecodeError) else ValueError(reason(error))
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError(f"the key '{repeated(key for key, _ in pairs)}' appears twice")
    return content


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    return list(map(_finite, data)) if isinstance(data, list | tuple) else data
