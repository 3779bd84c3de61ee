# SPDX-License-Identifier: Apache-2.0
"""The main program of a driver that does what it should not, on request. The tests put it into an archive in the place of __main__.py."""

import os
import sys

from compute_driver import handshake

stdout = handshake.claim_stdout() if handshake.started_by_agent() else 1
print("stray line before the handshake")
os.write(1, b"stray bytes before the handshake\n")

import subprocess  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402

from compute_driver import Driver, Node, NotReady, ReshapeFailed, Violation  # noqa: E402
from compute_driver.serving import serve  # noqa: E402


class Fixture(Driver):
    """What AvailableNodes does is the configuration's to say."""

    name, version = "fixture", "1"

    def __init__(self) -> None:
        self.config = {}

    def config_schema(self):
        return {"title": "x" * int(os.environ.get("FIXTURE_SCHEMA", "1"))}

    def configure(self, call, config, host):
        self.config = config

    def available_nodes(self, call):
        getattr(self, "do_" + self.config.get("do", "nothing"))(call)
        return [Node("cn1")]

    def update_provider_tree(self, call, tree, node, allocations):
        raise ReshapeFailed("r" * 1_000_000, [Violation("c" * 10_000, problem="p" * 10_000)] * 10_000)

    def watch(self, call, changed):
        call.log.info("watching")
        while not call.wait(3600):
            pass
        call.log.info("watched to the end")

    def shutdown(self, call):
        call.log.info("tidying up")

    def do_nothing(self, call):
        pass

    def do_raise(self, call):
        raise RuntimeError("lost: " + "x" * 10_000_000)

    def do_exit(self, call):
        sys.exit(3)

    def do_wait(self, call):
        call.log.info("waiting")
        call.wait(3600)
        call.log.info("given up")
        call.check()

    def do_linger(self, call):
        call.log.info("lingering")
        while not os.path.exists(self.config["until"]):
            time.sleep(0.01)
        call.log.info("lingered")

    def do_huge(self, call):
        raise NotReady("\u20ac" * 10_000_000)

    def do_print(self, call):
        print("stray line in a call")
        threading.Thread(target=lambda: {}["lost"], name="poller").start()

    def do_child(self, call):
        child = subprocess.Popen(["/bin/sleep", "3600"])
        call.log.info("child", child=child.pid)


serve(Fixture(), stdout)
