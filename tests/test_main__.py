"""The entry point of the command line."""

import subprocess
import sys


def test_ctrl_c_may_come_while_the_command_line_is_imported() -> None:
    code = (
        "import sys, types; from fedsim.__main__ import main\n"
        "class Interrupted(types.ModuleType):\n"
        "    def __getattr__(self, name): raise KeyboardInterrupt\n"
        "sys.modules['fedsim.cli'] = Interrupted('fedsim.cli'); main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
