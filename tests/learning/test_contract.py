"""Mistakes in what a method of one's own returns are reported with the function and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lines import without_lines
from tests.methods.own_method import METHOD, run_with


def test_without_a_mistake_it_runs(tmp_path: Path) -> None:
    result = run_with(tmp_path)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            '{"delta": delta}',
            '{"change": delta}',
            "local_update: returns the vector 'change', which upload() does not declare\n  declared: 'delta'",
        ),
        (
            '{"delta": delta}',
            "{}",
            "local_update: returns no vector 'delta', which upload() declares",
        ),
        (
            '{"delta": delta}',
            '{"delta": delta, "free": delta}',
            "the vector 'free', which upload() does not",
        ),
        # One row for all would be broadcast by torch, and every client would have sent the first one's change.
        (
            "trained.model - start",
            "trained.model[0] - start[0]",
            "returns 'delta' of shape (2,), not (3, 2)",
        ),
        ("trained.loss,", "trained.loss.mean(),", "returns 'loss' of shape (), not (3,)"),
        (
            '{"last": delta}',
            '{"lost": delta}',
            "the memory 'lost', which memories() does not declare\n  did you mean 'last'?",
        ),
        (
            ', {"last": delta})',
            ")",
            "local_update: returns no memory 'last', which memories() declares\n"
            "  return 'last': cohort.memory['last'] if it has not changed",
        ),
        ("Memory(self.context.layout.size)", "Memory(3)", "returns 'last' of shape (3, 2), not"),
        (
            'return LocalUpdate({"delta": delta}, trained.loss, {"last": delta})',
            "return {'delta': delta}",
            "returns dict, not a LocalUpdate",
        ),
        (
            'return {"model"',
            'return {"modle"',
            "aggregate: returns no 'model', which clients receive",
        ),
        ('return {"model"', '{"model"', "aggregate: returns NoneType, not tensors by name"),
        (
            '{"model": server["model"]',
            '{"model": server["model"].double()',
            "returns 'model' as torch.float64, not",
        ),
        ("def aggregate", "def agregate", "{folder}/mine.py:4: Mine lacks aggregate"),
    ],
)
def test_what_a_method_returns_is_checked(
    tmp_path: Path, right: str, wrong: str, message: str
) -> None:
    result = run_with(tmp_path, right, wrong)
    assert result.exit_code == 2, result.stderr
    assert message.format(folder=tmp_path) in result.stderr
    if "local_update" in result.stderr:
        assert (
            "expected: LocalUpdate({'delta': (3, 2)}, loss of shape (3,), {'last': (3, 2)}), "
            "one row per dispatch\n  a method to start from: fedsim init --template own-method"
        ) in result.stderr or "Memory(3)" in wrong
    if "aggregate: " in result.stderr:
        assert "expected: the server's tensors, with {'model': (2,)}\n" in result.stderr
    assert "Traceback" not in result.stderr


STATE = "    def initial_state(self, model):\n        return {'start': model}\n\n    def aggregate"
IN_PLACE = """\
        server["model"] += updates.weighted_sum("delta", [1.0] * len(updates))
        return server
"""


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("    def aggregate", STATE, "initial_state: returns no 'model', which clients receive"),
        (
            METHOD.rpartition("updates):\n")[2],
            IN_PLACE,
            "changes 'model' of the server state in place",
        ),
        (
            "    def aggregate",
            STATE.replace("'start'", "'model': model, 'momentum'"),
            "aggregate: returns no 'momentum', which initial_state() does\n"
            "  return 'momentum': server['momentum'] if it has not changed",
        ),
        (
            "updates):\n        return {",
            "updates):\n        return {'extra': server['model'], ",
            "aggregate: returns 'extra', which initial_state() does not\n  it returns: 'model'",
        ),
        (
            "updates):\n        return {",
            "updates):\n        return {'models': server['model'], ",
            "which initial_state() does not\n  did you mean 'model'?; give it a first value",
        ),
        (
            "    def aggregate",
            STATE.replace("'start'", "'model': model, 'calls': 0, 'start'"),
            "mine.py: Mine.initial_state: returns int as 'calls', not a tensor\n  torch.tensor(0)",
        ),
        (
            "updates):\n        return {",
            "updates):\n        return {'name': 'n', ",
            "aggregate: returns str as 'name', not a tensor\n  torch.tensor('n')",
        ),
    ],
)
def test_the_server_state_is_complete_and_stays_as_it_is(
    tmp_path: Path, right: str, wrong: str, message: str
) -> None:
    result = run_with(tmp_path, right, wrong)
    assert result.exit_code == 2, result.stderr
    assert message in without_lines(result.stderr)
    assert "Traceback" not in result.stderr
