# SPDX-License-Identifier: Apache-2.0
"""What surrounds every call: the gate, turns, and that whatever a driver raises fails its own call and nothing else."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from compute_driver import status
from compute_driver.answers import Answer, Failure, Malformed
from compute_driver.call import Call, Ended
from compute_driver.events import Events
from compute_driver.gate import Gate
from compute_driver.log import Log

HEARTBEAT = 10.0  # seconds, if the agent does not say

Context = grpc.ServicerContext
Failed = tuple[grpc.StatusCode, str, bytes]
Behave = Callable[[Any, Call], Any]
Turning = Callable[[Any, Call], contextlib.AbstractContextManager]


class Calls:
    """Makes handlers of gRPC out of functions that know nothing of it."""

    def __init__(self, log: Log) -> None:
        self.gate = Gate()
        self._log = log
        self._defects = Defects()

    def unary(self, name: str, behave: Behave, turn: Turning | None = None, gated: bool = True) -> Callable:
        """A method that answers once. turn is what it waits for."""

        def handle(request: Any, context: Context) -> Any:
            if gated and not self.gate.enter():
                context.abort(grpc.StatusCode.UNAVAILABLE, "the plugin is shutting down")
            call = Call(name, context, self._log)

            def run() -> Any:
                with turn(request, call) if turn is not None else contextlib.nullcontext():
                    return behave(request, call)

            try:
                reply, failure = self._guarded(call, run)
            finally:
                if gated:
                    self.gate.leave()
            if failure is not None:
                _abort(context, failure)
            return reply

        return handle

    def stream(self, name: str, watch: Callable[[Call, Callable[[Any], None]], None] | None, everything: Any,
               respond: Callable[[Any], Any]) -> Callable:
        """A method that passes on what the driver notices, and a heartbeat when it notices nothing.

        watch gets what takes events, of which everything is the one that stands for all others; respond makes a message of an event,
        and a heartbeat of None.
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
                self.gate.on_close(closing)
                yield respond(None)  # at once: the agent knows that the driver watches
                while end is None:
                    event, end = events.take(interval)
                    if end is None:
                        yield respond(event)
            finally:
                self.gate.forget(closing)
                call.end()
            _abort(context, end)

        return handle

    def _guarded(self, call: Call, run: Callable[[], Any]) -> tuple[Any, Failed | None]:
        """Runs the driver's code. Whatever it raises fails this call alone."""
        try:
            return run(), None
        except Answer as e:
            return None, status.of(e)
        except Failure as e:
            code = grpc.StatusCode.INVALID_ARGUMENT if isinstance(e, Malformed) else grpc.StatusCode.UNKNOWN
            return None, (code, status.said(e), b"")
        except Ended as e:
            return None, (e.code, status.said(e), b"")
        except BaseException as e:  # a defect of the driver; sys.exit too, which would end no more than this thread, without an answer
            self._defects.tell(call, e)
            words = f"the driver raised {type(e).__name__} in {call.name}: {status.said(e)} (its stack is in the log)"
            return None, (grpc.StatusCode.INTERNAL, status.cut(words), b"")


class Defects:
    """Logs what a driver raised: the first time at each place of the code with the stack, and then whenever it has happened twice as often."""

    MOST = 100  # places that are counted separately; the others are counted together

    def __init__(self) -> None:
        self._times: dict[tuple, int] = {}
        self._lock = threading.Lock()

    def tell(self, call: Call, e: BaseException) -> None:
        """To be called while e is being handled."""
        place = (call.name, type(e), *((frame.f_code, line) for frame, line in traceback.walk_tb(e.__traceback__)))
        with self._lock:
            if place not in self._times and len(self._times) >= self.MOST:
                place = ()
            times = self._times[place] = self._times.get(place, 0) + 1
        kind = type(e).__name__
        if times == 1:
            call.log.error("The driver raised an exception. This call fails, and the plugin keeps running. It is a defect of the driver: "
                           "report it with this stack", error_type=kind, stack=_stack())
        elif times & (times - 1) == 0:
            call.log.error("the driver goes on raising an exception at the same place; the stack was logged at the first time since the "
                           "plugin was started", error_type=kind, times=times)


def _stack() -> str:
    try:
        return traceback.format_exc()
    except Exception as e:  # an exception that cannot say what it is
        return f"the stack is unavailable: {type(e).__name__}"


def _abort(context: Context, failure: Failed) -> None:
    code, words, details = failure
    if details:
        context.set_trailing_metadata(((status.DETAILS, details),))
    context.abort(code, words)
