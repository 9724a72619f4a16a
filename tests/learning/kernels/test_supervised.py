"""Mini-batches of a group."""

from __future__ import annotations

import torch

from tests.learning.images import CROP_AND_FLIP, colour_task, session_of
from tests.learning.problems import make_training


def test_steps_gathered_ahead_are_those_gathered_one_by_one() -> None:
    training = make_training(augmentation=CROP_AND_FLIP, batch_size=8)
    session = session_of(colour_task(), training, [1, 0], [4, 2], 1)
    for dispatch in (0, 1):
        rows = torch.stack([session.draw(step, 2)[0][dispatch] for step in range(5)])
        ahead = session.inputs(2, rows[2:], first=dispatch, ahead=True)
        singly = [session.inputs(step, rows[step : step + 1], first=dispatch) for step in (2, 3, 4)]
        assert torch.equal(ahead, torch.cat(singly))
