"""The builder of synthetic runs is shared with the tests of the run folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))
