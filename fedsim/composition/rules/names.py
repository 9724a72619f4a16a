"""The names of all rules, and their documentation."""

from __future__ import annotations

import inspect
from collections.abc import Collection

from fedsim.composition.rules.finished import FINISHED
from fedsim.composition.rules.planned import PLANNED
from fedsim.errors import UserError, nearest_or_all, raise_all


def documentation() -> dict[str, str]:
    """What every rule warns about, by its name."""
    checks = {**FINISHED.checks, **PLANNED.checks}
    return {name: inspect.getdoc(check) or "" for name, check in sorted(checks.items())}


def check_names(ignored: Collection[str]) -> None:
    """Refuse names of rules that do not exist.

    Raises:
        UserError: one of them.
    """
    rules = documentation() if ignored else {}
    raise_all(
        UserError(
            f"there is no rule '{name}'",
            where=f"ignore.{index}",
            hint=nearest_or_all(name, rules, "fedsim describe rules lists them"),
        )
        for index, name in enumerate(ignored)
        if name not in rules
    )
