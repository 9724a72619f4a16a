"""Methods of federated learning, one file each; :mod:`fedsim.methods.base` is the interface."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.components import discover
from fedsim.methods.base import Method


def registry() -> Mapping[str, type[Method]]:
    """The methods that ship with fedsim, by name."""
    return discover("fedsim.methods", Method)
