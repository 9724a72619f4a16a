"""Without Flower, the command says what to install."""

import subprocess
import sys

import pytest

from tests.flower.conftest import HAS_FLOWER


@pytest.mark.skipif(HAS_FLOWER, reason="Flower is installed")
def test_tests_of_the_bridge_need_flower() -> None:
    pytest.skip('the other tests of the bridge need Flower: pip install -e ".[flower]"')


def test_without_flower_the_command_says_what_to_install() -> None:
    code = """
import sys
sys.modules["flwr"] = None
from fedsim.cli import cli
cli.main(["flower", "."])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert 'pip install "fedsim-des[flower]"' in done.stderr
