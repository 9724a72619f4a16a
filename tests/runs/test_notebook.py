"""The bar of progress: only in notebooks, not too often, and gone at the end."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from matplotlib.figure import Figure

from fedsim.errors import UserError
from fedsim.runs import notebook
from fedsim.runs.notebook import notebook_bar, show_figures
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


def test_it_shows_title_and_share_and_then_the_time(cells: list[Cell]) -> None:
    with notebook_bar("<my run>") as show:
        assert show is not None
        show(progress(0.25))
    (cell,) = cells
    assert "&lt;my run&gt;" in cell.shown[0]
    assert "0% starting" in cell.shown[0]
    assert "value='0.2500'" in cell.shown[1]
    assert "25%" in cell.shown[1]
    assert cell.shown[2:] == ["<div><b>&lt;my run&gt;</b> done in 0 s</div>"]


def test_it_shows_the_progress_of_a_sweep(cells: list[Cell]) -> None:
    with notebook_bar("sweep", SweepProgress.text) as show:
        assert show is not None
        show(SweepProgress(runs=12, complete=3, failed=1, share=0.25))
    assert "25%" in cells[0].shown[1]
    assert "3 of 12 runs, 1 failed" in cells[0].shown[1]


@pytest.mark.parametrize(
    ("error", "has_begun", "end"),
    [
        (ZeroDivisionError(), False, "<div><b>run</b> stopped after 0 s</div>"),
        (
            UserError("draws from the global generator"),
            True,
            "<div><b>run</b> stopped after 0 s</div>",
        ),
        (UserError("there is no method named 'x'"), False, ""),
    ],
)
def test_nothing_stays_of_a_run_that_is_refused(
    cells: list[Cell], error: Exception, has_begun: bool, end: str
) -> None:
    def run() -> None:
        with notebook_bar("run") as show:
            assert show is not None
            if has_begun:
                show(progress(0.5))
            raise error

    with pytest.raises(type(error)):
        run()
    assert cells[0].shown[-1] == end


def test_it_is_not_redrawn_for_every_event(cells: list[Cell]) -> None:
    with notebook_bar("run") as show:
        assert show is not None
        for event in range(100):
            show(progress(event / 100))
    assert 10 < len(cells[0].shown) < 70


def test_figures_are_shown_unless_the_notebook_shows_them_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    show_figures()  # outside a notebook, nothing happens
    printers: dict[type, Any] = {}
    formatter = SimpleNamespace(type_printers=printers, for_type=printers.__setitem__)
    formatters = SimpleNamespace(formatters={"image/png": formatter})
    shell = SimpleNamespace(kernel=object(), display_formatter=formatters)
    monkeypatch.setitem(
        sys.modules, "IPython", cast(Any, SimpleNamespace(get_ipython=lambda: shell))
    )
    show_figures()
    as_png = printers[Figure]
    printers[Figure] = "the user's"
    show_figures()
    assert printers == {Figure: "the user's"}
    monkeypatch.undo()  # Matplotlib also asks IPython for its event loop
    assert as_png(Figure()).startswith(b"\x89PNG")
