"""The bar of progress: only in notebooks, not too often, and gone at the end."""

import itertools
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from fedsim.runs import notebook
from fedsim.runs.notebook import notebook_bar
from fedsim.runs.progress import Progress
from fedsim.sweeps.execution import SweepProgress


def progress(share: float) -> Progress:
    return Progress(0.0, 0, 0, 0, share, {})


class Cell:
    """The output of a notebook's cell: keeps what is shown, one after the other."""

    def __init__(self, content: str) -> None:
        self.shown = [content]

    def update(self, content: str) -> None:
        self.shown.append(content)


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """Makes this process a notebook's kernel whose clock advances by 0.2 s whenever it is read."""
    made: list[Cell] = []

    def display(content: str, display_id: bool) -> Cell:
        made.append(Cell(content))
        return made[-1]

    kernel: Any = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    kernel.display = SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", kernel.display)
    clock = itertools.count(10)
    monkeypatch.setattr(notebook.time, "monotonic", lambda: 0.2 * next(clock))
    return made


def test_outside_a_notebook_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    with notebook_bar("run") as show:
        assert show is None


@pytest.mark.parametrize(
    "shown", [progress(0.25), SweepProgress(runs=12, complete=3, failed=1, share=0.25)]
)
def test_it_shows_title_and_share_and_then_the_time(cells: list[Cell], shown: Any) -> None:
    with notebook_bar("<my run>") as show:
        assert show is not None
        show(shown)
    (cell,) = cells
    assert "<b>&lt;my run&gt;</b>" in cell.shown[0]
    assert "0% starting" in cell.shown[0]
    assert "value='0.2500'" in cell.shown[1]
    assert f"25% {shown.text()}" in cell.shown[1]
    assert cell.shown[2:] == ["<div><b>&lt;my run&gt;</b> done in 0 s</div>"]


def test_it_is_not_redrawn_for_every_event(cells: list[Cell]) -> None:
    with notebook_bar("run") as show:
        assert show is not None
        for event in range(100):
            show(progress(event / 100))
    assert 10 < len(cells[0].shown) < 70
