"""Methods of federated learning, one file each; :mod:`fedsim.methods.base` is the interface."""

from __future__ import annotations

from fedsim.components import discover
from fedsim.methods.base import Method


def registry() -> dict[str, type[Method]]:
    """The methods that ship with fedsim, by name."""
    return discover("fedsim.methods", Method)
