# SPDX-License-Identifier: Apache-2.0
"""Record what Nova answers to calls about host aggregates, availability zones and server groups.

    python3 record_nova.py DIRECTORY

It runs the WSGI application of Debian's python3-nova in this process, with SQLite databases in a
directory that it makes, no Placement, and three hosts in one cell, and writes nova_aggregates.json
and nova_server_groups.json to DIRECTORY. UUIDs that Nova made are uuid-1, uuid-2 and so on in the
order in which they appear, in requests as well; times are TIME.
"""
import io
import json
import os
import re
import sys
import tempfile
from unittest import mock

import eventlet

eventlet.monkey_patch(os=False)

SCRATCH = tempfile.mkdtemp()
with open(os.path.join(SCRATCH, "nova.conf"), "w", encoding="utf-8") as conf:
    conf.write(f"""
[DEFAULT]
transport_url = fake:/
state_path = {SCRATCH}
[api_database]
connection = sqlite:///{SCRATCH}/api.db
[database]
connection = sqlite:///{SCRATCH}/cell1.db
[oslo_policy]
enforce_new_defaults = true
enforce_scope = true
[oslo_concurrency]
lock_path = {SCRATCH}
[service_user]
[placement]
""")

from nova import config  # noqa: E402
from nova import context as nova_context  # noqa: E402
from nova import objects  # noqa: E402
from nova import policy  # noqa: E402
import nova.conf  # noqa: E402

config.parse_args(["nova-api", "--config-file", os.path.join(SCRATCH, "nova.conf")])
objects.register_all()

from nova.db import migration  # noqa: E402
from nova.scheduler.client import report  # noqa: E402
from oslo_utils import timeutils  # noqa: E402

report.report_client_singleton = lambda *a, **k: mock.Mock()

migration.db_sync(database="api")
migration.db_sync(database="main")
ADMIN = nova_context.get_admin_context()
for cell_uuid, name in ((objects.CellMapping.CELL0_UUID, "cell0"), ("00000001-0000-0000-0000-000000000000", "cell1")):
    objects.CellMapping(
        ADMIN, uuid=cell_uuid, name=name, transport_url="fake:/" if name != "cell0" else "none:///",
        database_connection=f"sqlite:///{SCRATCH}/cell1.db" if name != "cell0" else f"sqlite:///{SCRATCH}/cell0.db").create()
with nova_context.target_cell(ADMIN, objects.CellMapping.get_by_uuid(ADMIN, objects.CellMapping.CELL0_UUID)) as cell0:
    migration.db_sync(database="main", context=cell0)
CELL1 = objects.CellMapping.get_by_uuid(ADMIN, "00000001-0000-0000-0000-000000000000")


def host(name, disabled):
    with nova_context.target_cell(ADMIN, CELL1) as cctxt:
        service = objects.Service(
            cctxt, host=name, binary="nova-compute", topic="compute", report_count=1, disabled=disabled,
            last_seen_up=timeutils.utcnow())
        service.create()
        objects.ComputeNode(
            cctxt, service_id=service.id, host=name, hypervisor_hostname=name, uuid=None or __import__("uuid").uuid4().hex,
            vcpus=4, memory_mb=4096, local_gb=100, vcpus_used=0, memory_mb_used=0, local_gb_used=0, hypervisor_type="QEMU",
            hypervisor_version=1, cpu_info="", mapped=1).create()
    objects.HostMapping(ADMIN, host=name, cell_mapping=CELL1).create()


for at, disabled in (("h1", False), ("h2", False), ("h3", True)):
    host(at, disabled)

policy.init()
from nova.api import openstack as openstack_api  # noqa: E402
from nova.api.openstack import compute  # noqa: E402

APPLICATION = openstack_api.FaultWrapper(compute.APIRouterV21())
CALLERS = {
    "admin": ("u-p1", "p1", ["admin", "member", "reader"]),
    "member": ("u-p1", "p1", ["member", "reader"]),
    "member2": ("u-p2", "p2", ["member", "reader"]),
    "reader": ("u-p1", "p1", ["reader"]),
}
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}")
FIXED = "aaaaaaaa-0000-4000-8000-000000000000"  # one that nothing has


