"""Requests to stop, as signals really come: in bursts, and while an earlier one is being handled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from mmsbgen.base.stop_signals import StopRequest, TimeUpError, deferring, ending_at

WAITS = """
import sys, time
from mmsbgen.base.stop_signals import StopRequest
found = StopRequest(once_within_s=2.0, interrupts=False)
with found.listening():
    print("ready", flush=True)
    began = time.monotonic()
    found.wait(60)
    waited = time.monotonic() - began
    print(waited < 30, flush=True)
    sys.stdin.readline()  # the rest of the burst comes meanwhile
    print(found.count, found.last, flush=True)
    sys.stdin.readline()
    print(found.count, found.last, flush=True)
"""


@pytest.mark.parametrize("late", [-1.0, 0.05])
def test_time_that_is_up_ends_a_block_and_leaves_an_earlier_alarm(late: float) -> None:
    before, (earlier, _) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    began = time.monotonic()
    with pytest.raises(TimeUpError), ending_at(began + late):
        time.sleep(20)
    assert time.monotonic() - began < 10
    with ending_at(began + 1000):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    assert (left == 0) if earlier == 0 else (0 < left <= earlier)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_burst_of_signals_is_one_asking_and_hangs_nobody(number: signal.Signals) -> None:
    """Where a handler took a lock, the next signal of a burst made it wait for itself, in two of three bursts."""
    crew = [
        subprocess.Popen(
            [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for _ in range(6)
    ]
    try:
        for worker in crew:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        time.sleep(0.1)
        for worker in crew:
            for _ in range(60):
                worker.send_signal(number)
        for worker in crew:
            said, _ = worker.communicate("\n\n", timeout=20)
            assert (worker.returncode, said) == (0, f"True\n1 {int(number)}\n1 {int(number)}\n")
    finally:
        for worker in crew:
            worker.kill()
            worker.wait()
            for file in (worker.stdin, worker.stdout):
                if file is not None:
                    file.close()


@pytest.mark.slow
def test_who_asks_again_later_wants_it_at_once() -> None:
    command = [sys.executable, "-c", WAITS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout.readline() == "True\n"
        worker.stdin.write("\n")
        assert worker.stdout.readline() == "1 15\n"
        time.sleep(2.2)
        worker.send_signal(signal.SIGINT)
        time.sleep(0.2)
        said, _ = worker.communicate("\n", timeout=20)
        assert (worker.returncode, said) == (0, "2 2\n")


@pytest.mark.slow
def test_a_terminal_that_is_closed_asks_once_however_often_it_tells() -> None:
    """The shell sends SIGHUP, and then the system does."""
    command = [sys.executable, "-c", WAITS.replace("once_within_s=2.0, interrupts=False", "")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        run.send_signal(signal.SIGHUP)
        assert run.stdout.readline() == "True\n"
        for _ in range(3):
            run.send_signal(signal.SIGHUP)
            time.sleep(0.05)
        said, _ = run.communicate("\n\n", timeout=20)
        assert (run.returncode, said) == (0, "1 1\n1 1\n")


def test_a_run_under_nohup_goes_on() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest().listening() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
            assert not stop
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_block_that_must_not_be_interrupted_ends_before_the_signals_count() -> None:
    ended: list[bool] = []
    with StopRequest().listening([signal.SIGINT]) as stop:
        with pytest.raises(KeyboardInterrupt):
            _ended_in_spite_of_signals(ended)
        assert (ended, stop.count) == ([True], 2)


def _ended_in_spite_of_signals(ended: list[bool]) -> None:
    with deferring():
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        ended.append(True)
