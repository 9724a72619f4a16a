"""fedsim: trace-driven discrete-event simulation of federated learning on heterogeneous devices.

>>> import fedsim
>>> run = fedsim.run("quickstart")  # doctest: +SKIP
>>> run.metrics.tail()  # doctest: +SKIP

``run``, ``resume``, ``sweep`` and ``what_if`` simulate; ``decide`` finds the best settings, and ``forecast`` says how
long a scenario will take; ``load`` opens a run folder, ``ls`` lists several, ``compare`` compares them;
``read_scenario`` checks a scenario. Runs are ``Run`` objects, whose tables are pandas DataFrames.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.analysis.comparison import Comparison as Comparison
    from fedsim.analysis.run import Run as Run
    from fedsim.api import compare as compare
    from fedsim.api import decide as decide
    from fedsim.api import forecast as forecast
    from fedsim.api import load as load
    from fedsim.api import ls as ls
    from fedsim.api import read_scenario as read_scenario
    from fedsim.api import resume as resume
    from fedsim.api import run as run
    from fedsim.api import sweep as sweep
    from fedsim.api import what_if as what_if

__all__ = [
    "Comparison",
    "Run",
    "__version__",
    "compare",
    "decide",
    "forecast",
    "load",
    "ls",
    "read_scenario",
    "resume",
    "run",
    "sweep",
    "what_if",
]

_HOMES = {"Run": "fedsim.analysis.run", "Comparison": "fedsim.analysis.comparison"}


def __getattr__(name: str) -> Any:
    # Loaded when first used, because torch takes a second to import and many commands do not need it.
    if name == "__version__":
        metadata = importlib.import_module("importlib.metadata")
        try:
            return metadata.version("fedsim-des")
        except metadata.PackageNotFoundError:
            return "0+unknown"
    if name in __all__:
        return getattr(importlib.import_module(_HOMES.get(name, "fedsim.api")), name)
    raise AttributeError(f"module 'fedsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    # A notebook completes these names before they are loaded; of the others, none is public.
    return sorted(__all__)
