"""Methods of users that keep a state in themselves, or mix the rows of a group, are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.errors import UserError
from fedsim.learning.workers import own_methods
from fedsim.learning.workers.own_methods import RowCheck, keep_attributes
from fedsim.methods.base import LocalUpdate
from fedsim.methods.fedavg import FedAvg
from tests.learning.problems import supervised_task
from tests.learning.workers.test_station import a_group
from tests.lines import without_lines
from tests.methods.executed import label, learner_of
from tests.methods.fakes import make
from tests.methods.own_method import METHOD, run_with
from tests.methods.test_execution import VARIANTS, rounds

AGGREGATE = "    def aggregate(self, server, updates):\n"
LOCAL = '        start = cohort.down["model"]\n'


@pytest.mark.parametrize(
    ("head", "line", "name"),
    [
        # Rebinding, from None or a value; a change of a tensor, a container or an object in place; a class.
        ("m = None", "self.m = server['model']", "m"),
        ("", "self.m = server['model']", "m"),
        ("count = 0", "self.count += 1", "count"),
        ("", "self.params.extra.append(1)", "params"),
        ("seen = []", "self.seen.append(1)", "seen"),
        ("seen = {'a': [1]}", "self.seen['a'][0] += 1", "seen"),
        ("import numpy as np; sums = np.zeros(2)", "self.sums += 1", "sums"),
        ("import torch; sums = torch.zeros(2)", "self.sums += 1", "sums"),
        ("from types import SimpleNamespace as S; own = S(n=1)", "self.own.n += 1", "own"),
        ("count = 0", "type(self).count += 1", "count"),
    ],
)
@pytest.mark.parametrize("function", ["aggregate", "local_update"])
def test_a_method_that_changes_its_attributes_is_refused(
    tmp_path: Path, head: str, line: str, name: str, function: str
) -> None:
    before = AGGREGATE if function == "aggregate" else LOCAL
    line = line if function == "aggregate" else line.replace("server['model']", "cohort.steps")
    own_params = (
        ""
        if name != "params"
        else (
            "class Params(__import__('fedsim.parts.component').parts.component.Parameters):\n"
            "        extra: list[int] = []\n    "
        )
    )
    result = run_with(
        tmp_path,
        before,
        (before + f"        {line}\n"),
        head=f"    {own_params}{head}\n",
    )
    assert result.exit_code == 2, result.output
    assert f"mine.py: Mine.{function}: changes self.{name}, which no checkpoint contains" in (
        without_lines(result.stderr)
    )
    of_server = f"server state as a tensor, with its first value in initial_state: {{'model': ..., '{name}': torch.t"
    assert (of_server in result.stderr) == (function == "aggregate")
    for words in ("memories()", "functools.cached_property"):
        assert (words in result.stderr) == (function == "local_update")
    assert "values for debugging can be printed, or go to a logger" in result.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Seen.seen.append(1)", "the attribute seen of the class Seen"),
        ("SEEN.append(1)", "the variable SEEN of its file"),
        ("note()", "the variable SEEN of its file"),
    ],
)
def test_a_method_that_changes_a_variable_of_its_file_is_refused(
    tmp_path: Path, line: str, words: str
) -> None:
    head = "class Mine(Method):\n"
    variables = "SEEN = []\n\ndef note(): SEEN.append(1)\n\nclass Seen: seen = []\n\n"
    for before, function in ((AGGREGATE, "aggregate"), (LOCAL, "local_update")):
        (folder := tmp_path / function).mkdir()
        text = METHOD.replace(head, variables + head).replace(before, f"{before}        {line}\n")
        result = run_with(folder, METHOD, text)
        assert result.exit_code == 2, result.output
        assert f"mine.py: Mine.{function}: changes {words}, which no checkpoint" in without_lines(
            result.stderr
        )
        key = "seen" if " seen " in words else "SEEN"
        of_server = f"{{'model': ..., '{key}': torch.tensor(0)}}"
        assert (of_server in result.stderr) == (function == "aggregate")


@pytest.mark.parametrize(
    ("head", "variables", "words"),
    [
        ("    numbers = iter([1])\n", "", "self.numbers"),
        (
            "    def personal_parts(self): NUMBERS\n",
            "NUMBERS = iter([1])\n",
            "the variable NUMBERS",
        ),
    ],
)
def test_a_method_that_keeps_an_iterator_is_refused(
    tmp_path: Path, head: str, variables: str, words: str
) -> None:
    result = run_with(tmp_path, METHOD, variables + METHOD, head=head)
    assert result.exit_code == 2, result.output
    assert f"mine.py: Mine: keeps an iterator in {words}" in without_lines(result.stderr)


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("import torch; ones = torch.ones(2)", "_ = self.ones + 1"),
        ("from functools import cached_property as c\n    size = c(lambda self: 2)", "self.size"),
        ("", "self.context.generator(1)"),
        ("import logging; log = logging.getLogger('l')", "self.log.info('x')"),
        ("import threading; lock = threading.Lock()", "self.lock.acquire(); self.lock.release()"),
    ],
)
def test_a_method_that_reads_or_caches_its_attributes_is_not(
    tmp_path: Path, head: str, line: str
) -> None:
    if "cached" in head:
        head = (
            "from functools import cached_property\n"
            "    @cached_property\n    def size(self): return [self.context.layout.size]"
        )
    for before in (AGGREGATE, LOCAL):
        result = run_with(tmp_path, before, before + f"        {line}\n", head=f"    {head}\n")
        assert result.exit_code == 0, result.stderr
        (tmp_path / "out").rename(tmp_path / f"out-{len(before)}")


CACHED = """\
    from functools import cached_property as cached

    @cached
    def store(self):
        import numpy as np, torch
        return {value}