class Recorder:
    def __init__(self):
        self.calls, self.aliases = [], {}

    def alias(self, text):
        def one(match):
            uuid = match.group(0)
            if uuid == FIXED:
                return uuid
            return self.aliases.setdefault(uuid, f"uuid-{len(self.aliases) + 1}")

        return TIME.sub("TIME", UUID.sub(one, text))

    def real(self, text):
        for uuid, alias in self.aliases.items():
            text = re.sub(re.escape(alias) + r"(?!\d)", uuid, text)
        return text

    def ask(self, name, request, body=None, version="2.69", who="admin"):
        user, project, roles = CALLERS[who]
        method, path = self.real(request).split(" ")
        path, _, query = path.partition("?")
        text = self.real(body).encode() if body is not None else b""
        environ = {
            "REQUEST_METHOD": method, "SCRIPT_NAME": "/v2.1", "PATH_INFO": path.removeprefix("/v2.1"), "QUERY_STRING": query,
            "SERVER_NAME": "compute", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "compute",
            "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(text), "wsgi.errors": sys.stderr,
            "wsgi.multithread": False, "wsgi.multiprocess": False, "wsgi.run_once": False,
            "HTTP_OPENSTACK_API_VERSION": f"compute {version}", "CONTENT_LENGTH": str(len(text)),
            "nova.context": nova_context.RequestContext(user, project, roles=roles, is_admin=None),
        }
        if text:
            environ["CONTENT_TYPE"] = "application/json"
        status = []
        answer = b"".join(APPLICATION(environ, lambda s, h, e=None: status.append(int(s[:3]))))
        call = {"name": name, "version": version, "who": who, "request": request}
        if body is not None:
            call["body"] = body
        call["status"] = status[0]
        if answer:
            call["answer"] = json.loads(self.alias(answer.decode()))
        self.calls.append(call)

    def write(self, path):
        with open(path, "w", encoding="utf-8") as out:
            out.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in self.calls) + "\n]\n")


