"""Mistakes in what a method of one's own returns are reported with the function and what was expected."""

from pathlib import Path

import pytest

from tests.lines import without_lines
from tests.methods.own_method import METHOD, run_with


def test_without_a_mistake_it_runs(tmp_path: Path) -> None:
    result = run_with(tmp_path)
    assert result.exit_code == 0, result.stderr


FUNCTIONS = {
    "local_update": "expected: LocalUpdate({'delta': (3, 2)}, loss of shape (3,), {'last': (3, 2)}), one row per",
    "initial_state": "expected: the server's tensors, with {'model': (2,)}",
    "aggregate": "expected: the server's tensors, with {'model': (2,)}",
}
STATE = "    def initial_state(self, model):\n        return {'start': model}\n\n    def aggregate"
COUNTING = STATE.replace("'start'", "'model': model, 'calls': 0, 'start'")
GROWING = STATE.replace("'start'", "'model': model, 'momentum'")
MISTAKES = [
    (
        "local_update",
        '{"delta": delta}',
        '{"change": delta}',
        "the vectors {'change': (3, 2)}",
    ),
    ("local_update", '{"delta": delta}', "{}", "returns the vectors {}"),
    # One row for all would be broadcast by torch, and every client would have sent the first one's change.
    (
        "local_update",
        "trained.model - start",
        "trained.model[0] - start[0]",
        "the vectors {'delta': (2,)}",
    ),
    ("local_update", "trained.loss,", "trained.loss.mean(),", "the tensors {'loss': ()}"),
    ("local_update", ', {"last": delta})', ")", "returns the memories {}"),
    (
        "local_update",
        'return LocalUpdate({"delta": delta}, trained.loss, {"last": delta})',
        "return 1",
        "int",
    ),
    ("aggregate", 'return {"model"', '{"model"', "returns NoneType, not tensors by name"),
    (
        "aggregate",
        'server["model"] +',
        'server["model"].double() +',
        "'model' as torch.float64, not",
    ),
    ("initial_state", "    def aggregate", STATE, "returns the tensors {'start': (2,)}"),
    ("initial_state", "    def aggregate", COUNTING, "'calls': 'int'"),
    ("aggregate", "    def aggregate", GROWING, "and momentum as initially"),
    (
        "aggregate",
        'return {"model": server',
        'return {"models": 0, "model": server',
        "'models': 'int'",
    ),
]


@pytest.mark.parametrize(("function", "right", "wrong", "message"), MISTAKES)
def test_what_a_method_returns_is_checked(
    tmp_path: Path, function: str, right: str, wrong: str, message: str
) -> None:
    result = run_with(tmp_path, right, wrong)
    assert result.exit_code == 2, result.stderr
    assert f"Mine.{function}: returns" in without_lines(result.stderr)
    assert message in result.stderr
    assert FUNCTIONS[function] in result.stderr
    assert "Traceback" not in result.stderr


def test_the_server_state_stays_as_it_is(tmp_path: Path) -> None:
    """Earlier versions share its tensors."""
    in_place = (
        '        server["model"] += updates.weighted_sum("delta", [1.0] * len(updates))\n'
        "        return server\n"
    )
    result = run_with(tmp_path, METHOD.rpartition("updates):\n")[2], in_place)
    assert result.exit_code == 2, result.stderr
    assert "aggregate: changes 'model' of the server state in place" in result.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "hint"),
    [
        ('("delta", [', '("detla", [', "detla: did you mean 'delta'?"),
        ('server["model"] +', 'server["mode"] +', "mode: did you mean 'model'?"),
        ('cohort.down["model"]', 'cohort.down["x"]', "x: there is 'model'"),
    ],
)
def test_a_misspelt_vector_is_told_the_right_names(
    tmp_path: Path, right: str, wrong: str, hint: str
) -> None:
    stderr = run_with(tmp_path, right, wrong).stderr
    assert f'KeyError: "{hint}"' in stderr
    assert "mine.py:1" in stderr
