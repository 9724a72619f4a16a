"""Pages are written where nothing else is lost."""

import re
from pathlib import Path

import pytest

from fedsim.analysis.pages import embedded, require_own, unbroken, write_page
from fedsim.errors import UserError
from tests.runs.synthetic_runs import build_run


@pytest.mark.usefixtures("with_reports")
def test_a_report_replaces_a_report_and_nothing_else(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=4, hours=1, cohort=2)
    page = run.report(tmp_path / "new" / "page.html")
    require_own(page)
    assert run.report(page) == page
    diary = tmp_path / "diary.html"
    diary.write_text("<!doctype html><title>Dear diary</title>")
    link = tmp_path / "link.html"
    link.symlink_to(page)
    for path in (diary, link):
        with pytest.raises(UserError, match="not written by fedsim") as caught:
            run.report(path)
        # Also for commands whose -o is a folder, or which have none.
        assert str(caught.value.hint).startswith("rename or remove it")
    assert diary.read_text().endswith("Dear diary</title>")
    assert link.is_symlink()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.pdf", "HTML.*\n  write {}/a.html; a browser prints it as a PDF"),
        ("a.png", "HTML.*\n  write {}/a.html$"),
        ("a", "HTML.*\n  write {}/a.html$"),
        ("", "{}: is a folder\n  name a file in it, such as {}/report.html"),
    ],
)
def test_a_page_has_the_suffix_of_a_page(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("{}", re.escape(str(tmp_path)))):
        write_page(tmp_path / name, "")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_place_of_a_page_is_moved_away(tmp_path: Path) -> None:
    (tmp_path / "board.html").mkdir()
    with pytest.raises(UserError, match="rename or remove the folder"):
        write_page(tmp_path / "board.html", "")


def test_what_controls_or_hides_text_is_escaped(tmp_path: Path) -> None:
    write_page(tmp_path / "a.html", "<p>a\x1b \u202e\n\u00a0é")
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert text == "<p>a\\x1b \\u202e\n\u00a0é"


def test_a_page_that_cannot_be_written_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write the page.*\n.* -o PAGE\.html"):
        write_page(tmp_path / "file" / "page.html", "")


def test_embedded_data_cannot_end_its_script() -> None:
    assert "<" not in embedded({"name": "</script><!--", "more": "&"})


def test_numbers_stay_with_their_units() -> None:
    assert unbroken("24 min 30 s") == "24\u00a0min\u00a030\u00a0s"
    assert unbroken("1,234") == "1,234"
    assert unbroken("lr 0.2, cohort 8: yes") == "lr\u00a00.2, cohort\u00a08: yes"
    assert unbroken("79% ± 2% with a ≡ b") == "79% ±\u00a02% with a ≡\u00a0b"
    assert unbroken("1,234 rows (1.5 s)") == "1,234\u00a0rows (1.5\u00a0s)"
    assert unbroken("lr=0.1 reached, v2 too") == "lr=0.1 reached, v2 too"


def test_names_break_only_after_their_separators() -> None:
    assert unbroken("over_selection=1.3") == "over_selection=1.3"
    long = "server.schedule.buffer_size=4"
    assert unbroken(long) == "server.<wbr>schedule.<wbr>buffer_<wbr>size=4"
    assert unbroken("a<b, 0.5 of v2.0.") == "a&lt;b, 0.5\u00a0of v2.0."
