"""The figures of a paper to compare with: ``reference.yaml`` in a sweep's folder or next to its scenario.

.. code-block:: yaml

    source: Li et al. 2024 (FedCompass), Table 1
    baseline: FedCompass              # optional: variant that times are relative to; --baseline overrides it
    targets: [accuracy=0.9]           # optional; --target overrides them
    labels: {fedcompass: FedCompass}  # optional: other names for variants and settings
    settings: [server.selection]      # optional: paths in the server section that name settings, not variants
    tables:
      - title: Table 1, relative time to 90% on MNIST
        quantity: relative_time       # or time_s, compute_s, bytes, round, version, final, best
        target: accuracy=0.9          # final and best take a metric instead
        values:                       # variant: value; or setting: {variant: value}
          class, normal: {FedAvg: 1.47, FedAsync: "-"}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from fedsim.analysis.comparison.targets import Target
from fedsim.errors import UserError
from fedsim.parts.component import Parameters
from fedsim.scenario.problems import all_errors, problems
from fedsim.scenario.source import read_yaml

REFERENCE = "reference.yaml"

Cell = float | str | None
Quantity = Literal[
    "relative_time", "time_s", "compute_s", "bytes", "round", "version", "final", "best"
]


class ReferenceTable(Parameters):
    """One table of a paper."""

    title: str
    """Its title."""
    quantity: Quantity
    """The quantity of its numbers."""
    target: str | None = None
    """Target that times and costs are taken at, such as accuracy=0.9."""
    metric: str = "accuracy"
    """Metric of final and best."""
    values: dict[str, Cell | dict[str, Cell]]
    """Value by variant, or by setting and variant; a dash or null if the paper has none."""

    @model_validator(mode="after")
    def _has_a_target(self) -> ReferenceTable:
        if self.quantity not in ("final", "best") and self.target is None:
            raise ValueError(f"a table of {self.quantity} needs a target")
        return self

    def cells(self) -> Iterator[tuple[str | None, str, Cell]]:
        """Setting (None if the table has none), variant and value."""
        for name, value in self.values.items():
            if isinstance(value, dict):
                for label, inner in value.items():
                    yield name, label, inner
            else:
                yield None, name, value


class Reference(Parameters):
    """A paper's figures."""

    source: str
    """The paper and the place in it."""
    baseline: str | None = None
    """Variant that times are relative to."""
    targets: list[str] = []
    """Targets of the comparison."""
    labels: dict[str, str] = Field(default={})
    """Other names for variants and settings."""
    settings: list[str] = []
    """Dotted paths in the server section whose values name settings (such as patterns of participation), if every
    variant was run with every one of them."""
    tables: list[ReferenceTable] = []
    """Tables; a table is shown if at least one of its values was run."""


def read_reference(path: Path) -> Reference:
    """Read a file of a paper's figures."""
    source = read_yaml(path)
    try:
        reference = Reference.model_validate(source.data)
        for table in reference.tables:
            if table.target is not None:
                Target.parse(table.target)
    except ValidationError as error:
        raise all_errors(problems(error, source.data), source) from None
    except UserError as error:
        raise UserError(error.message, where=f"{path}: {error.where}", hint=error.hint) from None
    return reference
