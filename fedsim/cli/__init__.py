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

from fedsim.errors import FedsimError, UserError, UserErrors

# The short help stands here, so that listing the commands imports none of them (and no torch).
COMMANDS = {
    "run": "Run a scenario.",
    "resume": "Finish a run that was interrupted.",
    "report": "Write a run's report page anew.",
    "compare": "Compare runs on one page.",
    "sweep": "Run every combination of a scenario's sweep.",
    "verify": "Check the files of runs, sweeps and trace bundles.",
    "scenario": "Check, show and describe scenarios.",
    "methods": "List and describe the methods.",
    "traces": "Import, synthesize, inspect and validate traces.",
    "data": "List and prepare data sets.",
    "export": "Export a run for other tools.",
}

EXIT_DEFECT = 1
EXIT_USER = 2
EXIT_INTERRUPTED = 130


class Commands(click.Group):
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

    def main(self, args: Sequence[str] | None = None, **settings: Any) -> Any:  # type: ignore[override]
        """Run a command line and exit: 0 done, 2 the user's mistake, 1 a defect of fedsim, 130 interrupted."""
        sys.exit(self._exit_code(args, settings))

    def _exit_code(self, args: Sequence[str] | None, settings: dict[str, Any]) -> int:
        try:
            result = super().main(args, **{**settings, "standalone_mode": False})
        except UserError as error:
            for one in error.errors if isinstance(error, UserErrors) else (error,):
                click.echo(f"error: {one}", err=True)
            return EXIT_USER
        except click.ClickException as error:
            error.show()
            return EXIT_USER
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            # The reader of our output (head, less) has seen enough; Python must not complain when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception as error:
            from fedsim.components import users_traceback

            users = users_traceback(error)
            if users is not None:
                # Whoever mends it needs the lines of the file, but none of ours above them.
                traceback.print_exception(type(error), error, users)
                click.echo(
                    f"error: {users.tb_frame.f_code.co_filename}: a part of your own failed with the lines above",
                    err=True,
                )
                return EXIT_USER
            traceback.print_exc()
            kind = "" if isinstance(error, FedsimError) else f"{type(error).__name__}: "
            click.echo(
                f"internal error: {kind}{error}\nThis is a defect of fedsim; please report it with the lines above.",
                err=True,
            )
            return EXIT_DEFECT
        return result if isinstance(result, int) else 0


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

    Start with `fedsim run scenarios/quickstart.yaml`; `fedsim scenario list` shows what else there is.
    """


def main() -> None:
    """The console script."""
    cli.main(prog_name="fedsim")
