"""The command line. The module of a command is imported when the command runs."""

from __future__ import annotations

import atexit
import codecs
import contextlib
import errno
import importlib
import io
import json
import os
import re
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO, cast

import click

from fedsim.errors import FedsimError, UserError, UserErrors, nearest
from fedsim.files.durable import is_disk_full
from fedsim.files.terminal import Escaping
from fedsim.processes.limits import by_limit, is_of_files, more_memory, too_many_files
from fedsim.processes.stopping import Stopped, install

# The short help is here, so that listing the commands imports none of them (and no torch).
COMMANDS = {
    "init": "Write a project to start from.",
    "run": "Run a scenario.",
    "resume": "Finish a run that was interrupted.",
    "ls": "List runs and sweeps.",
    "watch": "Follow a run, a sweep, or a folder of them.",
    "report": "Rebuild a run's report page.",
    "compare": "Compare runs on one page.",
    "what-if": "Run a run again with a change.",
    "flower": "Run a Flower app on simulated devices.",
    "sweep": "Run every combination of a scenario's sweep.",
    "decide": "Find the best settings of a scenario.",
    "forecast": "Forecast how long a scenario will take.",
    "board": "Compare methods on frozen scenarios.",
    "verify": "Check the files of runs, sweeps and trace bundles.",
    "scenario": "Check, show and describe scenarios.",
    "describe": "Describe a part: parameters, defaults, units, paper, example.",
    "docs": "Read the documentation.",
    "traces": "Import, synthesize, inspect and validate traces.",
    "data": "List and prepare data sets.",
    "calibrate": "Make a trace bundle from the log of a real run.",
    "export": "Export a run for other tools.",
}
_LEAST_BYTES, _LEAST_FILES = 1 << 30, 64
_OF_A_PATH = (
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENXIO),
    *(errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR),  # Changed while it was in use.
)
_OF_A_STREAM = (errno.EBADF, errno.EIO, errno.ECONNRESET)
"""Of a stream that is closed, and a terminal or a connection that is gone."""
_OF_RUN = ("run", "resume", "report", "export")
"""Commands that share a module."""

EXIT_DEFECT, EXIT_USER = 1, 2
EXIT_CODE = "fedsim.exit_code"
"""In the ``meta`` of Click's context, what a command will return that prints first, for a reader who may be gone."""


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
            hint = f"{nearest(args[0], known) or next(inside, '')}see {ctx.command_path} --help"
            raise UserError(f"there is no command '{args[0]}'", hint=hint)
        return super().resolve_command(ctx, args)


