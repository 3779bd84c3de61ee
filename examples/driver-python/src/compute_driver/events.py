# SPDX-License-Identifier: Apache-2.0
"""A bounded queue of events for the agent, without duplicates."""

from __future__ import annotations

import threading
from typing import Any

MOST = 1000  # queued events; one that stands for all replaces more


class Events:
    """Takes events from the driver's thread for the thread that sends them, until it is closed."""

    def __init__(self, everything: Any) -> None:
        self._everything = everything  # the event that stands for all others
        self._changed = threading.Condition()
        self._queued: dict[Any, None] = {}  # in the order in which they came
        self._end: Any = None

    def put(self, event: Any) -> None:
        """Adds an event; if the queue is full, one that stands for all replaces them."""
        with self._changed:
            if len(self._queued) >= MOST and event not in self._queued:
                self._queued = {self._everything: None}
            if self._everything not in self._queued:
                self._queued[event] = None
            self._changed.notify_all()

    def close(self, end: Any) -> None:
        """Ends the queue, and drops the queued events. The first end counts."""
        with self._changed:
            if self._end is None:
                self._end = end
            self._changed.notify_all()

    def take(self, seconds: float) -> tuple[Any, Any]:
        """The next event, or None after that long; and the end, if it has come."""
        with self._changed:
            self._changed.wait_for(lambda: self._queued or self._end is not None, seconds)
            if self._end is not None:
                return None, self._end
            event = next(iter(self._queued), None)
            self._queued.pop(event, None)
            return event, None
