#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Run the services of the installed Nova: its API, its scheduler, its conductor, and nova-compute with the fake driver.

    nova_services.py SETTINGS

SETTINGS is an object of JSON: directory, port (of the API), placement, others (stand-ins of Glance and Neutron),
transport (of messages), api, cell0 and cell (databases), computes (names of hosts).

Each line of standard input is a command, with an answer "ANSWER {JSON}" on standard output; what Nova logs is on standard
error. "manage ARGS..." is nova-manage, "start SERVICE [HOST]" starts nova-SERVICE. Everything ends with standard input.
"""

import ctypes
import json
import os
import signal
import sys
import types

settings = json.loads(sys.argv[1])
directory = settings["directory"]

from nova import monkey_patch  # noqa: E402,F401  (first, as Nova's services do it)
import eventlet.patcher  # noqa: E402
import webob.dec  # noqa: E402
from nova import context  # noqa: E402
from nova.api import wsgi  # noqa: E402
from nova.cmd import api, compute, conductor, scheduler  # noqa: E402
import nova.api.openstack.compute  # noqa: E402,F401
import nova.conductor.manager  # noqa: E402,F401

# Not nova.compute.manager, which takes the intervals of its tasks from the configuration when it is imported.
SERVICES = {"api": api, "compute": compute, "conductor": conductor, "scheduler": scheduler}


class Identity(wsgi.Middleware):
    """Every request is the administrator's, with a token: this is instead of Keystone."""

    @webob.dec.wsgify(RequestClass=wsgi.Request)
    def __call__(self, req):
        req.environ["nova.context"] = context.RequestContext(
            "user", "project0", is_admin=True, auth_token="admin", roles=["admin", "member", "reader"]
        )
        return self.application


sys.modules["identity"] = types.SimpleNamespace(factory=Identity.factory)

PASTE = """
[composite:osapi_compute]
use = call:nova.api.openstack.urlmap:urlmap_factory
/v2.1/+: openstack_compute_api_v21

[composite:openstack_compute_api_v21]
use = call:nova.api.auth:pipeline_factory_v21
keystone = compute_req_id faultwrap sizelimit identity osapi_compute_app_v21

[filter:compute_req_id]
paste.filter_factory = nova.api.compute_req_id:ComputeReqIdMiddleware.factory

[filter:faultwrap]
paste.filter_factory = nova.api.openstack:FaultWrapper.factory

[filter:sizelimit]
paste.filter_factory = oslo_middleware:RequestBodySizeLimiter.factory

[filter:identity]
paste.filter_factory = identity:factory

[app:osapi_compute_app_v21]
paste.app_factory = nova.api.openstack.compute:APIRouterV21.factory
"""

# A compute host looks at its resources every three seconds, and reads all of its tree again.
COMMON = """
[DEFAULT]
transport_url = {transport}
compute_driver = fake.MediumFakeDriverWithNestedCustomResources
enabled_apis = osapi_compute
osapi_compute_listen = 127.0.0.1
osapi_compute_listen_port = {port}
osapi_compute_workers = 1
my_ip = 127.0.0.1
state_path = {directory}
use_stderr = true
update_resources_interval = 3
periodic_fuzzy_delay = 0
report_interval = 5
[wsgi]
api_paste_config = {directory}/api-paste.ini
[oslo_concurrency]
lock_path = {directory}/locks
[oslo_messaging_notifications]
driver = noop
[conductor]
workers = 1
[scheduler]
workers = 1
[compute]
resource_provider_association_refresh = 2
[vnc]
enabled = false
[placement]
auth_type = admin_token
endpoint = {placement}
token = admin
endpoint_override = {placement}
[neutron]
auth_type = admin_token
endpoint = {others}
token = admin
endpoint_override = {others}
[glance]
endpoint_override = {others}
"""

CONTROLLER = """
[api_database]
connection = {api}
[database]
connection = {cell}
"""


for key in ("api", "cell0", "cell"):
    settings[key] = settings[key].replace("mysql:", "mysql+pymysql:", 1)


def write(name, text, **more):
    with open(os.path.join(directory, name), "w") as file:
        file.write(text.format(**settings, **more))


write("api-paste.ini", PASTE)
write("nova.conf", COMMON)
write("controller.conf", CONTROLLER)
for host in settings["computes"]:
    write(host + ".conf", "[DEFAULT]\nhost = {host}\n", host=host)


def child(main, *arguments, output=2):
    """Run a program in a process of its own, which need not load Nova again, and return its number."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = list(arguments)
    code = 1
    try:
        code = main()
    except SystemExit as e:
        code = e.code
    except BaseException:  # noqa: B902  (a child never goes on)
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code or 0)


def files(*names):
    return [word for name in names for word in ("--config-file", os.path.join(directory, name))]


def manage(*arguments):
    def main():
        from nova.cmd import manage

        return manage.main()

    path = os.path.join(directory, "manage.out")
    with open(path, "wb") as file:
        pid = child(main, "nova-manage", *files("nova.conf", "controller.conf"), *arguments, output=file.fileno())
    # The patched one would begin a loop of events here, which all later processes would share.
    code = os.waitstatus_to_exitcode(eventlet.patcher.original("os").waitpid(pid, 0)[1])
    with open(path) as file:
        return {"code": code, "output": file.read()[-1500:]}  # no more than a pipe takes at once


def start(service, host=None):
    child(SERVICES[service].main, "nova-" + service, *files("nova.conf", host + ".conf" if host else "controller.conf"))
    return {"code": 0}


for line in sys.stdin:
    command, *arguments = line.split()
    arguments = [settings.get(a[1:], a) if a.startswith("@") else a for a in arguments]
    answer = {"manage": manage, "start": start}[command](*arguments)
    print("ANSWER " + json.dumps(answer), flush=True)
os.killpg(0, signal.SIGKILL)
