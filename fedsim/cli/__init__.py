"""The command line: one file a command, imported when that command runs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from fedsim.cli.options import Suggesting
from fedsim.durable import is_disk_full
from fedsim.errors import FedsimError, UserError, UserErrors
from fedsim.stopping import Stopped, install

# The short help stands here, so that listing the commands imports none of them (and no torch).
COMMANDS = {
    "init": "Write a project to start from.",
    "run": "Run a scenario.",
    "resume": "Finish a run that was interrupted.",
    "watch": "Follow a run or a sweep.",
    "report": "Write a run's report page anew.",
    "compare": "Compare runs on one page.",
    "flower": "Run a Flower app on simulated devices.",
    "sweep": "Run every combination of a scenario's sweep.",
    "verify": "Check the files of runs, sweeps and trace bundles.",
    "scenario": "Check, show and describe scenarios.",
    "describe": "Describe a part: parameters, defaults, units, paper, example.",
    "methods": "List and describe the methods.",
    "traces": "Import, synthesize, inspect and validate traces.",
    "data": "List and prepare data sets.",
    "calibrate": "Make a trace bundle from the log of a real run.",
    "export": "Export a run for other tools.",
}

EXIT_DEFECT = 1
EXIT_USER = 2
EXIT_SIGNAL = 128
"""Plus the number of the signal that ended the command."""
EXIT_INTERRUPTED = EXIT_SIGNAL + 2


class Commands(Suggesting):
    """The group of all commands, each the ``command`` of a module of this package with its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands of this installation."""
        return [name for name in COMMANDS if importlib.util.find_spec(f"{__name__}.{name}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, if there is one."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader of the output that has seen enough (head, less) is not an error."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _drop_output()
            return 0
        return result

    def main(self, args: Sequence[str] | None = None, **settings: Any) -> Any:  # type: ignore[override]
        """Run a command line and exit.

        Exit codes: 0 done, 2 a mistake in the input, 1 a defect of fedsim, 130 interrupted, 128 + n ended by signal n.
        """
        sys.exit(self._exit_code(args, settings))

    def _exit_code(self, args: Sequence[str] | None, settings: dict[str, Any]) -> int:
        install()
        try:
            result = super().main(args, **{**settings, "standalone_mode": False})
        except UserError as error:
            for one in error.errors if isinstance(error, UserErrors) else (error,):
                click.echo(f"error: {one}", err=True)
            return EXIT_USER
        except click.ClickException as error:
            error.show()
            return EXIT_USER
        except (click.Abort, KeyboardInterrupt) as error:
            # Click turns a KeyboardInterrupt, which Stopped is, into an Abort.
            cause = error.__cause__ or error
            if isinstance(cause, Stopped):
                click.echo(f"stopped by {cause}", err=True)
                return EXIT_SIGNAL + cause.signal_number
            click.echo("interrupted", err=True)
            return EXIT_INTERRUPTED
        except OSError as error:
            if error.filename is not None or not is_disk_full(error):
                return self._defect(error)
            _drop_output()
            click.echo(f"error: cannot write: {error.strerror}", err=True)
            return EXIT_USER
        except Exception as error:
            return self._defect(error)
        return result if isinstance(result, int) else 0

    def _defect(self, error: Exception) -> int:
        """Show an error that is nobody's mistake in the input: that of a user's part, or a defect of fedsim."""
        from fedsim.components import users_traceback

        users = users_traceback(error)
        if users is not None:
            # Its author needs the lines of the file, but none of fedsim's above them.
            traceback.print_exception(type(error), error, users)
            file = users.tb_frame.f_code.co_filename
            click.echo(f"error: {file}: your own part failed with the lines above", err=True)
            return EXIT_USER
        traceback.print_exc()
        kind = "" if isinstance(error, FedsimError) else f"{type(error).__name__}: "
        click.echo(
            f"internal error: {kind}{error}\nThis is a defect of fedsim; please report it with the lines above.",
            err=True,
        )
        return EXIT_DEFECT


def _drop_output() -> None:
    """Let nothing more be written to standard output, so that Python does not fail when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        click.echo(f"fedsim {version('fedsim-des')}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Simulate federated learning on devices as they really are: in simulated time, with real training.

    Start with `fedsim run quickstart`, or write a project of your own with `fedsim init`; `fedsim scenario list` shows
    what else there is.
    """


def main() -> None:
    """The console script."""
    cli.main(prog_name="fedsim")
