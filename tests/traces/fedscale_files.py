"""FedScale's files of clients, as tests write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def client(
    active: list[int], inactive: list[int], finish: int = 86400, **more: Any
) -> dict[str, Any]:
    return {"active": active, "inactive": inactive, "finish_time": finish, "model": "M", **more}


def behaviour(path: Path, clients: dict[Any, Any]) -> Path:
    path.write_text(json.dumps(clients))
    return path