"""


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("{}", "self.store['m'] = 1"),
        # Only the call that computes the value changes it.
        ("{}", "self.store.setdefault('m', 1)"),
        ("[]", "self.store.append(1)"),
        ("torch.zeros(2)", "self.store.add_(1)"),
        ("np.zeros(2)", "self.store.__iadd__(1)"),
        ("[]", "self.store; self.__dict__['store'] = [1]"),
    ],
)
@pytest.mark.parametrize("function", ["aggregate", "local_update"])
def test_a_cached_value_that_changes_is_refused(
    tmp_path: Path, value: str, line: str, function: str
) -> None:
    before = AGGREGATE if function == "aggregate" else LOCAL
    head = CACHED.format(value=value)
    for name, first in (("fresh", ""), ("known", "self.store; ")):
        (folder := tmp_path / name).mkdir()
        result = run_with(folder, before, before + f"        {first}{line}\n", head=head)
        assert result.exit_code == 2, result.output
        assert f"Mine.{function}: changes self.store, which no" in result.stderr


def test_a_cached_value_of_initial_state_may_not_change_either(tmp_path: Path) -> None:
    start = "    def initial_state(self, model):\n        self.store\n        return {'model': model}\n\n"
    lines = {"self.store.get('m')": 0, "self.store['m'] = 1": 2}
    for name, (line, code) in enumerate(lines.items()):
        (folder := tmp_path / str(name)).mkdir()
        wrong = start + AGGREGATE + f"        {line}\n"
        result = run_with(folder, AGGREGATE, wrong, head=CACHED.format(value="{}"))
        assert result.exit_code == code, result.output


def test_the_state_may_be_set_in_initial_state(tmp_path: Path) -> None:
    result = run_with(
        tmp_path,
        AGGREGATE,
        "    def initial_state(self, model):\n        self.first = model.clone()\n"
        "        return {'model': model}\n\n" + AGGREGATE + "        _ = self.first\n",
    )
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_no_method_of_fedsim_would_be_refused(
    variant: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rules hold for them, though they are not checked during a run."""
    monkeypatch.setattr(own_methods, "is_bundled", lambda item: False)
    learner = learner_of(variant, supervised_task("mlp"))
    assert "aggregate" in vars(learner.station.method)
    rounds(3).play(learner)
    learner.close()


