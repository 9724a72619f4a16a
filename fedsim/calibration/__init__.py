"""Calibration: from the log of a real run to a trace bundle whose simulation has the same times."""

from __future__ import annotations

from fedsim.calibration.calibrating import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
