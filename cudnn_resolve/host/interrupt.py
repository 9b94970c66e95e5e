"""SIGINT, SIGTERM and SIGHUP: raised as one exception where work can be undone, deferred or ignored where it must not stop."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_RESEND_SECONDS = 0.02
_Handler = Callable[[int, "FrameType | None"], Any]


class InterruptError(Exception):
    """A request to end this program; the text is the name of the signal."""


def _raise(number: int, _: FrameType | None) -> None:
    raise InterruptError(signal.Signals(number).name)


def interruptible() -> contextlib.AbstractContextManager[None]:
    """Raise InterruptError on these signals inside; in threads other than the main one nothing changes."""
    return _handlers(_raise)


def ignored_signals() -> contextlib.AbstractContextManager[None]:
    """Ignore these signals inside, also in programs that are started there."""
    return _handlers(signal.SIG_IGN)


@contextlib.contextmanager
def silent_interrupt() -> Iterator[None]:
    """End this process without a traceback on SIGINT inside, unless somebody else has set a handler."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def resend_dropped_signals() -> None:
    """Send a signal again if Python drops the exception that its handler raised.

    Python does so in callbacks that run while an object is deleted or an import is cleaned up: Ctrl-C would have no effect.
    """
    previous = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs, /) -> None:
        number = signal.SIGINT if issubclass(unraisable.exc_type, KeyboardInterrupt) else None
        if isinstance(unraisable.exc_value, InterruptError):
            number = signal.Signals[str(unraisable.exc_value)]
        if number is None:
            previous(unraisable)
            return
        is_sent = False
        while not is_sent:
            timer = threading.Timer(_RESEND_SECONDS, os.kill, (os.getpid(), number))  # mostly, the callback is over by then
            timer.daemon = True
            try:
                timer.start()
                is_sent = True
            except (KeyboardInterrupt, InterruptError):  # the signal is back before this hook has ended, where it would be dropped again
                continue

    sys.unraisablehook = hook


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Deliver these signals only at the end, so that what happens inside is known to have happened.

    Blocked in this thread; recorded if another thread of the process receives one, since Python runs its handlers here all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: received.append(number))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            handlers[signal.Signals(received[0])](received[0], None)


def unblock_signals() -> None:
    """Let a child process that was started while signals were deferred receive them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


@contextlib.contextmanager
def _handlers(handler: signal.Handlers | _Handler) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with restored_handlers():
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN or handler is signal.SIG_IGN:  # under nohup, SIGHUP stays ignored
                signal.signal(number, handler)
        yield


@contextlib.contextmanager
def restored_handlers() -> Iterator[None]:
    """Restore the handlers of these signals at the end, in case others replace them inside."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
