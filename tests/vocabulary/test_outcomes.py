"""Outcomes of dispatches: the words in files, and which of them count as lost work."""

from fedsim.vocabulary.outcomes import CAUSE_LABELS, LOST_LABELS, OUTCOME_LABELS, Outcome


def test_the_words_and_codes_of_files_do_not_change() -> None:
    assert OUTCOME_LABELS == ("aggregated", "late", "dropped", "cut", "discarded", "unfinished")
    assert [Outcome(code).label for code in range(len(OUTCOME_LABELS))] == list(OUTCOME_LABELS)
    assert CAUSE_LABELS == ("offline", "crash", "lost upload", "battery", "declined")


def test_aggregated_and_unfinished_work_is_not_lost() -> None:
    assert LOST_LABELS == ("late", "dropped", "cut", "discarded")
