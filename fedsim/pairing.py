"""How clients are paired with the devices of a trace bundle."""

from typing import Literal

Pairing = Literal["in_order", "sample", "by_name"]
"""Client i is device i, a device drawn with replacement, or the device of its name; see ``devices.assign``."""
