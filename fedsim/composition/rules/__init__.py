"""The rules that warn about settings which are legal but probably not intended, as a linter's rules do.

A rule is one function: it yields a warning for each place where it applies, its docstring is its documentation, and
its name, with dashes, is the name by which ``ignore`` in a scenario and ``--ignore`` on the command line silence it.
``fedsim describe rules`` lists all rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

from fedsim.errors import UserError

Facts = TypeVar("Facts")
Check = Callable[..., Iterator[UserError]]
AnyCheck = TypeVar("AnyCheck", bound=Callable[..., Iterator[UserError]])


class RuleTable(Generic[Facts]):
    """The rules that look at the same facts, in the order of their warnings; decorates their functions."""

    def __init__(self) -> None:
        self.checks: dict[str, Check] = {}

    def __call__(self, check: AnyCheck) -> AnyCheck:
        """Add a rule."""
        self.checks[check.__name__.replace("_", "-")] = check
        return check

    def warnings(
        self, facts: Facts, ignored: Collection[str], only: Collection[str] | None = None
    ) -> list[UserError]:
        """The warnings of the rules that are not ignored, or of these only, each with the name of its rule."""
        return [
            UserError(warning.message, where=warning.where, hint=warning.hint, rule=name)
            for name, check in self.checks.items()
            if name not in ignored and (only is None or name in only)
            for warning in check(facts)
        ]
