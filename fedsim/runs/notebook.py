"""Progress and figures in notebooks."""

from __future__ import annotations

import contextlib
import html
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fedsim.errors import UserError
from fedsim.runs.progress import Pace
from fedsim.vocabulary.formatting import format_duration

if TYPE_CHECKING:
    pass

_REFRESH_S = 0.5


@contextlib.contextmanager
def notebook_bar(title: str, *, shown: bool = True) -> Iterator[Callable[[Any], None] | None]:
    """A function that shows progress below the cell as long as the context lasts; None outside a notebook.

    Nothing stays of what is refused before it begins.
    """
    if not shown or not _in_notebook():
        yield None
        return
    from IPython.display import HTML, display

    pace, began, shown_at, has_begun = Pace(), time.monotonic(), 0.0, False
    handle = display(HTML(_markup(title, 0.0, "starting")), display_id=True)

    def show(progress: Any) -> None:
        nonlocal shown_at, has_begun
        has_begun = True
        now = time.monotonic()
        if now - shown_at >= _REFRESH_S:
            shown_at = now
            text = progress.text(pace.left_s(progress.share))
            handle.update(HTML(_markup(title, progress.share, text)))

    def close(end: str) -> None:
        seconds = format_duration(int(time.monotonic() - began))
        handle.update(HTML(f"<div><b>{html.escape(title)}</b> {end} {seconds}</div>"))

    try:
        yield show
    except BaseException as error:
        if isinstance(error, UserError) and not has_begun:
            handle.update(HTML(""))
        else:
            close("stopped after")
        raise
    close("done in")


def show_figures() -> None:
    """Make a notebook show Matplotlib figures below their cell; by default, it shows only those of pyplot."""
    if not _in_notebook():
        return
    from matplotlib.figure import Figure

    shell: Any = sys.modules["IPython"].get_ipython()
    if Figure not in shell.display_formatter.formatters["image/png"].type_printers:
        from IPython.core.pylabtools import select_figure_formats

        select_figure_formats(shell, {"png"}, bbox_inches=None, dpi=144)


def _in_notebook() -> bool:
    module = sys.modules.get("IPython")
    return module is not None and hasattr(module.get_ipython(), "kernel")


def _markup(title: str, share: float, text: str) -> str:
    return (
        f"<div><b>{html.escape(title)}</b> <progress max='1' value='{share:.4f}'></progress> "
        f"{share:.0%} {html.escape(text)}</div>"
    )
