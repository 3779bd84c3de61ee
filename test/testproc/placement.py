# SPDX-License-Identifier: Apache-2.0
"""Serve the installed OpenStack Placement on a free port of 127.0.0.1, with an SQLite file or another database.

    serve.py STATE_DIR [DATABASE | AUTH_URL USER PASSWORD]

With the address of a Keystone it asks that one about every token, each time, as a user of the project "service" in the
domain "Default"; without, it believes what requests say (noauth2).

Prints a line "PORT n" (its libraries print others) when it is ready, and ends when its standard input does. It removes
STATE_DIR at the end.
POST /-/reset, which is this script's own, empties the database but for the standard traits and resource classes.
"""

import os
import shutil
import sys
import threading
from wsgiref import simple_server

state = sys.argv[1]
database = "sqlite:///" + os.path.join(state, "placement.sqlite")
if len(sys.argv) == 3:
    database = sys.argv.pop().replace("mysql:", "mysql+pymysql:", 1).replace("postgres:", "postgresql+psycopg2:", 1)
with open(os.path.join(state, "placement.conf"), "w") as conf:
    conf.write(
        "[api]\nauth_strategy = %s\n"
        "[placement_database]\nsync_on_startup = true\nsqlite_synchronous = false\n"
        "connection = %s\n"
        % ("keystone" if sys.argv[2:] else "noauth2", database.replace("$", "$$"))
    )
    if sys.argv[2:]:
        conf.write(
            "[keystone_authtoken]\nauth_type = password\nauth_url = %s\nwww_authenticate_uri = %s\n"
            "username = %s\npassword = %s\nuser_domain_name = Default\n"
            "project_name = service\nproject_domain_name = Default\ntoken_cache_time = -1\n"
            % (sys.argv[2], sys.argv[2], sys.argv[3], sys.argv[4])
        )
os.environ["OS_PLACEMENT_CONFIG_DIR"] = state
sys.argv = sys.argv[:1]

from oslo_db.sqlalchemy import engines  # noqa: E402  (these read the configuration)
from placement import db_api, wsgi  # noqa: E402
from placement.db.sqlalchemy import models  # noqa: E402

engines._thread_yield = lambda *_: None  # It gives the processor away after each query, for threads that are not here.


def reset():
    """Delete all that clients wrote."""
    with db_api.get_placement_engine().begin() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        for table in models.BASE.metadata.sorted_tables:
            rows = table.delete()
            if table.name in ("traits", "resource_classes"):
                rows = rows.where(table.c.name.startswith("CUSTOM_", autoescape=True))
            connection.execute(rows)


def application(app):
    """Placement, and the reset beside it."""

    def call(environ, start_response):
        if environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"] == "/-/reset":
            reset()
            start_response("204 No Content", [])
            return []
        return app(environ, start_response)

    return call


class Handler(simple_server.WSGIRequestHandler):
    """One line per request on standard error, for the counts of the tests."""

    def get_environ(self):
        environ = super().get_environ()
        if "content-type" not in self.headers:  # wsgiref would say text/plain
            environ.pop("CONTENT_TYPE", None)
        return environ

    def log_request(self, code="-", size="-"):
        sys.stderr.write("%s %s %s\n" % (self.command, self.path, code))
        sys.stderr.flush()


server = simple_server.make_server("127.0.0.1", 0, application(wsgi.init_application()), handler_class=Handler)
print("PORT", server.server_port, flush=True)


def end_with_parent():
    sys.stdin.read()
    server.shutdown()


threading.Thread(target=end_with_parent, daemon=True).start()
server.serve_forever(poll_interval=0.05)
shutil.rmtree(state, ignore_errors=True)
