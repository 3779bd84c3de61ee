# SPDX-License-Identifier: Apache-2.0
"""The one place where what a driver raised becomes a status of gRPC, with the protocol's message as its detail."""

from __future__ import annotations

import grpc
from google.protobuf.message import Message

from compute_driver import driver_pb2 as pb
from compute_driver import envelope_pb2 as envelope
from compute_driver.answers import (Answer, ConfigError, InstanceFault, InstanceNotFound, NotReady, ReshapeFailed, ReshapeNeeded,
                                    Unsupported)

MAX_WORDS = 16 << 10  # bytes; they travel in a header, which implementations keep small
MAX_VIOLATIONS = 500
DETAILS = "grpc-status-details-bin"


def of(answer: Answer) -> tuple[grpc.StatusCode, str, bytes]:
    """Code, words, and what goes into the trailer DETAILS."""
    words = said(answer)
    if isinstance(answer, Unsupported):
        return grpc.StatusCode.UNIMPLEMENTED, words, b""
    code, detail = _detail(answer)
    status = envelope.Status(code=code.value[0], message=words, details=[
        envelope.Detail(type_url="type.googleapis.com/" + detail.DESCRIPTOR.full_name, value=detail.SerializeToString()),
    ])
    return code, words, status.SerializeToString()


def _detail(answer: Answer) -> tuple[grpc.StatusCode, Message]:
    if isinstance(answer, ReshapeNeeded):
        return grpc.StatusCode.FAILED_PRECONDITION, pb.ReshapeNeeded(reason=cut(answer.reason))
    if isinstance(answer, NotReady):
        return grpc.StatusCode.FAILED_PRECONDITION, pb.NotReady(reason=cut(answer.reason))
    if isinstance(answer, ConfigError):
        return grpc.StatusCode.INVALID_ARGUMENT, pb.ConfigError(key=cut(answer.key), problem=cut(answer.problem))
    if isinstance(answer, ReshapeFailed):
        return grpc.StatusCode.ABORTED, _failed(answer)
    if isinstance(answer, InstanceNotFound):
        return grpc.StatusCode.NOT_FOUND, pb.InstanceNotFound(uuid=cut(answer.uuid, 512))
    if isinstance(answer, InstanceFault):
        return grpc.StatusCode.FAILED_PRECONDITION, pb.InstanceFault(uuid=cut(answer.uuid, 512), reason=cut(answer.reason))
    raise TypeError(f"{type(answer).__name__} is no answer of the protocol")


def _failed(answer: ReshapeFailed) -> pb.ReshapeFailed:
    out = pb.ReshapeFailed(reason=cut(answer.reason))
    for o in answer.violations[:MAX_VIOLATIONS]:
        out.offenders.add(consumer_uuid=cut(o.consumer, 512), provider_uuid=cut(o.provider, 512),
                          resource_class=cut(o.resource_class, 512), problem=cut(o.problem, 512))
    if (more := len(answer.violations) - MAX_VIOLATIONS) > 0:
        out.offenders.add(problem=f"and {more} more")
    return out


def cut(words: str, most: int = MAX_WORDS) -> str:
    """Bounds words to a number of bytes, and makes them something that protobuf takes."""
    words = str(words)
    raw = words[:most].encode("utf-8", "replace")
    return raw.decode() if len(words) <= most and len(raw) <= most else raw[:most].decode("utf-8", "ignore") + "..."


def said(error: BaseException) -> str:
    """An exception in words, also one that cannot say them."""
    try:
        return cut(str(error))
    except Exception as e:
        return f"{type(error).__name__}, whose text is unavailable: {type(e).__name__}"