class Commands(Suggesting):
    """The group of all commands, each ``command`` of the module with its name, or a function of ``run``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, if there is one."""
        if cmd_name not in COMMANDS:
            return None
        module, name = (
            ("run", cmd_name) if cmd_name in _OF_RUN else (cmd_name.replace("-", "_"), "command")
        )
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def _main_shell_completion(self, *names: Any) -> None:
        # A shell says in variables what is to be completed.
        with contextlib.suppress(LookupError, ValueError):
            super()._main_shell_completion(*names)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; --help and --version print, perhaps for a reader who has seen enough."""
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError:
            _drop_output()
            ctx.exit()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader of the output that has seen enough (head, less) is not an error."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError as error:
            from fedsim.parts.component import users_line

            # Without its number, for which Click ends silently.
            if users_line(error) is not None or not _has_lost_reader():
                raise ConnectionError(str(error)).with_traceback(error.__traceback__) from None
            _drop_output()
        except SystemExit as error:
            if not isinstance(error.__context__, BrokenPipeError):  # Of a table by rich.
                raise
        return ctx.meta.get(EXIT_CODE, 0)

    def main(self, args: Sequence[str] | None = None, **settings: Any) -> Any:  # type: ignore[override]
        """Run a command line and exit with its :meth:`exit_code`."""
        sys.exit(self.exit_code(args, **settings))

    def exit_code(self, args: Sequence[str] | None = None, **settings: Any) -> int:
        """Run a command line.

        Returns:
            0 done, 2 a mistake in the input, 1 a bug in fedsim, 130 interrupted, 128 + n ended by signal n.
        """
        streams = Escaping(sys.stdout), Escaping(sys.stderr)
        try:
            install()
            with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
                return self._exit_code(args, **settings)
        except Stopped as error:  # Before the command, or after it.
            return _stopped(error.signal_number)

    def _exit_code(self, args: Sequence[str] | None, **settings: Any) -> int:
        arguments = sys.argv[1:] if args is None else list(args)
        show = _show_json if "--json" in arguments else _show
        try:
            os.getcwd()  # torch ends the process if its working folder is gone.
            _require_limits()
            # Its streams show styles in the text of files, which Click would remove.
            settings |= {"standalone_mode": False, "obj": arguments, "color": True}
            result = super().main(list(arguments), **settings)
        except UserError as error:
            errors = error.errors if isinstance(error, UserErrors) else (error,)
            has_too_many = any(is_of_files(each.__cause__) for each in errors)
            show([too_many_files()] if has_too_many else errors)
            for note in getattr(error, "__notes__", ()):
                click.echo(note, err=True)
            return EXIT_USER
        except click.ClickException as error:
            if show is _show and isinstance(error, click.exceptions.NoArgsIsHelpError):
                error.show()
            else:
                context = error.ctx if isinstance(error, click.UsageError) else None
                hint = f"see {context.command_path} --help" if context else None
                text = error.format_message().replace("\n\t", " ").removesuffix(".")
                show([UserError(f"{text[:1].lower()}{text[1:]}", hint=hint)])
            return EXIT_USER
        except (click.Abort, KeyboardInterrupt) as error:
            # Click turns KeyboardInterrupt (and so Stopped) and EOFError, which a lost process causes, into Abort.
            cause = error.__cause__ or error
            if isinstance(cause, EOFError):
                return self._failed(cause, show)
            return _stopped(cause.signal_number if isinstance(cause, Stopped) else signal.SIGINT)
        except BaseException as error:
            error = _with_text(error)
            # Pydantic keeps only the text of what a signal raises while it builds the reader of a class.
            if by := re.search(rf"\b{Stopped.__name__}: (SIG[A-Z]+)", str(error)):
                return _stopped(signal.Signals[by[1]])
            return self._failed(error, show)
        return result if isinstance(result, int) else 0

    def _failed(self, error: BaseException, show: Callable[[Iterable[UserError]], None]) -> int:
        is_refused = is_disk_full(error) or getattr(error, "errno", None) in _OF_A_STREAM
        if isinstance(error, OSError) and error.filename is None and is_refused:
            _drop_output()
            text = "error: cannot write the standard output or a temporary file"
            click.echo(f"{text}: {error.strerror}", err=True)
            return EXIT_USER
        if (refused := _by_system(error)) is not None:
            show([refused])
            return EXIT_USER
        from fedsim.parts.component import has_user_code, users_line, users_report

        # What to do next belongs below the error, not into the traceback.
        notes, error.__notes__ = getattr(error, "__notes__", []), []
        if (report := users_report(error)) is not None:
            # Its author needs the lines of the file, but none of fedsim's.
            click.echo(report, err=True, nl=False)
            where = users_line(error)
            show([UserError("your own code failed with the error above", where=where)])
            for note in notes:
                click.echo(note, err=True)
            return EXIT_USER
        if isinstance(error, SystemExit):
            raise error
        traceback.print_exc()
        kind = "" if isinstance(error, FedsimError) else f"{type(error).__name__}: "
        hint = "This is a bug in fedsim; please report it with the lines above."
        if has_user_code():
            hint = "If your own code did not cause it, for example by a return value, this is a bug; please report it."
        show([UserError(f"internal error: {kind}{error}", hint=hint)])
        return EXIT_DEFECT


def _stopped(number: int) -> int:
    is_by_user = number == signal.SIGINT
    click.echo(
        "interrupted" if is_by_user else f"stopped by {signal.Signals(number).name}", err=True
    )
    return 128 + number


def _show(errors: Iterable[UserError]) -> None:
    for error in errors:
        click.echo(f"error: {error}", err=True)


def _show_json(errors: Iterable[UserError]) -> None:
    rows = [{key: getattr(error, key) for key in ("where", "message", "hint")} for error in errors]
    try:
        click.echo(json.dumps({"errors": rows}, indent=2))
    except OSError:  # The exit code says it as well.
        _drop_output()


def _require_limits() -> None:
    """Refuse limits with which libraries cannot be loaded: without memory, OpenBLAS tries again, forever."""
    with contextlib.suppress(ImportError):  # Windows.
        import resource

        if resource.getrlimit(resource.RLIMIT_NOFILE)[0] in range(_LEAST_FILES):
            raise too_many_files()
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit in range(_LEAST_BYTES):
            raise UserError("out of memory", hint=more_memory())


def _with_text(error: BaseException) -> BaseException:
    """The error, or one with its traceback if a user's class fails to say what it is."""
    try:
        str(error)
    except Exception:
        name = type(error).__name__
        return RuntimeError(f"{name}, whose __str__ fails").with_traceback(error.__traceback__)
    return error


