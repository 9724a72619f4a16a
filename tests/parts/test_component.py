"""Parts in users' files."""

from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.methods.base import Method
from fedsim.methods.fedavg import FedAvg
from fedsim.parts.catalog import CATALOG
from fedsim.parts.component import (
    import_path,
    load_user_component,
    place,
)
from fedsim.scheduling.base import Selection
from fedsim.tasks.dataset import DatasetComponent


def test_an_import_that_fails_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import helper.inner\n")
    with pytest.raises(UserError, match="cannot be imported") as caught:
        load_user_component("own.py:Own", object, tmp_path)
    hint = "install the package of 'helper', or move what it needs into own.py: a part is one file"
    assert caught.value.hint == hint


def test_a_syntax_error_is_shown_with_its_line_and_a_caret(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("x = 1\nclass Mine(\n    pass\n")
    with pytest.raises(UserError, match="cannot be imported: SyntaxError") as caught:
        load_user_component("own.py:Mine", object, tmp_path)
    assert str(caught.value.hint).startswith(
        f'File "{path}", line 2\n    class Mine(\n              ^'
    )


def test_a_name_that_a_file_lacks_suggests_what_it_defines(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from fedsim.vocabulary.metrics import MetricDefinition\n"
        "from fedsim.units import parse_rate_bps\n"
        "def confident_errors(outputs, labels): return 0\n"
        "def _helper(): return 0\n"
    )
    hint = r"did you mean 'confident_errors'\?$"
    with pytest.raises(UserError, match=hint):
        load_user_component("own.py:confident", object, tmp_path, lambda function: object)


OWN = """\
from fedsim.methods.base import Method
from fedsim.methods.fedavg import FedAvg
from torch import nn
number = 3
class Plain: pass
class Unfinished(Method): pass
class Finished(Method):
    def aggregate(self, server, updates): return server
def function(outputs, labels): return 0
"""


@pytest.mark.parametrize(
    ("kind", "name", "message", "hint"),
    [
        ("method", "Plain", "{file}:5: Plain does not derive from", "import Method"),
        ("metric", "Plain", "fedsim.learning.metrics.Metric", "write class Plain(Metric), after"),
        ("model", "Plain", "torch.nn.Module", "write class Plain(Module), after from torch.nn"),
        ("method", "function", "in {file} is of type function, not a class", "class function(Meth"),
        ("metric", "number", "is of type int, not a class or function", "class number(Metric)"),
        ("method", "Finish", "{file} has no class named 'Finish'", "did you mean 'Finished'?"),
        ("method", "Unfinished", "{file}:6: Unfinished lacks aggregate", "define aggregate in"),
    ],
)
def test_a_name_that_is_not_a_part_says_what_it_is(
    tmp_path: Path, kind: str, name: str, message: str, hint: str
) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    with pytest.raises(UserError) as caught:
        CATALOG.find(kind, f"own.py:{name}", tmp_path)
    assert message.format(file=file) in caught.value.message
    assert hint in str(caught.value.hint)


def test_messages_name_classes_as_the_documentation_does() -> None:
    page = (Path(__file__).parents[2] / "docs/extending.md").read_text(encoding="utf-8")
    for kind, entry in CATALOG.kinds.items():
        assert f"`{import_path(entry.base())}`" in page, kind

    class Own(Method):
        Params = int  # type: ignore[assignment]

    with pytest.raises(UserError, match=r"Params = Parameters in Own, after from fedsim\.parts"):
        CATALOG.adopt("method", Own)


def test_a_users_part_is_not_the_published_one_that_it_derives_from() -> None:
    class Mine(FedAvg):
        name = "mine"

    class Titled(FedAvg):
        title = "FedMine"
        paper = "Me, 2026"

    assert (Mine.title, Mine.paper) == ("Mine", "")
    assert (Titled.title, Titled.paper) == ("FedMine", "Me, 2026")
    assert FedAvg.title == "FedAvg"
    assert FedAvg.paper


def test_a_mistake_of_a_users_data_set_names_its_class(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "import numpy as np\n"
        "from fedsim.tasks.dataset import Dataset, DatasetComponent\n"
        "class DsBad(DatasetComponent):\n"
        "    name = 'b'\n"
        "    def load(self, folder=None):\n"
        "        x, y = np.zeros((50, 3), np.float32), np.zeros(40, np.int64)\n"
        "        return Dataset('b', x, y, x[:5], y[:5], classes=2)\n"
    )
    component = load_user_component("bad.py:DsBad", DatasetComponent, tmp_path)
    with pytest.raises(UserError, match=r"train_y .*shape \(40,\)") as caught:
        component(component.Params()).loaded(tmp_path)
    assert caught.value.where == f"{tmp_path / 'bad.py'}:5: DsBad.load"


PLACES = """\
import functools

from fedsim.scheduling.selections.uniform import Uniform


class Base(Uniform):
    def cohort(self, factor=1.0):
        return []


class Mine(Base):
    @functools.lru_cache
    def helper(self):
        return []

    @classmethod
    def made(cls):
        return cls
"""


@pytest.mark.parametrize(
    ("function", "line", "name"),
    [
        ("", 11, "Mine"),
        ("cohort", 7, "Mine.cohort"),
        ("helper", 12, "Mine.helper"),
        ("made", 16, "Mine.made"),
        ("draw", 11, "Mine.draw"),
        ("nothing", 11, "Mine.nothing"),
    ],
)
def test_a_place_is_the_line_of_the_function_or_of_the_class(
    tmp_path: Path, function: str, line: int, name: str
) -> None:
    (tmp_path / "own.py").write_text(PLACES)
    mine = load_user_component("own.py:Mine", Selection, tmp_path)
    assert place(mine, function) == f"{tmp_path / 'own.py'}:{line}: {name}"


def test_the_place_of_a_class_without_a_file_is_its_name(tmp_path: Path) -> None:
    console: dict[str, Any] = {"__name__": "console"}
    exec("class Mine:\n    def draws(self): return 1", console)
    assert place(console["Mine"]) == "Mine"
    assert place(console["Mine"], "draws") == "Mine.draws"
    # One whose file is gone has no line.
    (tmp_path / "own.py").write_text(PLACES)
    mine = load_user_component("own.py:Mine", Selection, tmp_path)
    (tmp_path / "own.py").unlink()
    assert place(mine) == f"{tmp_path / 'own.py'}: Mine"
    assert place(mine, "cohort") == f"{tmp_path / 'own.py'}:7: Mine.cohort"
