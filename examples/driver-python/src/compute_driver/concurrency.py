# SPDX-License-Identifier: Apache-2.0
"""Which calls run concurrently: calls about nodes one at a time, calls about one instance one at a time, no new ones after the shutdown."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from compute_driver.call import Call


class Drain:
    """Counts the calls that run, and rejects new ones once it is closed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._closed = False
        self._on_close: list[Callable[[], None]] = []

    def begin(self) -> bool:
        """Counts a call, and reports whether it may run."""
        with self._changed:
            if self._closed:
                return False
            self._running += 1
            return True

    def end(self) -> None:
        """Ends a call that begin counted."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Registers what close calls. If it is closed already, calls it at once."""
        with self._changed:
            self._on_close.append(callback)
            closed = self._closed
        if closed:
            callback()

    def remove(self, callback: Callable[[], None]) -> None:
        """Undoes on_close."""
        with self._changed:
            if callback in self._on_close:
                self._on_close.remove(callback)

    def close(self, seconds: float | None) -> bool:
        """Rejects new calls, waits for those that run, and reports whether all have returned."""
        with self._changed:
            self._closed, callbacks = True, self._on_close
            self._on_close = []
        for callback in callbacks:
            callback()
        with self._changed:
            return self._changed.wait_for(lambda: self._running == 0, seconds)


class CallLock:
    """Held by one call at a time. The others wait until it returns or their deadline passes."""

    def __init__(self, timeout_text: str = "an earlier call of this driver has not returned") -> None:
        self._lock = threading.Lock()
        self._timeout_text = timeout_text

    @contextlib.contextmanager
    def held(self, call: Call) -> Iterator[None]:
        while not self._lock.acquire(timeout=0.05):
            call.check(self._timeout_text)
        try:
            call.check()
            yield
        finally:
            self._lock.release()


class CallLocks:
    """A CallLock for each key, for as long as a call holds it or waits for it."""

    def __init__(self, timeout_text: str) -> None:
        self._timeout_text = timeout_text
        self._lock = threading.Lock()
        self._locks: dict[str, tuple[CallLock, int]] = {}  # with the number of calls

    @contextlib.contextmanager
    def held(self, key: str, call: Call) -> Iterator[None]:
        lock = self._count(key, 1)
        try:
            with lock.held(call):
                yield
        finally:
            self._count(key, -1)

    def _count(self, key: str, by: int) -> CallLock:
        with self._lock:
            lock, calls = self._locks.get(key) or (CallLock(self._timeout_text), 0)
            self._locks[key] = (lock, calls + by)
            if calls + by == 0:
                del self._locks[key]
            return lock
