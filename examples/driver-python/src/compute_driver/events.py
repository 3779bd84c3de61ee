# SPDX-License-Identifier: Apache-2.0
"""What a driver notices, on its way to the agent: a bounded queue, in which the same thing is there once."""

from __future__ import annotations

import threading
from typing import Any

MOST = 1000  # things that wait; with more, "everything" waits instead


class Events:
    """Takes events from the driver's thread for the thread that sends them, until it is closed."""

    def __init__(self, everything: Any) -> None:
        self._everything = everything  # the event that stands for all others
        self._changed = threading.Condition()
        self._waiting: dict[Any, None] = {}  # in the order in which they came
        self._end: Any = None

    def put(self, event: Any) -> None:
        """Adds an event; if too many wait, one that stands for all replaces them."""
        with self._changed:
            if len(self._waiting) >= MOST and event not in self._waiting:
                self._waiting = {self._everything: None}
            if self._everything not in self._waiting:
                self._waiting[event] = None
            self._changed.notify_all()

    def close(self, end: Any) -> None:
        """Ends the queue: what waits is dropped. The first end counts."""
        with self._changed:
            if self._end is None:
                self._end = end
            self._changed.notify_all()

    def take(self, seconds: float) -> tuple[Any, Any]:
        """The next event, or None after that long; and the end, if it has come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._end is not None, seconds)
            if self._end is not None:
                return None, self._end
            event = next(iter(self._waiting), None)
            self._waiting.pop(event, None)
            return event, None
