"""Arguments and options that several commands share."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from fedsim.components import NO_USER_CODE
from fedsim.errors import nearest


class Suggesting(click.Group):
    """A group of commands that suggests the nearest one for a name it does not know."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise click.UsageError(
                f"there is no command '{args[0]}'; {nearest(args[0], known)}"
                f"see {ctx.command_path} --help",
                ctx,
            )
        return super().resolve_command(ctx, args)


scenario_argument = click.argument("scenario", type=click.Path(path_type=Path))
"""The scenario file; missing files are reported by the loader, with what lies beside them."""

override_option = click.option(
    "-s",
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Set a value by its dotted path, such as -s training.optimizer.lr=0.05; may be repeated.",
)

live_option = click.option(
    "--live", is_flag=True, help="Keep report.html up to date: an open page loads itself again."
)

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON for scripts.")


def _refuse_user_code(ctx: click.Context, _: click.Parameter, refused: bool) -> None:
    if refused:
        os.environ[NO_USER_CODE] = "1"
    # Files of users are named on the terminal before they are imported.
    logger = logging.getLogger("fedsim")
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    ctx.call_on_close(lambda: logger.removeHandler(handler))


user_code_option = click.option(
    "--no-user-code",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_refuse_user_code,
    help=f"Refuse to import code that a scenario names (file.py:Class); also {NO_USER_CODE}=1.",
)
"""For the commands that import users' files."""
