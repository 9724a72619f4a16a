"""``python -m fedsim``: the command line without the console script."""

from fedsim.cli import main

if __name__ == "__main__":
    main()
