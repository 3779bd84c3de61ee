# SPDX-License-Identifier: Apache-2.0
"""One call of the agent, as the driver sees it: its logger, its deadline, and whether anybody still waits for the answer."""

from __future__ import annotations

import threading

import grpc

from compute_driver.log import Log


class Ended(Exception):
    """Nobody waits for the answer any more."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        super().__init__(words)
        self.code = code


class Call:
    """A call under way."""

    def __init__(self, name: str, context: grpc.ServicerContext, log: Log) -> None:
        self.name = name
        self.log = log.with_fields(call=name)
        self._context = context
        self._over = threading.Event()
        if not context.add_callback(self._over.set):  # it had ended before
            self._over.set()

    def remaining(self) -> float | None:
        """Seconds until the deadline, or None if there is none."""
        return self._context.time_remaining()

    def ended(self) -> bool:
        """Whether the agent gave up waiting, or the call is over."""
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Waits for that long, or until the call has ended, and says whether it has."""
        return self._over.wait(seconds)

    def end(self) -> None:
        """Ends the call from this side."""
        self._over.set()

    def check(self, doing: str = "") -> None:
        """Raises Ended if the call has: what is under way may stop."""
        left = self.remaining()
        if left is not None and left <= 0:
            raise Ended(grpc.StatusCode.DEADLINE_EXCEEDED, doing or "the deadline of the call has passed")
        if self.ended():
            raise Ended(grpc.StatusCode.CANCELLED, doing or "the call was given up")
