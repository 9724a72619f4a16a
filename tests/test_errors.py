"""Messages of errors: their parts, several at once, and the known word that was meant."""

import errno
import os
from pathlib import Path

import pytest

from fedsim.errors import (
    MOST_SHOWN,
    UserError,
    UserErrors,
    combined,
    details,
    further_checks,
    nearest,
    nearest_or_all,
    raise_all,
    reason,
    refused,
    strings,
    without_numbers,
)


def test_a_message_has_the_place_first_and_the_fix_on_a_line_below() -> None:
    assert str(UserError("is empty")) == "is empty"
    assert str(UserError("is empty", where="a", hint="fill it")) == "a: is empty\n  fill it"
    error = UserError("bad\x1b[31m", where="a\x07", hint="b\x9b\n  second line")
    assert str(error) == "a\\x07: bad\\x1b[31m\n  b\\x9b\n  second line"
    assert str(UserError("c\td\nerror: e", where="a\nb")) == "a\\nb: c\\td\\nerror: e"
    assert str(UserError(f"failed:\n{details('a' + chr(10) * 2 + 'b')}")) == "failed:\n  a\n  \n  b"
    assert str(UserError(9000 * "ab ")) == f"{9000 * 'ab '}"[:4000] + "..."
    assert str(UserError(9000 * "\n  a")).count("\n") < 300
    assert str(UserError("a\u200b\ufeff\u061c\U000e0041\udcff\xa0é")) == (
        "a\\u200b\\ufeff\\u061c\\U000e0041\\udcff\xa0é"
    )
    assert (
        str(UserError("\u202eevil\u2066 " + 9000 * "0"))
        == "\\u202eevil\\u2066 " + 500 * "0" + "..."
    )


def test_one_error_stays_itself_and_several_become_one() -> None:
    first, second = UserError("one", where="a"), UserError("two")
    assert combined([first]) is first
    both = combined([first, second])
    assert isinstance(both, UserErrors)
    assert both.errors == (first, second)
    assert str(both) == "a: one\ntwo"
    raise_all(())
    with pytest.raises(UserErrors):
        raise_all(error for error in (first, second))
    many = [UserError(str(number)) for number in range(MOST_SHOWN + 1)]
    assert str(combined(many)).endswith(f"\n{MOST_SHOWN - 1}\nfurther mistakes are not shown")


def test_only_errors_of_the_user_have_a_note_about_further_checks() -> None:
    with pytest.raises(UserError) as caught, further_checks():
        raise UserError("wrong")
    assert caught.value.__notes__ == ["note: further checks follow once this is fixed"]
    with pytest.raises(KeyError) as defect, further_checks():
        raise KeyError("wrong")
    assert not hasattr(defect.value, "__notes__")


def test_an_error_of_the_system_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught, refused("cannot be written", tmp_path, "name a file"):
        tmp_path.write_text("")
    assert str(caught.value) == f"{tmp_path}: cannot be written: Is a directory\n  name a file"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file", "a"), "No such file"),
        (ValueError(" two\nlines"), "two"),
        (KeyError("a"), "KeyError: 'a'"),
        (EOFError(), "EOFError"),
        (
            ValueError("see sys.set_int_max_str_digits()"),
            "it has a number with more than 4,300 digits",
        ),
    ],
)
def test_what_an_error_says_in_one_line(error: Exception, said: str) -> None:
    with pytest.raises(UserError) as caught, refused("fails", kinds=Exception):
        raise error
    assert str(caught.value) == f"fails: {said}"


def test_numbers_are_masked() -> None:
    assert without_numbers("set at most 1,024 of 3.5 s") == "set at most # of # s"


@pytest.mark.parametrize(
    ("word", "meant"),
    [("SGD", "sgd"), ("adm", "adam"), ("lr", "server_lr"), ("zzz", None)],
)
def test_the_known_word_that_was_meant(word: str, meant: str | None) -> None:
    known = ("sgd", "adam", "server_lr")
    assert nearest(word, known) == (f"did you mean '{meant}'? " if meant else "")
    expected = f"did you mean '{meant}'?" if meant else "one of three"
    assert nearest_or_all(word, known, "one of three") == expected


def test_a_notebook_shows_the_message_and_the_notes_without_frames() -> None:
    """IPython shows the lines that this method returns, if an exception has it."""
    error = UserErrors([UserError("is wrong", where="own.yaml:3", hint="fix it"), UserError("too")])
    error.add_note("note: further checks follow")
    assert error._render_traceback_() == [
        "UserError: own.yaml:3: is wrong\n  fix it\ntoo",
        "note: further checks follow",
    ]


def test_strings_are_any_iterable_of_them_but_not_one_string() -> None:
    assert strings("names", (name for name in "ab"), "") == ["a", "b"]
    for wrong in ("ab", {"a": 1}, ["a", 1], 5):
        with pytest.raises(UserError, match="argument names: must be a list of strings") as caught:
            strings("names", wrong, "give ['a']")
        assert caught.value.hint == "give ['a']"


def test_a_heading_is_shown_with_the_first_line_below_it() -> None:
    assert (
        reason(ValueError("Invalid file:\n  - no section\n- no name")) == "Invalid file: no section"
    )
    assert reason(ValueError("is wrong\nat: x")) == "is wrong"


def test_too_few_threads_are_no_fault_of_the_file() -> None:
    said = pytest.raises(UserError, match=r"unavailable\n  raise the limit.* ulimit -u")
    with said, refused("cannot be read", "a.parquet", "copy it", Exception):
        raise OSError(f"Failed to launch worker thread: {os.strerror(errno.EAGAIN)}")
