"""FedAlt against its card: worked iterates in exact fractions."""

from __future__ import annotations

from tests.methods.personal_worlds import CASE_A, Story, close, coupled, exact, history


def test_fedalt_of_case_a() -> None:
    """K steps on v with u frozen, then K steps on u with the new v frozen."""
    story = Story("fedalt", coupled(CASE_A)).rounds([[0, 1]] * 2)
    expected = ["-9/2048 15/32 0", "-382875/8388608 108615/131072 135/131072"]
    for row, numbers in zip(history(story, "uv"), expected, strict=True):
        close(row, exact(numbers))
