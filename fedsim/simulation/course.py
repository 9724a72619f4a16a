"""The course of a dispatch: the result of its life, as readers use it."""

from __future__ import annotations

from typing import NamedTuple

from fedsim.vocabulary.outcomes import Ending


class Plan(NamedTuple):
    """The course of a dispatch.

    Attributes:
        end_ns: when it arrives or is dropped; NEVER if it hangs forever, in which case the other fields are
            meaningless.
        ending: whether it arrives, and why not.
        downloaded_ns, computed_ns: ends of the first two phases; -1 for one that does not end.
        steps_done: local steps done by the end.
        bytes_down, bytes_up: bytes that crossed the network by the end.
        download_ns, compute_ns, upload_ns: time at work in each phase, without pauses.
    """

    end_ns: int
    ending: Ending
    downloaded_ns: int
    computed_ns: int
    steps_done: int
    bytes_down: float
    bytes_up: float
    download_ns: int
    compute_ns: int
    upload_ns: int
