"""A run that is interrupted after a few rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.composition.execution import Progress
from tests.composition.worlds import digits


def interrupted(path: Path, after: int = 1, **changes: Any) -> None:
    """A run of 50 rounds that ends ``after`` some of them; from about 20 on, a checkpoint may have been written."""

    def interrupt(progress: Progress) -> None:
        if progress.rounds >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedsim.run(digits(stop={"rounds": 50}, **changes), path, on_progress=interrupt)
