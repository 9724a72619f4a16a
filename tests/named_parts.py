"""The parts that ship with fedsim, as kind and name."""

from fedsim.parts.catalog import CATALOG

PARTS = [(kind, name) for kind, entry in CATALOG.kinds.items() for name in sorted(entry.registry())]
