"""Scenarios as YAML text."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq


def to_yaml(data: Any) -> str:
    """Plain data as YAML in the order of its keys; lists of plain values stand on one line."""
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


def _flowing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _flowing(item) for key, item in value.items()}
    if isinstance(value, list):
        sequence = CommentedSeq(_flowing(item) for item in value)
        if not any(isinstance(item, dict) for item in value):
            sequence.fa.set_flow_style()
        return sequence
    return value
