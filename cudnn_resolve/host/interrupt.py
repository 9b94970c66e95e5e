"""Signals that end a program: raised as one exception where work can be put back, held off where it must not stop."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.02


class InterruptError(Exception):
    """Somebody wants this program to end; the text is the name of the signal."""


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    raise InterruptError(signal.Signals(number).name)


def interruptible() -> contextlib.AbstractContextManager[None]:
    """Raise InterruptError on SIGINT, SIGTERM and SIGHUP inside; only the main thread can have that, others see no change."""
    return _handlers(_raise)


def undisturbed() -> contextlib.AbstractContextManager[None]:
    """Ignore these signals inside, also in programs that are started there."""
    return _handlers(signal.SIG_IGN)


@contextlib.contextmanager
def mute() -> Iterator[None]:
    """End this process at once and silently on SIGINT inside, unless somebody else has set a handler."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def send_again_what_is_lost() -> None:
    """Send a signal again where Python drops the exception that it raised.

    It does so in a callback that runs while an object ends or an import is tidied up: whoever pressed Ctrl-C then would wait on.
    """
    before = sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs, /) -> None:
        number = signal.SIGINT if issubclass(lost.exc_type, KeyboardInterrupt) else None
        if isinstance(lost.exc_value, InterruptError):
            number = signal.Signals[str(lost.exc_value)]
        if number is None:
            before(lost)
            return
        timer = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))  # by then the callback is over
        timer.daemon = True
        timer.start()

    sys.unraisablehook = hook


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Delay these signals until this is over, so that what happens inside is known to have happened.

    Blocked for this thread, and noted where another thread of ours gets one: handlers run here all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            handlers[signal.Signals(came[0])](came[0], None)


def let_through() -> None:
    """Let a process that was started while signals were held back hear them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


@contextlib.contextmanager
def _handlers(handler: signal.Handlers | object) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with handlers_kept():
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN or handler is signal.SIG_IGN:  # who was started with nohup stays so
                signal.signal(number, handler)  # type: ignore[arg-type]
        yield


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """Put the handlers of these signals back that others replace inside."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
