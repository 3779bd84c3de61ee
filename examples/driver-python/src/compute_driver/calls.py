# SPDX-License-Identifier: Apache-2.0
"""What surrounds every call: draining, locks, and conversion of what a driver raises to a status of that call alone."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from compute_driver import status
from compute_driver.errors import TypedError, Failure, Malformed
from compute_driver.call import Call, Ended
from compute_driver.events import Events
from compute_driver.concurrency import Drain
from compute_driver.log import Log

HEARTBEAT = 10.0  # seconds, if the agent does not say

Context = grpc.ServicerContext
Failed = tuple[grpc.StatusCode, str, bytes]
Behave = Callable[[Any, Call], Any]
Serialize = Callable[[Any, Call], contextlib.AbstractContextManager]


class Calls:
    """Makes gRPC handlers from functions without types of gRPC."""

    def __init__(self, log: Log) -> None:
        self.drain = Drain()
        self._log = log
        self._defects = Defects()

    def unary(self, name: str, behave: Behave, serialize: Serialize | None = None, drained: bool = True) -> Callable:
        """A unary method. serialize returns the lock that it holds; drained says that the shutdown waits for it."""

        def handle(request: Any, context: Context) -> Any:
            if drained and not self.drain.begin():
                context.abort(grpc.StatusCode.UNAVAILABLE, "the plugin is shutting down")
            call = Call(name, context, self._log)

            def run() -> Any:
                with serialize(request, call) if serialize is not None else contextlib.nullcontext():
                    return behave(request, call)

            try:
                reply, failure = self._guarded(call, run)
            finally:
                if drained:
                    self.drain.end()
            if failure is not None:
                _abort(context, failure)
            return reply

        return handle

    def stream(self, name: str, watch: Callable[[Call, Callable[[Any], None]], None] | None, everything: Any,
               respond: Callable[[Any], Any]) -> Callable:
        """A method that streams the events of a driver, and a heartbeat when there are none.

        watch gets the function that takes events; everything is the event that stands for all others. respond makes a message of an
        event, and a heartbeat of None.
        """

        def handle(request: Any, context: Context) -> Iterator[Any]:
            if watch is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "this driver does not watch")
            interval = request.heartbeat_ms / 1000
            if not 0 < interval <= 60:
                interval = HEARTBEAT
            call, events = Call(name, context, self._log), Events(everything)

            def run() -> None:
                _, failure = self._guarded(call, lambda: watch(call, events.put))
                events.close(failure or (grpc.StatusCode.UNKNOWN, "the driver stopped watching", b""))

            def closing() -> None:
                events.close((grpc.StatusCode.UNAVAILABLE, "the plugin is shutting down", b""))

            if not context.add_callback(lambda: events.close((grpc.StatusCode.CANCELLED, "", b""))):
                return
            threading.Thread(target=run, name=name, daemon=True).start()
            end = None
            try:
                self.drain.on_close(closing)
                yield respond(None)  # at once, so that the agent knows that the driver watches
                while end is None:
                    event, end = events.take(interval)
                    if end is None:
                        yield respond(event)
            finally:
                self.drain.remove(closing)
                call.end()
            _abort(context, end)

        return handle

    def _guarded(self, call: Call, run: Callable[[], Any]) -> tuple[Any, Failed | None]:
        """Runs the driver's code. What it raises fails this call alone."""
        try:
            return run(), None
        except TypedError as e:
            return None, status.of(e)
        except Failure as e:
            code = grpc.StatusCode.INVALID_ARGUMENT if isinstance(e, Malformed) else grpc.StatusCode.UNKNOWN
            return None, (code, status.text_of(e), b"")
        except Ended as e:
            return None, (e.code, status.text_of(e), b"")
        except BaseException as e:  # a defect of the driver; sys.exit too, which would end no more than this thread, without a reply
            self._defects.log(call, e)
            text = f"the driver raised {type(e).__name__} in {call.name}: {status.text_of(e)} (its stack is in the log)"
            return None, (grpc.StatusCode.INTERNAL, status.cut(text), b"")


class Defects:
    """Logs unexpected exceptions, rate-limited: at each place of the code the first one with its stack, then when the count doubles."""

    MOST = 100  # places that are counted separately; the others are counted together

    def __init__(self) -> None:
        self._times: dict[tuple, int] = {}
        self._lock = threading.Lock()

    def log(self, call: Call, e: BaseException) -> None:
        """To be called while e is being handled."""
        place = (call.name, type(e), *((frame.f_code, line) for frame, line in traceback.walk_tb(e.__traceback__)))
        with self._lock:
            if place not in self._times and len(self._times) >= self.MOST:
                place = ()
            times = self._times[place] = self._times.get(place, 0) + 1
        kind = type(e).__name__
        if times == 1:
            call.log.error("The driver raised an exception. This call fails, and the plugin keeps running. It is a defect of the driver: "
                           "report it with this stack.", error_type=kind, stack=_stack())
        elif times & (times - 1) == 0:
            call.log.error("The driver keeps raising an exception at the same place. The stack was logged the first time since the "
                           "plugin was started.", error_type=kind, times=times)


def _stack() -> str:
    try:
        return traceback.format_exc()
    except Exception as e:  # an exception whose text cannot be read
        return f"the stack is unavailable: {type(e).__name__}"


def _abort(context: Context, failure: Failed) -> None:
    code, text, details = failure
    if details:
        context.set_trailing_metadata(((status.DETAILS, details),))
    context.abort(code, text)
