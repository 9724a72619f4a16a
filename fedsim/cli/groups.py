"""Groups of commands. This module imports nothing large, so that ``fedsim --help`` is quick."""

from __future__ import annotations

import click

from fedsim.errors import UserError, nearest

_VERBS = ("check", "validate", "verify")
"""Commands that check something: a scenario, a trace bundle, the files of a run."""


class Suggesting(click.Group):
    """A group of commands that suggests the nearest one, or one of a group in it, for a name it does not know."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            inside = (
                f"did you mean '{ctx.command_path} {name} {args[0]}'? "
                for name in known
                if isinstance(group := self.get_command(ctx, name), click.Group)
                and args[0] in group.list_commands(ctx)
            )
            same = next((name for name in known if name in _VERBS and args[0] in _VERBS), "")
            hint = (
                nearest(args[0], known)
                or next(inside, "")
                or (f"did you mean '{same}'? " if same else "")
            )
            raise UserError(
                f"there is no command '{args[0]}'", hint=f"{hint}see {ctx.command_path} --help"
            )
        return super().resolve_command(ctx, args)
