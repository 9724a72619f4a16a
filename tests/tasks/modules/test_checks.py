"""A module that cannot be trained is refused before the run, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from tests.tasks.users import own_task


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Net", {"depth": 3}, "depth: unknown key"),
        ("Net", {"width": "many"}, "width: must be a number, not 'many'"),
        ("Wrong", {}, r"returns \(2, 3\) for 2 samples, expected \(2, 10\)"),
        (
            "Tuple",
            {},
            r"returns tuple for 2 samples, expected \(2, 10\)\n  return the logits alone",
        ),
        ("Broken", {}, "ZeroDivisionError: no idea"),
        ("Unrepeatable", {}, "LSTM.*not reproducible"),
        (
            "Faulty",
            {},
            r"AttributeError: 'Faulty' object has no attribute 'nothing' \(.*own.py:\d+",
        ),
        ("Whole", {}, "numbers of type torch.int64"),
        ("Detached", {}, "have no gradient with respect to its parameters"),
        ("AllFrozen", {}, "no trainable parameters"),
        ("Nothing", {}, "no trainable parameters"),
        ("Lazy", {}, "shape of last.weight, last.bias .* is unknown before its first use"),
        ("OnlyEvaluated", {}, r"cannot be trained: KeyError: 'mode' \(.*own.py:\d+"),
        ("Neither", {}, "the class Neither in .*own.py does not derive from torch.nn.Module"),
        ("Missing", {}, "has no class or function named 'Missing'"),
    ],
)
def test_a_users_model_that_cannot_be_used_says_why(
    users: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        own_task(users, name, **options)


def test_batch_norm_refuses_one_sample_alone(users: Path) -> None:
    reason = own_task(users, "Normed").refusal_of_one_sample()
    assert reason is not None
    assert "more than 1 value per channel" in reason
    assert own_task(users, "Small").refusal_of_one_sample() is None