def aggregates(r):
    at, zones = "/v2.1/os-aggregates", "/v2.1/os-availability-zone"

    def act(name, number, action, members, **more):
        r.ask(name, f"POST {at}/{number}/action", json.dumps({action: members}), **more)

    r.ask("none", f"GET {at}")
    r.ask("zones-none", f"GET {zones}", who="member")
    r.ask("zones-detail-none", f"GET {zones}/detail")
    r.ask("zones-detail-member", f"GET {zones}/detail", who="member")
    r.ask("list-member", f"GET {at}", who="member")
    r.ask("create-member", f"POST {at}", '{"aggregate":{"name":"x"}}', who="member")
    r.ask("create", f"POST {at}", '{"aggregate":{"name":"one","availability_zone":"z1"}}')
    r.ask("create-old", f"POST {at}", '{"aggregate":{"name":"two"}}', version="2.40")
    r.ask("create-null-zone", f"POST {at}", '{"aggregate":{"name":"three","availability_zone":null}}', version="2.41")
    r.ask("create-same", f"POST {at}", '{"aggregate":{"name":"one"}}')
    for name, body in (
            ("no-name", '{"aggregate":{}}'), ("empty-name", '{"aggregate":{"name":""}}'), ("spaces", '{"aggregate":{"name":" x "}}'),
            ("long-name", '{"aggregate":{"name":"' + 256 * "x" + '"}}'), ("colon", '{"aggregate":{"name":"x","availability_zone":"a:b"}}'),
            ("empty-zone", '{"aggregate":{"name":"x","availability_zone":""}}'), ("more", '{"aggregate":{"name":"x","hosts":[]}}'),
            ("number", '{"aggregate":{"name":7}}'), ("nothing", '{}')):
        r.ask("create-" + name, f"POST {at}", body)
    r.ask("show", f"GET {at}/1")
    r.ask("show-old", f"GET {at}/1", version="2.1")
    r.ask("show-missing", f"GET {at}/99")
    r.ask("show-no-number", f"GET {at}/one")
    r.ask("show-member", f"GET {at}/1", who="member")
    act("add", 1, "add_host", {"host": "h1"})
    act("add-again", 1, "add_host", {"host": "h1"})
    act("add-unknown", 1, "add_host", {"host": "h9"})
    act("add-odd", 1, "add_host", {"host": "h 1"})
    act("add-none", 1, "add_host", {})
    act("add-to-missing", 99, "add_host", {"host": "h1"})
    act("add-to-no-number", "x", "add_host", {"host": "h1"})
    act("add-member", 1, "add_host", {"host": "h1"}, who="member")
    act("add-to-second", 2, "add_host", {"host": "h1"}, version="2.1")
    act("add-disabled", 3, "add_host", {"host": "h3"})
    r.ask("action-unknown", f"POST {at}/1/action", '{"paint":{}}')
    r.ask("list", f"GET {at}")
    r.ask("list-old", f"GET {at}", version="2.1")
    r.ask("zones", f"GET {zones}", who="member")
    r.ask("zones-detail", f"GET {zones}/detail")
    r.ask("zone-of-other", f"PUT {at}/2", '{"aggregate":{"availability_zone":"z2"}}')
    act("metadata-zone-of-other", 2, "set_metadata", {"metadata": {"availability_zone": "z2"}})
    r.ask("zone-the-same", f"PUT {at}/2", '{"aggregate":{"availability_zone":"z1"}}')
    r.ask("zone-new", f"PUT {at}/3", '{"aggregate":{"availability_zone":"z3"}}')
    r.ask("zones-disabled", f"GET {zones}", who="member")
    r.ask("zones-disabled-detail", f"GET {zones}/detail")
    act("add-other-zone", 3, "add_host", {"host": "h1"})
    r.ask("rename", f"PUT {at}/2", '{"aggregate":{"name":" zwei "}}')
    r.ask("rename-same", f"PUT {at}/2", '{"aggregate":{"name":"one"}}')
    r.ask("update-nothing", f"PUT {at}/2", '{"aggregate":{}}')
    r.ask("update-blank", f"PUT {at}/2", '{"aggregate":{"name":"  "}}')
    r.ask("update-no-zone", f"PUT {at}/2", '{"aggregate":{"availability_zone":null}}')
    r.ask("update-missing", f"PUT {at}/99", '{"aggregate":{"name":"x"}}')
    r.ask("update-member", f"PUT {at}/2", '{"aggregate":{"name":"x"}}', who="member")
    act("metadata", 1, "set_metadata", {"metadata": {"ssd": "true", "trait:HW_CPU_X86_AVX": "required"}})
    act("metadata-remove", 1, "set_metadata", {"metadata": {"ssd": None, "nothing": None}})
    act("metadata-no-zone", 1, "set_metadata", {"metadata": {"availability_zone": None}})
    act("metadata-number", 1, "set_metadata", {"metadata": {"ssd": 1}})
    act("metadata-odd-key", 1, "set_metadata", {"metadata": {"a/b": "1"}})
    act("metadata-none", 1, "set_metadata", {})
    act("metadata-missing", 99, "set_metadata", {"metadata": {}})
    act("remove-not-there", 1, "remove_host", {"host": "h2"})
    act("remove-unknown", 1, "remove_host", {"host": "h9"})
    act("remove-missing", 99, "remove_host", {"host": "h1"})
    r.ask("delete-full", f"DELETE {at}/1")
    act("remove", 1, "remove_host", {"host": "h1"})
    r.ask("delete", f"DELETE {at}/1")
    r.ask("delete-again", f"DELETE {at}/1")
    r.ask("delete-no-number", f"DELETE {at}/x")
    r.ask("delete-member", f"DELETE {at}/2", who="member")
    r.ask("list-after", f"GET {at}")


