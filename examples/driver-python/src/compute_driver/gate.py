# SPDX-License-Identifier: Apache-2.0
"""Who may come in: all calls until the shutdown, one at a time of those about nodes, and of those about an instance one at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from compute_driver.call import Call


class Gate:
    """Counts the calls under way and can be closed to new ones."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False
        self._on_close: list[Callable[[], None]] = []

    def enter(self) -> bool:
        with self._changed:
            if self._closed:
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def on_close(self, tell: Callable[[], None]) -> None:
        """Calls tell when the gate closes, at once if it is closed."""
        with self._changed:
            self._on_close.append(tell)
            closed = self._closed
        if closed:
            tell()

    def forget(self, tell: Callable[[], None]) -> None:
        """Undoes on_close."""
        with self._changed:
            if tell in self._on_close:
                self._on_close.remove(tell)

    def close(self, seconds: float | None) -> bool:
        """Refuses new calls, waits for those under way, and says whether they have ended."""
        with self._changed:
            self._closed, waiting = True, self._on_close
            self._on_close = []
        for tell in waiting:
            tell()
        with self._changed:
            return self._changed.wait_for(lambda: self._inside == 0, seconds)


class Turn:
    """Lets one call in at a time. The others wait until it returns or their deadline passes."""

    def __init__(self, words: str = "an earlier call of this driver has not returned") -> None:
        self._lock = threading.Lock()
        self._words = words

    @contextlib.contextmanager
    def of(self, call: Call) -> Iterator[None]:
        while not self._lock.acquire(timeout=0.05):
            call.check(self._words)
        try:
            call.check()
            yield
        finally:
            self._lock.release()


class Turns:
    """A Turn for each key, for as long as a call holds it or waits for it."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._lock = threading.Lock()
        self._turns: dict[str, tuple[Turn, int]] = {}  # with the number of calls

    @contextlib.contextmanager
    def of(self, key: str, call: Call) -> Iterator[None]:
        turn = self._count(key, 1)
        try:
            with turn.of(call):
                yield
        finally:
            self._count(key, -1)

    def _count(self, key: str, by: int) -> Turn:
        with self._lock:
            turn, calls = self._turns.get(key) or (Turn(self._words), 0)
            self._turns[key] = (turn, calls + by)
            if calls + by == 0:
                del self._turns[key]
            return turn
