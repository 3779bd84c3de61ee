# SPDX-License-Identifier: Apache-2.0
"""serve: the whole main program of a driver."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from concurrent import futures
from typing import NoReturn

import grpc

from compute_driver import handshake, log, process
from compute_driver.driver import Driver
from compute_driver.service import SDK, Service, announced

MAX_MESSAGE = 16 << 20  # bytes in both directions, as the protocol has it
THREADS = 1000  # started on demand: each call that waits for another holds one, and so does each stream


def serve(driver: Driver, stdout: int) -> NoReturn:
    """Serves the driver until the agent ends the connection. If an operator started it, it prints how to use it instead.

    stdout is what handshake.claim_stdout returned; without an agent, the ordinary one.
    """
    if sys.argv[1:2] in (["--info"], ["-info"]):
        sys.exit(_print_info(driver))
    if not handshake.started_by_agent():
        print(_EXPLANATION.format(d=driver, program=os.path.basename(sys.argv[0])), file=sys.stderr)
        sys.exit(os.EX_USAGE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent
    process.end_with_parent()
    process.set_name(driver.name)
    process.keep_executable()
    logger = log.set_up(sys.stderr, os.environ.get(handshake.LOG_LEVEL, ""))
    log.catch_the_rest(logger)
    try:
        _serve(driver, stdout, logger)
    except handshake.Refused as e:
        logger.error(f"the plugin cannot start: {e}")
        _exit(1)
    _exit(0)


def _serve(driver: Driver, stdout: int, logger: log.Log) -> None:
    handshake.check_versions(os.environ)
    path = handshake.socket_path(os.environ)
    credentials, certificate = handshake.credentials(os.environ)
    ended = threading.Event()
    server = grpc.server(
        futures.ThreadPoolExecutor(THREADS, thread_name_prefix="call"),
        handlers=[*Service(driver, logger).handlers(), *_go_plugin(ended)],
        options=[("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)],
    )
    former = os.umask(0o077)
    try:
        server.add_secure_port("unix:" + path, credentials)
        server.start()
    finally:
        os.umask(former)
    with os.fdopen(stdout, "w", encoding="ascii") as out:
        out.write(handshake.line(path, certificate))
    ended.wait()
    server.stop(grace=1).wait(2)
    with contextlib.suppress(OSError):
        os.remove(path)


def _go_plugin(ended: threading.Event) -> list[grpc.GenericRpcHandler]:
    """The services that go-plugin itself calls: health and shutdown. The others are optional.

    Their messages are literals here.
    """

    def check(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        return b"\x08\x01"  # status: SERVING

    def shutdown(_request: bytes, context: grpc.ServicerContext) -> bytes:
        if not context.add_callback(ended.set):  # after the reply is sent
            ended.set()
        return b""

    return [
        grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check)}),
        grpc.method_handlers_generic_handler("plugin.GRPCController", {"Shutdown": grpc.unary_unary_rpc_method_handler(shutdown)}),
    ]


def _exit(code: int) -> NoReturn:
    """Ends the process also if a call hangs in the driver; Python would wait for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _print_info(driver: Driver) -> int:
    try:
        print(json.dumps(_description(driver), indent=2))
    except (TypeError, ValueError, RecursionError) as e:
        print(f"cannot print the driver's info (can its configuration schema be JSON?): {e}", file=sys.stderr)
        return 1
    return 0


def _description(driver: Driver) -> dict:
    out = {"name": driver.name, "version": driver.version, "protocols": [handshake.PROTOCOL],
           "capabilities": announced(driver), "sdk": SDK}
    if (schema := driver.config_schema()) is not None:
        out["config_schema"] = schema
    return out


_EXPLANATION = """This is the virt driver "{d.name}" (version {d.version}), a plugin of compute-agent. It does not run by itself:
the agent starts it when its configuration has a table [drivers.{d.name}].

  {program} --info    prints its name, capabilities and configuration schema, as JSON"""