def server_groups(r):
    at = "/v2.1/os-server-groups"
    r.ask("none", f"GET {at}", who="member")
    r.ask("create", f"POST {at}", '{"server_group":{"name":"apart","policies":["anti-affinity"]}}', version="2.1", who="member")
    r.ask("create-2.13", f"POST {at}", '{"server_group":{"name":"close","policies":["affinity"]}}', version="2.13", who="member")
    r.ask("create-soft-old", f"POST {at}", '{"server_group":{"name":"x","policies":["soft-affinity"]}}', version="2.14", who="member")
    r.ask("create-soft", f"POST {at}", '{"server_group":{"name":"soft","policies":["soft-affinity"]}}', version="2.15", who="member")
    r.ask("create-2.64", f"POST {at}", '{"server_group":{"name":"soft apart","policy":"soft-anti-affinity"}}', version="2.64", who="member")
    r.ask("create-rules", f"POST {at}", '{"server_group":{"name":"some","policy":"anti-affinity","rules":{"max_server_per_host":"3"}}}', who="member")
    r.ask("create-other", f"POST {at}", '{"server_group":{"name":"of p2","policy":"affinity"}}', who="member2")
    r.ask("create-reader", f"POST {at}", '{"server_group":{"name":"x","policy":"affinity"}}', who="reader")
    for name, version, body in (
            ("rules-affinity", "2.64", '{"server_group":{"name":"x","policy":"affinity","rules":{"max_server_per_host":2}}}'),
            ("rules-zero", "2.64", '{"server_group":{"name":"x","policy":"anti-affinity","rules":{"max_server_per_host":0}}}'),
            ("rules-more", "2.64", '{"server_group":{"name":"x","policy":"anti-affinity","rules":{"min":2}}}'),
            ("rules-old", "2.63", '{"server_group":{"name":"x","policies":["anti-affinity"],"rules":{}}}'),
            ("policies-new", "2.64", '{"server_group":{"name":"x","policies":["affinity"]}}'),
            ("policy-old", "2.63", '{"server_group":{"name":"x","policy":"affinity"}}'),
            ("policy-odd", "2.64", '{"server_group":{"name":"x","policy":"far"}}'),
            ("policies-odd", "2.1", '{"server_group":{"name":"x","policies":["far"]}}'),
            ("policies-none", "2.1", '{"server_group":{"name":"x","policies":[]}}'),
            ("policies-two", "2.1", '{"server_group":{"name":"x","policies":["affinity","anti-affinity"]}}'),
            ("policies-twice", "2.1", '{"server_group":{"name":"x","policies":["affinity","affinity"]}}'),
            ("no-policy", "2.64", '{"server_group":{"name":"x"}}'), ("no-name", "2.64", '{"server_group":{"policy":"affinity"}}'),
            ("spaces", "2.64", '{"server_group":{"name":" x","policy":"affinity"}}'), ("nothing", "2.64", '{}')):
        r.ask("create-" + name, f"POST {at}", body, version=version, who="member")
    r.ask("show", f"GET {at}/uuid-1", who="member")
    r.ask("show-old", f"GET {at}/uuid-1", version="2.1", who="member")
    r.ask("show-2.13", f"GET {at}/uuid-5", version="2.13", who="reader")
    r.ask("show-admin", f"GET {at}/uuid-5")
    r.ask("show-other", f"GET {at}/uuid-1", who="member2")
    r.ask("show-missing", f"GET {at}/{FIXED}", who="member")
    r.ask("show-no-uuid", f"GET {at}/apart", who="member")
    r.ask("list", f"GET {at}", who="member")
    r.ask("list-old", f"GET {at}", version="2.1", who="reader")
    r.ask("list-limit", f"GET {at}?limit=2&offset=1", who="member")
    r.ask("list-limit-zero", f"GET {at}?limit=0", who="member")
    r.ask("list-limit-odd", f"GET {at}?limit=x", who="member")
    r.ask("list-beyond", f"GET {at}?offset=50", who="member")
    r.ask("list-all-member", f"GET {at}?all_projects=1", who="member2")
    r.ask("list-all", f"GET {at}?all_projects=1")
    r.ask("list-own-admin", f"GET {at}")
    r.ask("list-unknown-parameter", f"GET {at}?foo=1", who="member2")
    r.ask("delete-other", f"DELETE {at}/uuid-1", who="member2")
    r.ask("delete-reader", f"DELETE {at}/uuid-1", who="reader")
    r.ask("delete-missing", f"DELETE {at}/{FIXED}", who="member")
    r.ask("delete", f"DELETE {at}/uuid-1", who="member")
    r.ask("delete-again", f"DELETE {at}/uuid-1", who="member")
    r.ask("delete-admin", f"DELETE {at}/uuid-6")
    for n in range(6):
        r.ask(f"fill-{n}", f"POST {at}", '{"server_group":{"name":"g%d","policy":"affinity"}}' % n, who="member")
    r.ask("one-too-many", f"POST {at}", '{"server_group":{"name":"g","policy":"affinity"}}', who="member")


for record, file in ((aggregates, "nova_aggregates.json"), (server_groups, "nova_server_groups.json")):
    recorder = Recorder()
    record(recorder)
    recorder.write(os.path.join(sys.argv[1], file))
