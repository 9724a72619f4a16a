import signal
import time
from collections.abc import Iterator

import pytest

from fedsim.processes import stopping
from fedsim.processes.stopping import SIGNALS, Grace, Stopped, grace, install
from tests.signals import default_signals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGINT)}
    default_signals()
    install()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each signal counts, as if they did not arrive together."""
    monkeypatch.setattr(stopping, "TOGETHER_S", 0.0)


@pytest.mark.parametrize("number", [*SIGNALS, signal.SIGINT])
def test_a_signal_ends_the_process_like_ctrl_c(number: int) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        signal.raise_signal(number)
    assert isinstance(caught.value, Stopped)
    assert caught.value.signal_number == number


@pytest.mark.usefixtures("apart")
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


@pytest.mark.parametrize("raises", [True, False])
def test_signals_that_arrive_together_count_as_one(raises: bool) -> None:
    """The second interrupts neither the work nor what follows it."""
    period = Grace(raises=raises)
    with grace(period):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert (period.requested, period.urgent) == (signal.SIGTERM, False)
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.usefixtures("apart")
def test_work_that_looks_at_the_signals_is_never_interrupted() -> None:
    period = Grace(raises=False)
    with grace(period):
        signal.raise_signal(signal.SIGTERM)
        assert not period.urgent
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert (period.requested, period.urgent) == (signal.SIGTERM, True)


@pytest.mark.usefixtures("apart")
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


@pytest.mark.usefixtures("apart")
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


def test_handlers_of_the_program_are_kept() -> None:
    """Also that a signal is ignored, as SIGHUP is by ``nohup``."""
    seen: list[int] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: seen.append(number))
    install()
    with grace(Grace()):
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
    assert seen == [signal.SIGTERM, signal.SIGINT]


def test_another_process_requests_a_stop_as_a_signal_would() -> None:
    period = Grace()
    with grace(period):
        stopping.request(signal.SIGINT)
        with pytest.raises(Stopped):
            period.stop_if_requested()
    with pytest.raises(Stopped):
        stopping.request(signal.SIGINT)
