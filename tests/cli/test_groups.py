"""Groups of commands: an unknown one is answered with the nearest."""

from __future__ import annotations

import pytest

from tests.cli.invoking import assert_refused, invoke


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["rnu"], ["there is no command 'rnu'", "did you mean 'run'?", "--help"]),
        (["check"], ["did you mean 'cli scenario check'?"]),
        (["traces", "check"], ["did you mean 'validate'?"]),
        (["traces", "inspekt"], ["'inspekt'", "did you mean 'inspect'?", "traces --help"]),
    ],
)
def test_an_unknown_command(words: list[str], fragments: list[str]) -> None:
    assert_refused(invoke(*words), *fragments)
