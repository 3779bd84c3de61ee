# SPDX-License-Identifier: Apache-2.0
"""One call of the agent: its logger, its deadline, and whether the agent still waits for the reply."""

from __future__ import annotations

import re
import threading
import time

import grpc

from compute_driver import handshake
from compute_driver.log import Log


class Ended(Exception):
    """The agent no longer waits for the reply."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def _request_id(context: grpc.ServicerContext) -> str:
    ids = [value for key, value in context.invocation_metadata() or () if key == handshake.REQUEST_ID]
    return ids[0] if len(ids) == 1 and re.fullmatch("req-[0-9a-f-]{1,60}", str(ids[0])) else ""


class Call:
    """A call that runs."""

    def __init__(self, name: str, context: grpc.ServicerContext, log: Log) -> None:
        self.name = name
        self.request_id = _request_id(context)  # of the client's request that the call serves, or ""
        self.log = log.with_fields(call=name, **({"request_id": self.request_id} if self.request_id else {}))
        self._context = context
        self._limit: float | None = None  # the plugin's own limit, before the deadline
        self._over = threading.Event()
        if not context.add_callback(self._over.set):  # it had ended before
            self._over.set()

    def limit(self, seconds: float) -> None:
        """Gives the call less time than its deadline does."""
        self._limit = time.monotonic() + min(seconds, threading.TIMEOUT_MAX)

    def remaining(self) -> float | None:
        """Seconds until the deadline, or None if there is none."""
        left = self._context.time_remaining()
        if left is not None and left > threading.TIMEOUT_MAX:  # gRPC's way of saying that there is none
            left = None
        if self._limit is None:
            return left
        ours = max(0.0, self._limit - time.monotonic())
        return ours if left is None else min(left, ours)

    def ended(self) -> bool:
        """Whether the agent cancelled the call, its deadline has passed, or it has returned."""
        return self._over.is_set() or self.remaining() == 0

    def wait(self, seconds: float) -> bool:
        """Waits for that long or until the call has ended, and reports whether it has."""
        left = self.remaining()
        self._over.wait(seconds if left is None else min(seconds, left))
        return self.ended()

    def end(self) -> None:
        """Ends the call from this side."""
        self._over.set()

    def check(self, doing: str = "") -> None:
        """Raises Ended if the call has: the work can stop."""
        left = self.remaining()
        if left is not None and left <= 0:
            raise Ended(grpc.StatusCode.DEADLINE_EXCEEDED, doing or "the deadline of the call has passed")
        if self.ended():
            raise Ended(grpc.StatusCode.CANCELLED, doing or "the call was cancelled")
