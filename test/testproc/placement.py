# SPDX-License-Identifier: Apache-2.0
"""Run the installed OpenStack Placement for tests, as many at once as they ask for.

    serve.py DIR

Standard input ends the program; file descriptor 3 is a listening socket. Each connection sends one line of JSON and
gets one line, from a process of its own: this one has imported Placement, which takes seconds, and forks.

    {"do": "look"}                                      {"missing": WHY, if Placement is not installed}
    {"do": "ask", "database": DATABASE, "requests": [[METHOD, PATH, BODY or null, VERSION or nothing] ...]}
                                                        {"answers": [[STATUS, BODY or null] ...]}
    {"do": "serve", "database": DATABASE or nothing, "keystone": [AUTH_URL, USER, PASSWORD] or nothing}
                                                        {"port": PORT} of 127.0.0.1

or {"error": WHY}. A database is an SQLite file or a DSN; its tables are made, or brought up to date. A service without
one has an empty SQLite file, and ends, as all do, with the connection that asked for it. With the address of a Keystone
it asks that one about every token, each time, as a user of the project "service" in the domain "Default"; without, it
believes what requests say (noauth2).
POST /-/reset, which is this script's own, empties the database but for the standard traits and resource classes.
"""

import fcntl
import gc
import json
import os
import re
import select
import shutil
import signal
import socket
import sys
import threading
import traceback
from wsgiref import simple_server

home = sys.argv[1]
sys.argv = sys.argv[:1]
missing = None
try:
    import jsonschema
    from oslo_db.sqlalchemy import engines
    from placement import db_api, wsgi
    from placement.db.sqlalchemy import models
    import webob

    engines._thread_yield = lambda *_: None  # It gives the processor away after each query, for threads that are not here.
    for draft in vars(jsonschema).values():
        if hasattr(draft, "check_schema"):  # Each request has it judge Placement's own schemas again.
            draft.check_schema = lambda *_, **__: None
except ImportError:
    missing = traceback.format_exc()


def application(state, database, keystone=None, sync=True):
    """Placement on a database, with its configuration in a directory."""
    if "://" in database:
        database = re.sub("^mysql:", "mysql+pymysql:", database)
        database = re.sub("^postgres:", "postgresql+psycopg2:", database)
        database = re.sub("^sqlite://", "sqlite:///", database)  # there an absolute path has four slashes
    else:
        database = "sqlite:///" + database
    with open(os.path.join(state, "placement.conf"), "w") as conf:
        conf.write(
            "[api]\nauth_strategy = %s\n"
            "[placement_database]\nsync_on_startup = %s\nsqlite_synchronous = false\nconnection = %s\n"
            % ("keystone" if keystone else "noauth2", sync, database.replace("$", "$$"))
        )
        if keystone:
            conf.write(
                "[keystone_authtoken]\nauth_type = password\nauth_url = %s\nwww_authenticate_uri = %s\n"
                "username = %s\npassword = %s\nuser_domain_name = Default\n"
                "project_name = service\nproject_domain_name = Default\ntoken_cache_time = -1\n"
                % (keystone[0], keystone[0], keystone[1], keystone[2])
            )
    os.environ["OS_PLACEMENT_CONFIG_DIR"] = state
    return wsgi.init_application()


def forked(work):
    """Have a process do something."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: B902  (a child never goes on)
        traceback.print_exc()
    finally:
        os._exit(code)


def empty(file):
    """Make an SQLite file without anything written to it: of all of them, the first takes a second."""
    template = os.path.join(home, "template")
    with open(template + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(template):
            state = os.path.join(home, "making")
            os.makedirs(state, exist_ok=True)
            made = os.path.join(state, "placement.sqlite")
            _, status = os.waitpid(forked(lambda: application(state, made)), 0)
            if status:
                raise RuntimeError("no empty database could be made; see " + os.path.join(home, "log"))
            os.rename(made, template)
    shutil.copyfile(template, file)


def reset():
    """Delete all that clients wrote."""
    with db_api.get_placement_engine().begin() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        for table in models.BASE.metadata.sorted_tables:
            rows = table.delete()
            if table.name in ("traits", "resource_classes"):
                rows = rows.where(table.c.name.startswith("CUSTOM_", autoescape=True))
            connection.execute(rows)


def resettable(app):
    """Placement, and the reset beside it."""

    def call(environ, start_response):
        if environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"] == "/-/reset":
            reset()
            start_response("204 No Content", [])
            return []
        return app(environ, start_response)

    return call


class Handler(simple_server.WSGIRequestHandler):
    """One line per request in the log."""

    def get_environ(self):
        environ = super().get_environ()
        if "content-type" not in self.headers:  # wsgiref would say text/plain
            environ.pop("CONTENT_TYPE", None)
        return environ

    def log_request(self, code="-", size="-"):
        sys.stderr.write("%s %s %s\n" % (self.command, self.path, code))


def ask(state, database, requests):
    """Make requests."""
    app = application(state, database)
    answers = []
    for method, path, *rest in requests:
        body, version = (rest + [None, None])[:2]
        request = webob.Request.blank(path, method=method, headers={
            "X-Auth-Token": "admin", "Accept": "application/json", "OpenStack-API-Version": "placement " + (version or "1.39")})
        if body is not None:
            request.content_type = "application/json"
            request.body = json.dumps(body).encode()
        response = request.get_response(app)
        answers.append([response.status_int, json.loads(response.body) if response.body else None])
    return answers


def answer(connection, state):
    """Do what a connection asks for."""
    stream = connection.makefile("rw")
    order = json.loads(stream.readline())

    def say(**what):
        stream.write(json.dumps(what) + "\n")
        stream.flush()

    try:
        if missing or order["do"] == "look":
            say(missing=missing)
        elif order["do"] == "ask":
            say(answers=ask(state, order["database"], order["requests"]))
        elif order["do"] == "serve":
            database = order.get("database")
            if not database:
                database = os.path.join(state, "placement.sqlite")
                empty(database)
            app = application(state, database, order.get("keystone"), sync=bool(order.get("database")))
            server = simple_server.make_server("127.0.0.1", 0, resettable(app), handler_class=Handler)
            say(port=server.server_port)

            def end():
                stream.read()
                server.shutdown()

            threading.Thread(target=end, daemon=True).start()
            server.serve_forever(poll_interval=0.05)
    except BaseException:  # noqa: B902  (it is for the client that asked)
        say(error=traceback.format_exc())
        raise


def child(connection, number):
    """Answer in a directory of this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    state = os.path.join(home, str(number))
    os.mkdir(state)
    try:
        answer(connection, state)
    finally:
        shutil.rmtree(state, ignore_errors=True)


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
gc.freeze()
listener = socket.socket(fileno=3)
number = 0
while True:
    ready, _, _ = select.select([listener, sys.stdin], [], [])
    if sys.stdin in ready:
        break
    accepted, _ = listener.accept()
    number += 1

    def work():
        listener.close()
        child(accepted, number)

    forked(work)
    accepted.close()
try:
    while True:
        os.wait()  # Each ends with its connection, and those with the processes that asked.
except ChildProcessError:
    shutil.rmtree(home, ignore_errors=True)
