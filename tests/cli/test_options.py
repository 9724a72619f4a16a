"""Options that several commands share."""

import pytest
from click.testing import CliRunner

from fedsim.cli import cli


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fedsim describe fedb", "plain,fedbuff"),
        ("fedsim run quick", "plain,quickstart"),
        ("fedsim run mine", "file,mine"),
        ("fedsim init -t own-da", "plain,own-data"),
        ("fedsim traces import flas", "plain,flash"),
        ("fedsim traces synthesize desk", "plain,desktop"),
        ("fedsim run quickstart -s training.batch_s", "plain,training.batch_size="),
        ("fedsim sweep quickstart -s server.schedule.dead", "plain,server.schedule.deadline="),
        ("fedsim traces inspect builtin:phones_w", "plain,builtin:phones_week"),
        ("fedsim traces inspect builtin : phones_w", "plain,phones_week"),
    ],
)
def test_the_shell_completes_names(words: str, expected: str) -> None:
    variables = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    result = CliRunner().invoke(
        cli, prog_name="fedsim", env={"_FEDSIM_COMPLETE": "bash_complete", **variables}
    )
    assert expected in result.output.splitlines()
