"""``fedsim`` and ``python -m fedsim``: the command line, which Ctrl-C may end while it is imported."""

import sys


def main() -> None:
    """The command line."""
    try:
        from fedsim.cli import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