@pytest.mark.parametrize(
    ("right", "wrong", "name"),
    [
        (
            "delta = trained.model - start",
            "...; delta = delta - delta.mean(0, keepdim=True)",
            "delta",
        ),
        ("delta = trained.model - start", "...; delta = delta / delta.norm()", "delta"),
        ('{"last": delta}', '{"last": delta.cumsum(0)}', "last"),
        ("trained.loss,", "trained.loss.mean().expand(len(delta)),", "loss"),
        ("delta = trained.model - start", "...; delta = delta / (len(delta) > 1)", "delta"),
    ],
)
def test_a_method_that_mixes_rows_is_refused(
    tmp_path: Path, right: str, wrong: str, name: str
) -> None:
    # Clients none of which is at the mean of all, where mixing in the mean would not show.
    options = ["-s", "task.centers=[[1, 2], [2, 3], [9, 4]]"]
    wrong = wrong.replace("...", right)
    result = run_with(tmp_path, right, wrong, options=options)
    assert result.exit_code == 2, result.output
    assert "mine.py: Mine.local_update: computes rows that depend on one another" in without_lines(
        result.stderr
    )
    assert f"'{name}' of client" in result.stderr
    assert "in a group of 3" in result.stderr
    assert "verify: eager" in result.stderr
    eager = run_with(tmp_path, right, wrong, options=["-s", "training.verify=eager"])
    assert "depend on one another" not in eager.stderr


class Own(FedAvg):
    pass


def own() -> Own:
    return Own(FedAvg.Params(), make({"name": "fedavg"}, [1]).context)


def update_of(rows: Tensor) -> LocalUpdate:
    return LocalUpdate({"delta": rows}, rows[:, 0])


def check(rows: Tensor, alone: Tensor) -> int:
    """The number of dispatches that are trained again, for two groups."""
    trained = []

    def train(group: object) -> LocalUpdate:
        trained.append(group)
        return update_of(alone)

    checks = RowCheck(own(), autocast=False)
    for _ in range(2):
        checks.check(a_group([torch.zeros(200)] * 2), update_of(rows), train)  # type: ignore[arg-type]
    return len(trained)


def test_rounding_is_allowed_and_only_one_dispatch_is_trained_again() -> None:
    rows = torch.rand(2, 200) + 1
    assert check(rows, rows[-1:]) == 1
    assert check(rows, rows[-1:] * (1 + 4e-4)) == 1
    other = rows[-1:].clone()
    other[0, 5:7] = 9  # two places of the largest entries, exchanged by rounding
    assert check(rows, other) == 1
    rows[-1, 3] = torch.nan
    assert check(rows, rows[-1:]) == 1


@pytest.mark.parametrize("factor", [1 + 4e-3, -1.0, torch.nan])
def test_more_than_rounding_is_refused(factor: float) -> None:
    rows = torch.rand(2, 200) + 1
    with pytest.raises(UserError, match="'delta' of client 1 differs by"):
        check(rows, rows[-1:] * factor)


def test_a_group_of_one_and_methods_of_fedsim_are_not_trained_again() -> None:
    rows = torch.ones(1, 3)
    checks = RowCheck(own(), autocast=False)
    checks.check(
        a_group([torch.zeros(3)]), update_of(rows), lambda group: pytest.fail("trained again")
    )
    bundled = RowCheck(make({"name": "fedavg"}, [1]), autocast=False)
    bundled.check(
        a_group([torch.zeros(3)] * 2), update_of(rows), lambda group: pytest.fail("trained again")
    )
    method = make({"name": "fedavg"}, [1])
    keep_attributes(method)
    assert "aggregate" not in vars(method)


def test_the_last_dispatch_of_a_group_is_itself() -> None:
    vectors = [torch.zeros(3), torch.ones(3)]
    group = replace(a_group(vectors), learning_rates=(0.1, 0.2))
    last = group.last()
    assert last.learning_rates == (0.2,)
    assert last.columns["clients"].tolist() == [1]
    assert np.array_equal(last.down["model"].matrix(torch.device("cpu")), torch.ones(1, 3))
    assert last.memory()["own"].shape == (1, 3)
