"""Signals that ask a run to stop or to save.

Owns the handlers of the stop signals and of SIGUSR1 while somebody watches, and how a signal
reaches a compiled call, during which Python runs no handler: the C library's handler writes to a
pipe (`signal.set_wakeup_fd`), a thread reads it and calls whoever asked to be woken. Promises to
give every handler back, to call the program's own besides, and to leave ignored signals ignored. A
second stop signal ends the process at once. While no run could lose anything by it, the first one
does: it raises `SystemExit(75)` or `KeyboardInterrupt`. A signal that ended a run is meant for the
process: each later run ends at once for the same reason, but after Ctrl-C in an interactive
session, and where `each_run_alone` says otherwise. Refuses to decide what a request means for a
run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainer.base import clock
from trainer.base.log import LOG
from trainer.journal.reasons import Reason

DEFAULT = ("SIGTERM", "SIGINT", "SIGHUP")
_ONE_REQUEST_SECS = 0.1  # `timeout` and terminals may send the same request twice


def reason_of(number: int) -> Reason:
    """Returns the reason of a run that a stop signal ended."""
    return Reason.INTERRUPTED if number == signal.SIGINT else Reason.PREEMPTED


class Watch:
    """What was asked for by signal since the outermost `watch` began.

    Args:
        stops: the stop signals.

    Attributes:
        stop: the first stop signal, or None.
        asked_at: monotonic seconds at which it came.
        save: whether SIGUSR1 asked for a save that `take_save` has not told yet.
    """

    def __init__(self, stops: Iterable[str] = DEFAULT) -> None:
        self.stops = frozenset(signal.Signals[name] for name in stops)
        self.stop: signal.Signals | None = None
        self.asked_at = 0.0
        self.save = False
        self.wakers: list[Callable[[], None]] = []  # of runs under way, which stop by themselves
        self.honoured = False  # whether somebody was told of the stop signal
        self.users = 0
        self.give_back: Callable[[], None] | None = None  # the handlers, while they are ours
        self._heard_at: float | None = None
        self._saves = {"handler": 0, "thread": 0}  # each delivery is noted by both, in any order

    def note(self, number: int, by: str) -> None:
        """Takes in a signal.

        Args:
            number: the signal.
            by: who noted it, "handler" or "thread".
        """
        if number == signal.SIGUSR1:
            known = max(self._saves.values())
            self._saves[by] += 1
            self.save = self.save or self._saves[by] > known
        elif number in self.stops and self.stop is None:
            self.asked_at = clock.now()
            self.stop = signal.Signals(number)

    def honour(self) -> signal.Signals | None:
        """Returns the stop signal, now that somebody is told of it; None if there is none."""
        if self.stop is not None:
            self.honoured = True
            by_hand = self.stop == signal.SIGINT and hasattr(sys, "ps1")
            if not each_run_alone and not by_hand and self.stop not in _of_process:
                _of_process.append(self.stop)
        return self.stop

    def take_save(self) -> bool:
        """Tells, once, that a save was asked for."""
        asked, self.save = self.save, False
        return asked

    def heard(self, number: int) -> None:
        """Takes in a signal in the thread that hears each of them once, and at once.

        Args:
            number: the signal.
        """
        self.note(number, "thread")
        now = clock.now()
        if number in self.stops and self._heard_at is None:
            self._heard_at = now
        elif number in self.stops and now - (self._heard_at or 0.0) > _ONE_REQUEST_SECS:
            LOG.warning("a second stop signal (%s): ended at once", signal.Signals(number).name)
            os._exit(128 + number)
        asks = number in self.stops or number == signal.SIGUSR1
        for waker in list(self.wakers) if asks else ():
            waker()


each_run_alone = False  # a suite of tests sends signals to itself, each meant for one run
_of_process: list[signal.Signals] = []  # that ended a run: the process is to end
_open: list[Watch] = []  # the one that is open, if one is
_unheard: list[signal.Signals] = []  # came too late for the run that was on: for the next one


@contextlib.contextmanager
def watch(
    waker: Callable[[], None] | None = None, *, stops: Iterable[str] = DEFAULT
) -> Iterator[Watch]:
    """Watches the signals of this process; inside another `watch` it is the same one.

    Args:
        waker: called, from a thread, when something is asked for: it ends a compiled call, and
            whoever gave it looks at what was asked for. None: a stop signal raises.
        stops: the stop signals, by name; inside another `watch` those of that one hold.
    """
    if not _open:
        _open.append(Watch(stops))
    found = _open[0]
    found.users += 1
    with contextlib.ExitStack() as stack:
        stack.callback(_leave, found)
        if found.give_back is None:
            stack.enter_context(_handlers(found, say=waker is not None))
        if waker is not None:
            found.wakers.append(waker)
            stack.callback(found.wakers.remove, waker)
            earlier = _of_process or _unheard
            if earlier and found.stop is None:
                found.stop, found.asked_at = earlier[-1], clock.now()
            _unheard.clear()
        yield found


@contextlib.contextmanager
def deadline(secs: float, expire: Callable[[], object]) -> Iterator[None]:
    """Gives a block of a run so many seconds after a stop signal; outside a run all of them.

    Args:
        secs: the seconds.
        expire: called, from a thread, when they are over and the block is not.
    """
    found = _open[0] if _open and _open[0].wakers else Watch()
    timers: list[threading.Timer] = []

    def start() -> None:
        if found.stop is not None and not timers:
            left = max(0.0, secs - (clock.now() - found.asked_at))
            timers.append(threading.Timer(left, expire))
            timers[0].start()

    found.wakers.append(start)
    try:
        start()
        yield
    finally:
        found.wakers.remove(start)
        for timer in timers:
            timer.cancel()


def _leave(found: Watch) -> None:
    found.users -= 1
    if not found.users and found in _open:
        _open.remove(found)
        _unheard.clear()
        if found.stop is not None and not found.honoured:
            _unheard.append(found.stop)


def _forked() -> None:
    """In a forked child: the signals are its own, and none of them reaches the parent."""
    if _open and _open[0].give_back is not None:
        _open[0].give_back()
        _open[0].give_back = None
    _open.clear()


os.register_at_fork(after_in_child=_forked)


@contextlib.contextmanager
def _handlers(found: Watch, *, say: bool) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        if say:
            LOG.info("not in the main thread: signals to stop or to save are left to the program")
        yield
        return
    listening, writing = os.pipe()
    os.set_blocking(writing, False)
    watched = (*found.stops, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in watched}
    taken = [number for number in watched if before[number] not in (signal.SIG_IGN, None)]
    for number in taken:
        signal.signal(number, _handler(found, before[number]))
    previous = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def give_back() -> None:
        signal.set_wakeup_fd(previous)
        for number in taken:
            signal.signal(number, before[number])
        os.close(writing)

    thread = threading.Thread(target=_listen, args=(listening, found, previous), daemon=True)
    thread.start()
    found.give_back = give_back
    try:
        yield
    finally:
        if found.give_back is not None:  # it is None in a forked child, which has done it
            found.give_back = None
            give_back()
            thread.join()
            os.close(listening)


def _listen(listening: int, found: Watch, previous: int) -> None:
    while numbers := os.read(listening, 64):
        if previous != -1:
            with contextlib.suppress(OSError):
                os.write(previous, numbers)
        for number in numbers:
            found.heard(number)


def _handler(found: Watch, before: Any) -> Callable[[int, types.FrameType | None], None]:
    def handle(number: int, frame: types.FrameType | None) -> None:
        found.note(number, "handler")
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)
        if number in found.stops and not found.wakers:
            _raise(number)

    return handle


def _raise(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(reason_of(number).exit_code)
