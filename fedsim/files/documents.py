"""JSON as fedsim writes it, to files and for scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def json_text(data: Any, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Plain data as JSON, in which numbers that are not finite are null, because JSON has no word for them."""
    return json.dumps(_finite(data), indent=indent, sort_keys=sort_keys, allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    return list(map(_finite, data)) if isinstance(data, list | tuple) else data
