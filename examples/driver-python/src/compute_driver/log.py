# SPDX-License-Identifier: Apache-2.0
"""Log lines in the form that the agent understands: one JSON object a line on standard error.

Python's own logging ends there too, so that what libraries log arrives with its level.
"""

from __future__ import annotations

import json
import logging
import traceback
from datetime import datetime, timezone
from typing import Any

LEVELS = {"trace": 5, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


class Log:
    """A logger that takes fields: log.info("configured", nodes=1)."""

    def __init__(self, logger: logging.Logger, fields: dict[str, Any] | None = None) -> None:
        self._logger = logger
        self._fields = fields or {}

    def with_fields(self, **fields: Any) -> Log:
        return Log(self._logger, {**self._fields, **fields})

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
    """Makes the agent's form that of the whole process, at the agent's level."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines())
    logging.basicConfig(handlers=[handler], level=LEVELS.get(level, logging.INFO), force=True)
    logging.captureWarnings(True)
    return Log(logging.getLogger("driver"))


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "@timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "@level": _level(record.levelno),
            "@message": record.getMessage(),
        }
        line.update(getattr(record, "fields", None) or {"logger": record.name})
        if record.exc_info:
            line["stack"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, default=str)


def _level(number: int) -> str:
    return max((value, name) for name, value in LEVELS.items() if value <= max(number, LEVELS["trace"]))[1]