def _by_system(error: BaseException) -> UserError | None:
    """The error for what the operating system refuses; None for others, and for those of a path in users' code."""
    if (limited := by_limit(error, is_users=True)) is not None:
        return limited
    # Without memory or another open file, nothing can be imported.
    from fedsim.parts.component import users_traceback

    if users_traceback(error) is not None:
        return None
    if isinstance(error, OSError) and error.filename and error.errno in _OF_A_PATH:
        return UserError(str(error.strerror), where=error.filename)
    if isinstance(error, FileNotFoundError) and error.filename is None:  # Of os.getcwd.
        return UserError("the working folder no longer exists")
    if (limited := by_limit(error)) is not None:
        return limited
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
        return UserError(f"{error}: the link leads to itself")  # Of Path.resolve.
    if isinstance(error, UnicodeEncodeError):
        name = error.object[max(0, error.start - 60) : error.end + 20]
        if "surrogates" in error.reason:
            return UserError("a name is not UTF-8", where=name, hint="rename the file or folder")
        if codecs.lookup(error.encoding) == codecs.lookup(sys.getfilesystemencoding()):
            hint = "choose another name (-o), or a locale of UTF-8: LC_ALL=C.UTF-8"
            return UserError(f"names are {error.encoding} in this locale", where=name, hint=hint)
    return None


def _has_lost_reader() -> bool:
    """Whether nobody reads the output; what cannot be known is assumed. Pipes to processes break, too."""
    try:
        streams = select.poll()
        for stream in (sys.stdout, sys.stderr):
            streams.register(stream.fileno(), 0)
        return bool(streams.poll(0))
    except (AttributeError, OSError, ValueError):  # Windows; a stream without a number.
        return True


def _drop_output(stream: TextIO | None = None) -> None:
    """Let nothing more be written to a stream (standard output), so that Python does not fail when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


class _Notes(Escaping):
    """Standard error; if its reader is gone or its disk is full, progress and warnings are dropped."""

    def write(self, text: str) -> int:
        try:
            return self.styled.write(text)
        except OSError:
            _drop_output(self.styled)
            return len(text)

    def flush(self) -> None:
        try:
            self.styled.flush()
        except OSError:
            _drop_output(self.styled)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(package_name="fedsim-des", message="fedsim %(version)s")
def cli() -> None:
    """Simulate federated learning on realistic devices: time is simulated, models are trained for real.

    Start with `fedsim run quickstart`, or write a project of your own with `fedsim init`; `fedsim scenario list` lists
    more scenarios, and `fedsim docs` all pages of the documentation.
    """


def main() -> None:
    """The console script."""
    code = command_line()
    # Not the last steps of the interpreter, in which threads of Arrow may abort the process.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def command_line() -> int:
    """Run the command line of this process; returns its exit code."""
    # The processes it starts import no file of the working folder, as this one does not.
    os.environ["PYTHONSAFEPATH"] = "1"
    # Files have no dates, and NumPy fails if it is no number.
    os.environ.pop("SOURCE_DATE_EPOCH", None)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Closed by a service manager or by pythonw: nothing can be read or shown, and no other file may get its number.
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    with contextlib.suppress(OSError):
        # Python would lose what a pipe that does not wait has no room for.
        os.set_blocking(sys.stdout.fileno(), True)
    # A pipe may have taken the place of a file. Of stderr, this is the default.
    with contextlib.suppress(OSError):
        cast(io.TextIOWrapper, sys.stdout).reconfigure(errors="backslashreplace")
    sys.stderr = cast(TextIO, _Notes(sys.stderr))
    return cli.exit_code(prog_name="fedsim")
