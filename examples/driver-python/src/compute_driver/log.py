# SPDX-License-Identifier: Apache-2.0
"""Log lines in the format that the agent reads: one JSON object a line on standard error.

Python's own logging ends there too, so that what libraries log arrives with its level, and so does an uncaught exception.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import sys
import threading
import traceback
from datetime import datetime, timezone
from typing import Any

LEVELS = {"trace": 5, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
MAX_TEXT = 16 << 10  # characters of a message or a field: the agent reads lines of 64 KiB, and truncates longer ones
MAX_LINE = 60 << 10
MAX_FIELDS = 60


class Log:
    """A logger that takes fields: log.info("configured", nodes=1)."""

    def __init__(self, logger: logging.Logger, fields: dict[str, Any] | None = None) -> None:
        self._logger = logger
        self._fields = fields or {}

    def with_fields(self, **fields: Any) -> Log:
        return Log(self._logger, {**self._fields, **fields})

    def trace(self, message: str, **fields: Any) -> None:
        self._write(LEVELS["trace"], message, fields)

    def debug(self, message: str, **fields: Any) -> None:
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._write(logging.INFO, message, fields)

    def warn(self, message: str, **fields: Any) -> None:
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._write(logging.ERROR, message, fields)

    def _write(self, level: int, message: str, fields: dict[str, Any]) -> None:
        self._logger.log(level, "%s", message, extra={"fields": {**self._fields, **fields}})


def set_up(stream: Any, level: str) -> Log:
    """Sets the format of all log lines of the process, and the agent's level."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines())
    logging.basicConfig(handlers=[handler], level=LEVELS.get(level, logging.INFO), force=True)
    logging.captureWarnings(True)
    return Log(logging.getLogger("driver"))


def catch_the_rest(logger: Log) -> None:
    """Logs uncaught exceptions as one line each, also those of threads that the driver made, instead of printing them."""

    def log_uncaught(where: str, kind: Any, error: Any, trace: Any) -> None:
        logger.error("An uncaught exception. It is a defect of the driver: report it with this stack.", where=where,
                     error_type=getattr(kind, "__name__", str(kind)), stack="".join(traceback.format_exception(kind, error, trace)))

    sys.excepthook = lambda kind, error, trace: log_uncaught("the main thread", kind, error, trace)
    sys.unraisablehook = lambda u: log_uncaught(str(u.err_msg or "a finalizer"), u.exc_type, u.exc_value, u.exc_traceback)
    threading.excepthook = lambda a: log_uncaught(f"thread {a.thread.name if a.thread else ''}", a.exc_type, a.exc_value, a.exc_traceback)


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "@timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "@level": _level(record.levelno),
            "@message": _cut(_message(record)),
        }
        fields = getattr(record, "fields", None) or {"logger": record.name}
        line.update((str(key), _plain(value)) for key, value in list(fields.items())[:MAX_FIELDS])
        if record.exc_info:
            line["stack"] = _cut("".join(traceback.format_exception(*record.exc_info)), keep_end=True)
        if len(text := json.dumps(line)) > MAX_LINE:  # fields that are all long, or of characters that take many bytes
            text = json.dumps({_cut(key, 40): _cut(str(value), 100) for key, value in line.items()})
        return text


def _message(record: logging.LogRecord) -> str:
    """The message, unformatted if its arguments do not match its placeholders."""
    try:
        return record.getMessage()
    except Exception:
        return str(record.msg)


def _plain(value: Any) -> Any:
    """A value that JSON can represent, bounded."""
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str):
        return _cut(value, keep_end="\n" in value)
    with contextlib.suppress(Exception):
        if isinstance(value, (list, tuple, dict)) and len(json.dumps(value, allow_nan=False)) <= MAX_TEXT:
            return value
    try:
        return _cut(str(value))
    except Exception as e:
        return f"{type(value).__name__} whose text is unavailable: {type(e).__name__}"


def _cut(text: str, most: int = MAX_TEXT, keep_end: bool = False) -> str:
    """Truncates a text. The end of a stack is its most useful part."""
    if len(text) <= most:
        return text
    return "..." + text[-most:] if keep_end else text[:most] + "..."


def _level(number: int) -> str:
    return max((value, name) for name, value in LEVELS.items() if value <= max(number, LEVELS["trace"]))[1]
