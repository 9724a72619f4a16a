"""A table of rules: every warning carries the name of its rule, and ignored rules are not asked."""

from collections.abc import Iterator

from fedsim.composition.rules import RuleTable
from fedsim.errors import UserError


def test_warnings_carry_the_names_of_their_rules() -> None:
    table: RuleTable[int] = RuleTable()

    @table
    def odd_number(value: int) -> Iterator[UserError]:
        """The number is odd."""
        if value % 2:
            yield UserError(f"{value} is odd", where="here", hint="add 1")

    @table
    def negative(value: int) -> Iterator[UserError]:
        """The number is negative."""
        if value < 0:
            yield UserError(f"{value} is negative")

    def warned(value: int, **options: list[str]) -> list[str | None]:
        ignored = options.get("ignored", [])
        return [each.rule for each in table.warnings(value, ignored, options.get("only"))]

    assert (warned(2), warned(-3)) == ([], ["odd-number", "negative"])
    assert warned(-3, ignored=["odd-number"]) == ["negative"]
    assert warned(-3, only=["odd-number"]) == ["odd-number"]
    (warning,) = table.warnings(5, ())
    assert (warning.message, warning.where, warning.hint) == ("5 is odd", "here", "add 1")
