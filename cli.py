"""Run fedsim from a checkout: ``python cli.py run scenarios/quickstart.yaml``."""

from fedsim.cli import main

if __name__ == "__main__":
    main()
