"""Scenarios as YAML text."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq

from fedsim.parts.component import is_user_reference


def to_yaml(data: Any) -> str:
    """Plain data as YAML in the order of its keys; lists of plain values are on one line."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 120
    yaml.representer.add_representer(
        type(None),
        lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null"),
    )
    stream = io.StringIO()
    yaml.dump(_flowing(data), stream)
    return stream.getvalue()


def relocated(value: Any, folder: Path) -> Any:
    """Plain data for a file in ``folder``: paths of files that share a folder with it are relative, others stay."""
    if isinstance(value, dict):
        return {key: relocated(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [relocated(item, folder) for item in value]
    if not isinstance(value, str) or not os.path.isabs(value):
        return value
    path = Path(value)
    is_file = path.exists() or is_user_reference(value)
    shared = os.path.commonpath([path, folder]) != path.anchor
    return os.path.relpath(path, folder) if is_file and shared else value


def _flowing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _flowing(item) for key, item in value.items()}
    if isinstance(value, list):
        sequence = CommentedSeq(_flowing(item) for item in value)
        if not any(isinstance(item, dict) for item in value):
            sequence.fa.set_flow_style()
        return sequence
    return value
