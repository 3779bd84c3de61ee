# SPDX-License-Identifier: Apache-2.0
"""Serve the installed OpenStack Keystone on a free port of 127.0.0.1, with an SQLite file and Fernet tokens.

    serve.py STATE_DIR PASSWORD

The user "admin" of the project "admin", both in the domain "Default", has the password. Prints a line "PORT n" (its
libraries print others) when it is ready, and ends when its standard input does.
"""

import grp
import os
import pwd
import sqlite3
import sys
import threading
import traceback
from wsgiref import simple_server

state, password = sys.argv[1:]
config = os.path.join(state, "keystone.conf")
with open(config, "w") as conf:
    conf.write(
        "[DEFAULT]\nuse_stderr = true\nlog_file =\n"
        "[database]\nconnection = sqlite:///{0}/keystone.sqlite\nsqlite_synchronous = false\n"
        "[token]\nprovider = fernet\n"
        "[fernet_tokens]\nkey_repository = {0}/fernet\n"
        "[fernet_receipts]\nkey_repository = {0}/receipts\n"
        "[credential]\nkey_repository = {0}/credential\n"
        "[identity]\npassword_hash_algorithm = pbkdf2_sha512\npassword_hash_rounds = 1000\n".format(state)
    )
for directory in ("fernet", "receipts", "credential"):
    os.mkdir(os.path.join(state, directory), 0o700)


os.environ["OS_KEYSTONE_CONFIG_FILES"] = config
sys.argv = sys.argv[:1]

from keystone.cmd import cli  # noqa: E402
from keystone.server import wsgi  # noqa: E402


def manage(*command):
    """Do what keystone-manage does, in a process of its own that need not load Keystone again."""
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        try:
            cli.main(["keystone-manage", "--config-file", config, *command])
        except BaseException:  # noqa: B902  (a child never goes on)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("keystone-manage %s failed" % command[0])


user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
manage("db_sync")
with sqlite3.connect(os.path.join(state, "keystone.sqlite")) as database:
    database.execute("PRAGMA journal_mode = WAL")  # a read that it leaves open does not lock out its writes
manage("fernet_setup", "--keystone-user", user, "--keystone-group", group)
manage("bootstrap", "--bootstrap-password", password, "--bootstrap-project-name", "admin")


class Handler(simple_server.WSGIRequestHandler):
    """One line per request on standard error, for the counts of the tests."""

    def log_request(self, code="-", size="-"):
        sys.stderr.write("%s %s %s\n" % (self.command, self.path, code))
        sys.stderr.flush()


server = simple_server.make_server("127.0.0.1", 0, wsgi.initialize_public_application(), handler_class=Handler)
print("PORT", server.server_port, flush=True)


def end_with_parent():
    sys.stdin.read()
    server.shutdown()


threading.Thread(target=end_with_parent, daemon=True).start()
server.serve_forever(poll_interval=0.05)
