# SPDX-License-Identifier: Apache-2.0
"""Converts errors of a driver to gRPC statuses, with the protocol's message as the detail."""

from __future__ import annotations

import grpc
from google.protobuf.message import Message

from compute_driver import driver_pb2 as pb
from compute_driver import envelope_pb2 as envelope
from compute_driver.errors import (TypedError, ConfigError, InstanceFault, InstanceNotFound, NotReady, ReshapeFailed, ReshapeNeeded,
                                    Unsupported)

MAX_TEXT = 16 << 10  # bytes; they are sent in a header, which implementations bound
MAX_VIOLATIONS = 500
DETAILS = "grpc-status-details-bin"


def of(error: TypedError) -> tuple[grpc.StatusCode, str, bytes]:
    """Returns code, text, and the value of the trailer DETAILS."""
    text = text_of(error)
    if isinstance(error, Unsupported):
        return grpc.StatusCode.UNIMPLEMENTED, text, b""
    code, detail = _detail(error)
    status = envelope.Status(code=code.value[0], message=text, details=[
        envelope.Detail(type_url="type.googleapis.com/" + detail.DESCRIPTOR.full_name, value=detail.SerializeToString()),
    ])
    return code, text, status.SerializeToString()


def _detail(error: TypedError) -> tuple[grpc.StatusCode, Message]:
    if isinstance(error, ReshapeNeeded):
        return grpc.StatusCode.FAILED_PRECONDITION, pb.ReshapeNeeded(reason=cut(error.reason))
    if isinstance(error, NotReady):
        return grpc.StatusCode.FAILED_PRECONDITION, pb.NotReady(reason=cut(error.reason))
    if isinstance(error, ConfigError):
        return grpc.StatusCode.INVALID_ARGUMENT, pb.ConfigError(key=cut(error.key), problem=cut(error.problem))
    if isinstance(error, ReshapeFailed):
        return grpc.StatusCode.ABORTED, _failed(error)
    if isinstance(error, InstanceNotFound):
        return grpc.StatusCode.NOT_FOUND, pb.InstanceNotFound(uuid=cut(error.uuid, 512))
    if isinstance(error, InstanceFault):
        return grpc.StatusCode.FAILED_PRECONDITION, pb.InstanceFault(uuid=cut(error.uuid, 512), reason=cut(error.reason))
    raise TypeError(f"{type(error).__name__} is not an error of the protocol")


def _failed(error: ReshapeFailed) -> pb.ReshapeFailed:
    out = pb.ReshapeFailed(reason=cut(error.reason))
    for o in error.violations[:MAX_VIOLATIONS]:
        out.offenders.add(consumer_uuid=cut(o.consumer, 512), provider_uuid=cut(o.provider, 512),
                          resource_class=cut(o.resource_class, 512), problem=cut(o.problem, 512))
    if (more := len(error.violations) - MAX_VIOLATIONS) > 0:
        out.offenders.add(problem=f"and {more} more")
    return out


def cut(text: str, most: int = MAX_TEXT) -> str:
    """Truncates a text to a number of bytes, and makes it valid UTF-8."""
    text = str(text)
    raw = text[:most].encode("utf-8", "replace")
    return raw.decode() if len(text) <= most and len(raw) <= most else raw[:most].decode("utf-8", "ignore") + "..."


def text_of(error: BaseException) -> str:
    """The text of an exception, also of one whose text cannot be read."""
    try:
        return cut(str(error))
    except Exception as e:
        return f"{type(error).__name__}, whose text is unavailable: {type(e).__name__}"
