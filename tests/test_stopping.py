from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from fedsim import stopping
from fedsim.stopping import SIGNALS, Grace, Stopped, grace, install


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGINT)}
    install()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_process_like_ctrl_c(number: int) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        signal.raise_signal(number)
    assert isinstance(caught.value, Stopped)
    assert caught.value.signal_number == number


def test_work_ends_at_its_next_good_moment_and_at_once_by_a_second_signal() -> None:
    period = Grace()
    with grace(period):
        period.stop_if_requested()
        signal.raise_signal(signal.SIGTERM)
        assert period.requested == signal.SIGTERM
        with pytest.raises(Stopped):
            period.stop_if_requested()
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)


def test_ctrl_c_is_noted_during_work_and_python_s_again_afterwards(
    capfd: pytest.CaptureFixture[str],
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    period = Grace()
    with grace(period):
        signal.raise_signal(signal.SIGINT)
        assert "Ctrl-C again stops at once" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            period.stop_if_requested()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_with_its_own_way_to_treat_ctrl_c_keeps_it() -> None:
    seen = []
    signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    with grace(Grace()):
        signal.raise_signal(signal.SIGINT)
    assert seen == [signal.SIGINT]


def test_work_that_comes_to_no_good_moment_ends_when_the_period_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stopping, "GRACE_S", 0.05)

    def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        for _ in range(200):
            time.sleep(0.05)

    began = time.monotonic()
    with grace(Grace()), pytest.raises(Stopped):
        work()
    assert time.monotonic() - began < 5


def test_a_signal_that_was_ignored_on_purpose_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    install()
    signal.raise_signal(signal.SIGHUP)


def test_another_process_requests_a_stop_as_a_signal_would() -> None:
    period = Grace()
    with grace(period):
        stopping.request(signal.SIGINT)
        with pytest.raises(Stopped):
            period.stop_if_requested()
    with pytest.raises(Stopped):
        stopping.request(signal.SIGINT)
