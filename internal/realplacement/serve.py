# SPDX-License-Identifier: Apache-2.0
"""Serve the installed OpenStack Placement on a free port of 127.0.0.1, with noauth2 and an SQLite file.

    serve.py STATE_DIR

Prints a line "PORT n" (its libraries print others) when it is ready, and ends when its standard input does.
"""

import os
import sys
import threading
from wsgiref import simple_server

state = sys.argv[1]
with open(os.path.join(state, "placement.conf"), "w") as conf:
    conf.write(
        "[api]\nauth_strategy = noauth2\n"
        "[placement_database]\nsync_on_startup = true\n"
        "connection = sqlite:///%s\n" % os.path.join(state, "placement.sqlite")
    )
os.environ["OS_PLACEMENT_CONFIG_DIR"] = state
sys.argv = sys.argv[:1]

from placement import wsgi  # noqa: E402  (it reads the configuration)


class Handler(simple_server.WSGIRequestHandler):
    """One line per request on standard error, for the counts of the tests."""

    def get_environ(self):
        environ = super().get_environ()
        if self.headers.get("content-type") is None:  # wsgiref would say text/plain
            environ.pop("CONTENT_TYPE", None)
        return environ

    def log_request(self, code="-", size="-"):
        sys.stderr.write("%s %s %s\n" % (self.command, self.path, code))
        sys.stderr.flush()


server = simple_server.make_server("127.0.0.1", 0, wsgi.init_application(), handler_class=Handler)
print("PORT", server.server_port, flush=True)


def end_with_parent():
    sys.stdin.read()
    server.shutdown()


threading.Thread(target=end_with_parent, daemon=True).start()
server.serve_forever(poll_interval=0.05)
