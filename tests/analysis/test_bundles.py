"""The plots of trace bundles: what they show, and nothing that is not in the bundles."""

import dataclasses
import re
import resource
from pathlib import Path

import pytest

from fedsim.analysis.bundles import _panels, _picture, write_plot
from fedsim.errors import UserError
from fedsim.traces.statistics import BundleStatistics, describe
from fedsim.traces.synthesis import Synthesis, synthesize
from tests.analysis.documents import embedded
from tests.traces.cases import HOUR, bundle_of


@pytest.fixture(scope="module")
def described() -> list[BundleStatistics]:
    hand = bundle_of(
        {"a": [(0, 2 * HOUR), (18 * HOUR, 20 * HOUR)], "b": [(HOUR, 5 * HOUR)]}, days=2
    )
    return [
        describe(hand),
        describe(synthesize(Synthesis(population="phone_mostly_on", devices=80))),
    ]


def test_only_what_the_bundles_hold_is_drawn(
    described: list[BundleStatistics], tmp_path: Path
) -> None:
    write_plot(described[:1], tmp_path / "hand.html")
    page = (tmp_path / "hand.html").read_text()
    # The hours have a chart, and bars of characters would squeeze the names of a narrow table.
    assert "█" not in page
    # The bundle made by hand has neither compute nor network.
    drawn = embedded(page)
    assert {"hour", "share", "sessions_s", "gaps_s"} <= set(drawn)
    # As in the terminal.
    assert re.search(r"[Mm]ost online at \d\d:00 \(.*?\), fewest at \d\d:00", page)
    assert not {"compute", "rate", "rtt"} & set(drawn)
    assert "not in the bundle" not in page
    # Sessions of 2 h, 2 h and 4 h: two thirds last at most 2 h.
    places, shares = (column["values"] for column in drawn["sessions_s"]["columns"][:2])
    assert shares[0] == pytest.approx(2 / 3, abs=1e-3)
    assert shares[-1] == 1
    assert (places[0], places[-1]) == (2 * 3600, 4 * 3600)


def test_every_kind_of_file(described: list[BundleStatistics], tmp_path: Path) -> None:
    for name, beginning in (
        ("p.svg", b"<?xml"),
        ("p.png", b"\x89PNG"),
        ("p.pdf", b"%PDF"),
        ("p.html", b"<!doctype"),
    ):
        write_plot(described[:1], tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(beginning)
    with pytest.raises(UserError, match="cannot draw"):
        write_plot(described, tmp_path / "p.doc")


@pytest.mark.parametrize("suffix", ["html", "pdf", "png", "svg"])
def test_a_full_disk_is_named(
    described: list[BundleStatistics], tmp_path: Path, suffix: str
) -> None:
    path, limits = tmp_path / f"p.{suffix}", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(UserError, match=f"^{path}: the disk is full"):
            write_plot(described[:1], path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not path.exists()


def test_the_picture_names_its_hours_and_dashes(described: list[BundleStatistics]) -> None:
    picture = _picture(described, list(_panels(described)))
    hours = next(axes for axes in picture.axes if axes.get_xlabel() == "hour")
    assert hours.get_xticks().tolist() == [0, 6, 12, 18, 24]
    (legend,) = picture.legends
    shown = {text.get_text() for text in legend.get_texts()}
    lines = {line.get_linestyle() for axes in picture.axes for line in axes.get_lines()}
    assert shown >= {each.name for each in described}
    assert ("best fit" in shown) == (":" in lines)
    assert ("uplink" in shown) == ("--" in lines)
    assert ":" in lines
    fits = [
        line for axes in picture.axes for line in axes.get_lines() if line.get_linestyle() == ":"
    ]
    assert {line.get_color() for line in fits} == {"black"}


def test_the_picture_holds_long_names(described: list[BundleStatistics]) -> None:
    names = ("devices_of_a_campus_in_winter", "devices_of_a_campus_in_summer", "d" * 200)
    every = [dataclasses.replace(described[0], name=name) for name in names * 2]
    picture = _picture(every, list(_panels(every)))
    picture.draw_without_rendering()
    box = picture.legends[0].get_window_extent()
    assert 0 <= box.x0 <= box.x1 <= picture.bbox.x1
