# SPDX-License-Identifier: Apache-2.0
"""Record what Nova answers to calls about host aggregates, availability zones, server groups, what is
done to servers and what they are called and marked with, their actions, and hypervisors.

    python3 record_nova.py DIRECTORY

It runs the WSGI application of Debian's python3-nova in this process, with SQLite databases in a
directory that it makes, no Placement, and three hosts in one cell, and writes nova_aggregates.json,
nova_server_groups.json, nova_servers.json and nova_hypervisors.json to DIRECTORY. UUIDs that Nova made
are uuid-1, uuid-2 and so on in the order in which they appear, in requests as well; times are TIME.
No host answers: where "host" stands beside a call, a server's host did that just before it, which is
written to the database as nova-compute does it.
"""
import io
import json
import os
import re
import sys
import tempfile
import urllib.parse
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

from nova.compute import rpcapi as compute_rpcapi  # noqa: E402
from nova.db import migration  # noqa: E402
from nova.network import model as nova_network  # noqa: E402
from nova.scheduler.client import report  # noqa: E402
from nova import rpc  # noqa: E402
from oslo_utils import timeutils  # noqa: E402
from oslo_utils import uuidutils  # noqa: E402

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
            cctxt, service_id=service.id, host=name, hypervisor_hostname=name, uuid=uuidutils.generate_uuid(),
            vcpus=4, memory_mb=4096, local_gb=100, vcpus_used=1, memory_mb_used=512, local_gb_used=40, hypervisor_type="QEMU",
            hypervisor_version=1, cpu_info="", mapped=1, free_ram_mb=3584, free_disk_gb=60, current_workload=0,
            running_vms={"h1": 2, "h2": 2}.get(name, 0), disk_available_least=60).create()
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
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6}|Z)")
FIXED = "aaaaaaaa-0000-4000-8000-000000000000"  # one that nothing has


class Recorder:
    def __init__(self):
        self.calls, self.aliases = [], {}

    def alias(self, text):
        def one(match):
            uuid = match.group(0)
            if uuid.startswith("aaaaaaaa"):
                return uuid
            return self.aliases.setdefault(uuid, f"uuid-{len(self.aliases) + 1}")

        return TIME.sub("TIME", UUID.sub(one, text))

    def real(self, text):
        for uuid, alias in self.aliases.items():
            text = re.sub(re.escape(alias) + r"(?!\d)", uuid, text)
        return text

    def ask(self, name, request, body=None, version="2.69", who="admin", host=None):
        if host is not None:
            HOST[host["does"]](host["server"])
        user, project, roles = CALLERS[who]
        method, path = self.real(request).split(" ")
        path, _, query = path.partition("?")
        path = urllib.parse.unquote(path)
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
        if host is not None:
            call["host"] = host
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



BUILD = "compute__do_build_and_run_instance"


def in_cell(uuid):
    mapping = objects.InstanceMapping.get_by_instance_uuid(ADMIN, uuid)
    return nova_context.target_cell(ADMIN, mapping.cell_mapping)


def change(uuid, event, failed=None, **fields):
    """What a host does with a server: the event of the action that is under way, and the state."""
    with in_cell(uuid) as cctxt:
        instance = objects.Instance.get_by_uuid(cctxt, uuid)
        action = objects.InstanceActionList.get_by_instance_uuid(cctxt, uuid)[0]
        asker = nova_context.RequestContext(action.user_id, action.project_id, request_id=action.request_id)
        asker.db_connection, asker.mq_connection = cctxt.db_connection, cctxt.mq_connection
        if event != BUILD:  # which began when the server was made
            objects.InstanceActionEvent.event_start(asker, uuid, event, want_result=False, host=instance.host)
        for name, value in fields.items():
            setattr(instance, name, value)
        if event == "compute_terminate_instance":
            instance.destroy()
        else:
            instance.save()
        objects.InstanceActionEvent.event_finish_with_failure(asker, uuid, event, exc_val=failed, exc_tb=failed, want_result=False)


def spawned(uuid):
    change(uuid, BUILD, vm_state="active", task_state=None, launched_at=timeutils.utcnow())


def failed(uuid):
    change(uuid, BUILD, failed="no disk", vm_state="error", task_state=None)
    with in_cell(uuid) as cctxt:
        objects.InstanceFault(cctxt, instance_uuid=uuid, code=500, message="no disk", details="", host="h2").create()


def started(uuid):
    change(uuid, "compute_start_instance", vm_state="active", task_state=None)


def stopped(uuid):
    change(uuid, "compute_stop_instance", vm_state="stopped", task_state=None)


def rebooted(uuid):
    change(uuid, "compute_reboot_instance", vm_state="active", task_state=None)


def deleted(uuid):
    with in_cell(uuid) as cctxt:
        instance = objects.Instance.get_by_uuid(cctxt, uuid)
        asker = nova_context.RequestContext("u-p1", "p1", request_id="req-aaaaaaaa-0000-4000-8000-ffffffffffff")
        asker.db_connection, asker.mq_connection = cctxt.db_connection, cctxt.mq_connection
        objects.InstanceAction.action_start(asker, uuid, "delete", want_result=False)
        instance.task_state = "deleting"
        instance.save()
    change(uuid, "compute_terminate_instance", vm_state="deleted", task_state=None)


HOST = {f.__name__: f for f in (spawned, failed, started, stopped, rebooted, deleted)}


def server_uuid(n):
    return f"aaaaaaaa-0000-4000-8000-{n:012x}"


def server(n, where):
    """A server that was placed on a host and is built there; without one, in cell0, where nothing is."""
    cell = CELL1 if where else objects.CellMapping.get_by_uuid(ADMIN, objects.CellMapping.CELL0_UUID)
    asker = nova_context.RequestContext("u-p1", "p1", request_id=f"req-aaaaaaaa-0000-4000-8000-f{n:011x}")
    uuid = server_uuid(n)
    with nova_context.target_cell(asker, cell) as cctxt:
        flavor = objects.Flavor(
            cctxt, id=1, flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1, ephemeral_gb=0, swap=0, rxtx_factor=1.0,
            vcpu_weight=0, disabled=False, is_public=True, extra_specs={})
        instance = objects.Instance(
            cctxt, uuid=uuid, project_id="p1", user_id="u-p1", display_name=f"s{n}", host=where, node=where, vm_state="building" if where else "error",
            task_state="spawning" if where else None, power_state=0, image_ref="70a599e0-31e7-49b7-b260-868f441e862b", flavor=flavor, old_flavor=None,
            new_flavor=None, vcpus=1, memory_mb=512, root_gb=1, ephemeral_gb=0, instance_type_id=1, metadata={}, system_metadata={}, auto_disk_config=False,
            info_cache=objects.InstanceInfoCache(network_info=nova_network.NetworkInfo()), launch_index=0, reservation_id="r-1", hostname=f"s{n}", progress=0)
        instance.create()
        objects.InstanceMapping(cctxt, instance_uuid=uuid, project_id="p1", user_id="u-p1", cell_mapping=cell, queued_for_delete=False).create()
        if where:
            objects.InstanceAction.action_start(cctxt, uuid, "create", want_result=False)
            objects.InstanceActionEvent.event_start(cctxt, uuid, BUILD, want_result=False, host=where)


def servers(r):
    one, building, broken, nowhere, busy = (f"/v2.1/servers/{server_uuid(n)}" for n in (1, 2, 3, 4, 5))
    missing = f"/v2.1/servers/{FIXED}"
    on, off, soft, hard = '{"os-start":null}', '{"os-stop":null}', '{"reboot":{"type":"SOFT"}}', '{"reboot":{"type":"HARD"}}'

    def member(name, request, body=None, **more):
        r.ask(name, request, body, **{"who": "member", **more})

    def host(n, does):
        return {"host": {"server": server_uuid(n), "does": does}}

    def act(name, at, body, **more):
        member(name, f"POST {at}/action", body, **more)

    # Power.
    for name, body in (("start", on), ("stop", off), ("reboot", soft), ("reboot-hard", hard)):
        act(name + "-while-building", building, body)
        act(name + "-in-cell0", nowhere, body)
        act(name + "-missing", missing, body)
        act(name + "-other", one, body, who="member2")
        act(name + "-reader", one, body, who="reader")
    act("start-while-active", one, on, **host(1, "spawned"))
    act("stop", one, off)
    act("stop-twice", one, off)
    act("start-while-stopping", one, on)
    act("reboot-while-stopping", one, soft)
    act("reboot-while-stopped", one, soft, **host(1, "stopped"))
    act("stop-while-stopped", one, off)
    act("start", one, on)
    act("start-twice", one, on)
    act("reboot-hard-while-starting", one, hard)
    act("reboot", one, soft, version="2.1", **host(1, "started"))
    act("reboot-twice", one, soft)
    act("stop-while-rebooting", one, off)
    act("reboot-busy", busy, soft, **host(5, "spawned"))
    act("reboot-hard-while-rebooting", busy, hard)
    act("reboot-while-rebooting-hard", busy, soft)
    act("reboot-hard-while-rebooting-hard", busy, hard)
    act("stop-while-rebooting-hard", busy, off)
    act("stop-after", one, '{"os-stop":{}}', **host(1, "rebooted"))
    act("reboot-hard-while-stopped", one, '{"reboot":{"type":"hard"}}', **host(1, "stopped"))
    for name, body in (("start", on), ("stop", off), ("reboot", soft), ("reboot-hard", hard)):
        act(name + "-after-a-failure", broken, body, **(host(3, "failed") if name == "start" else {}))
    for name, body in (
            ("type", '{"reboot":{"type":"WARM"}}'), ("no-type", '{"reboot":{}}'), ("null", '{"reboot":null}'), ("more", '{"reboot":{"type":"SOFT","now":true}}'),
            ("number", '{"reboot":{"type":1}}'), ("two", '{"os-start":null,"os-stop":null}'), ("unknown", '{"paint":null}'), ("nothing", '{}'), ("list", '[]')):
        act("odd-action-" + name, one, body)

    # Names.
    act_done = host(1, "rebooted")
    member("rename", f"PUT {one}", '{"server":{"name":"other"}}', **act_done)
    for version in ("2.1", "2.2", "2.8", "2.9", "2.18", "2.19", "2.26", "2.46", "2.47", "2.62", "2.63", "2.70", "2.71"):
        member("rename-" + version, f"PUT {one}", '{"server":{"name":"at %s"}}' % version, version=version)
    member("rename-admin", f"PUT {one}", '{"server":{"name":"of admin"}}', who="admin")
    member("rename-spaces", f"PUT {one}", '{"server":{"name":" other "}}')
    member("rename-spaces-old", f"PUT {one}", '{"server":{"name":"other "}}', version="2.1")
    member("update-all", f"PUT {one}", '{"server":{"name":"n","description":"d","accessIPv4":"10.0.0.1","accessIPv6":"2001:DB8::01","OS-DCF:diskConfig":"AUTO"}}')
    member("update-addresses-none", f"PUT {one}", '{"server":{"accessIPv4":null,"accessIPv6":null,"description":null}}')
    member("update-addresses-empty", f"PUT {one}", '{"server":{"accessIPv4":""}}')
    for name, body in (
            ("empty-name", '{"server":{"name":""}}'), ("blank-name", '{"server":{"name":"  "}}'), ("long-name", '{"server":{"name":"%s"}}' % (256 * "x")),
            ("number", '{"server":{"name":7}}'), ("null", '{"server":{"name":null}}'), ("nothing", '{"server":{}}'), ("none", '{}'),
            ("address", '{"server":{"accessIPv4":"10.0.0"}}'), ("address6", '{"server":{"accessIPv6":"10.0.0.1"}}'), ("disk", '{"server":{"OS-DCF:diskConfig":"auto"}}'),
            ("long-description", '{"server":{"description":"%s"}}' % (256 * "x")), ("more", '{"server":{"name":"x","metadata":{}}}'), ("control", '{"server":{"name":"a\\u0001b"}}')):
        member("update-" + name, f"PUT {one}", body)
    member("update-description-old", f"PUT {one}", '{"server":{"description":"d"}}', version="2.18")
    member("update-building", f"PUT {building}", '{"server":{"name":"b"}}')
    member("update-broken", f"PUT {broken}", '{"server":{"name":"b"}}')
    member("update-in-cell0", f"PUT {nowhere}", '{"server":{"name":"b"}}')
    member("update-missing", f"PUT {missing}", '{"server":{"name":"b"}}')
    member("update-other", f"PUT {one}", '{"server":{"name":"b"}}', who="member2")
    member("update-reader", f"PUT {one}", '{"server":{"name":"b"}}', who="reader")

    # Metadata.
    at = f"{one}/metadata"
    member("metadata-none", f"GET {at}")
    member("metadata-add", f"POST {at}", '{"metadata":{"a":"1","b":"2"}}')
    member("metadata-add-more", f"POST {at}", '{"metadata":{"b":"3","c d":""}}')
    member("metadata-add-nothing", f"POST {at}", '{"metadata":{}}')
    member("metadata", f"GET {at}", who="reader")
    member("metadata-one", f"GET {at}/a")
    member("metadata-one-missing", f"GET {at}/z")
    member("metadata-set", f"PUT {at}/a", '{"meta":{"a":"9"}}')
    member("metadata-set-other", f"PUT {at}/a", '{"meta":{"b":"9"}}')
    member("metadata-set-two", f"PUT {at}/a", '{"meta":{"a":"9","b":"9"}}')
    member("metadata-set-none", f"PUT {at}/a", '{"meta":{}}')
    member("metadata-set-null", f"PUT {at}/a", '{"meta":null}')
    member("metadata-set-metadata", f"PUT {at}/a", '{"metadata":{"a":"9"}}')
    for name, body in (
            ("number", '{"metadata":{"a":1}}'), ("null", '{"metadata":{"a":null}}'), ("long", '{"metadata":{"a":"%s"}}' % (256 * "x")),
            ("long-key", '{"metadata":{"%s":"a"}}' % (256 * "x")), ("odd-key", '{"metadata":{"a/b":"1"}}'), ("empty-key", '{"metadata":{"":"1"}}'),
            ("list", '{"metadata":[]}'), ("nothing", '{}'), ("more", '{"metadata":{},"meta":{}}')):
        member("metadata-odd-" + name, f"POST {at}", body)
        member("metadata-odd-replace-" + name, f"PUT {at}", body)
    member("metadata-too-many", f"POST {at}", json.dumps({"metadata": {f"k{n}": "" for n in range(129)}}))
    member("metadata-replace", f"PUT {at}", '{"metadata":{"x":"y"}}')
    member("metadata-delete", f"DELETE {at}/x")
    member("metadata-delete-again", f"DELETE {at}/x")
    member("metadata-replace-nothing", f"PUT {at}", '{"metadata":{}}')
    for who in ("reader", "member2"):
        member("metadata-add-" + who, f"POST {at}", '{"metadata":{"a":"1"}}', who=who)
        member("metadata-replace-" + who, f"PUT {at}", '{"metadata":{"a":"1"}}', who=who)
        member("metadata-set-" + who, f"PUT {at}/a", '{"meta":{"a":"1"}}', who=who)
        member("metadata-delete-" + who, f"DELETE {at}/a", who=who)
    for name, path in (("building", building), ("broken", broken), ("missing", missing)):
        member("metadata-" + name, f"GET {path}/metadata")
        member("metadata-add-" + name, f"POST {path}/metadata", '{"metadata":{"a":"1"}}')
        member("metadata-replace-" + name, f"PUT {path}/metadata", '{"metadata":{"a":"1"}}')
        member("metadata-set-" + name, f"PUT {path}/metadata/a", '{"meta":{"a":"1"}}')
        member("metadata-delete-" + name, f"DELETE {path}/metadata/a")

    # Tags.
    at = f"{one}/tags"
    member("tags-old", f"GET {at}", version="2.25")
    member("tags-put-old", f"PUT {at}/a", version="2.25")
    member("tags-none", f"GET {at}", version="2.26")
    member("tag-add", f"PUT {at}/a", version="2.26")
    member("tag-add-again", f"PUT {at}/a")
    member("tag-add-more", f"PUT {at}/b%20c")
    member("tag-body", f"PUT {at}/c", "{}")
    member("tag-comma", f"PUT {at}/a,b")
    member("tag-long", f"PUT {at}/" + 61 * "x")
    member("tags", f"GET {at}", who="reader")
    member("tag", f"GET {at}/a")
    member("tag-missing", f"GET {at}/z")
    member("tag-delete", f"DELETE {at}/a")
    member("tag-delete-again", f"DELETE {at}/a")
    member("tags-replace", f"PUT {at}", '{"tags":["x"]}')
    member("tags-replace-twice", f"PUT {at}", '{"tags":["y","y"]}')
    for name, body in (
            ("slash", '{"tags":["a/b"]}'), ("empty", '{"tags":[""]}'), ("number", '{"tags":[1]}'), ("long", '{"tags":["%s"]}' % (61 * "x")),
            ("many", json.dumps({"tags": [f"t{n}" for n in range(51)]})), ("text", '{"tags":"a"}'), ("nothing", '{}'), ("more", '{"tags":[],"x":1}'), ("null", '{"tags":null}')):
        member("tags-odd-" + name, f"PUT {at}", body)
    member("tags-delete", f"DELETE {at}")
    member("tags-delete-again", f"DELETE {at}")
    for who in ("reader", "member2"):
        member("tags-replace-" + who, f"PUT {at}", '{"tags":[]}', who=who)
        member("tags-delete-" + who, f"DELETE {at}", who=who)
        member("tag-add-" + who, f"PUT {at}/a", who=who)
        member("tag-delete-" + who, f"DELETE {at}/a", who=who)
    for name, path in (("building", building), ("broken", broken), ("missing", missing)):
        member("tags-" + name, f"GET {path}/tags")
        member("tags-replace-" + name, f"PUT {path}/tags", '{"tags":["a"]}')
        member("tags-delete-" + name, f"DELETE {path}/tags")
        member("tag-add-" + name, f"PUT {path}/tags/a")
        member("tag-delete-" + name, f"DELETE {path}/tags/a")

    # Actions.
    at = f"{one}/os-instance-actions"
    for version in ("2.1", "2.57", "2.58", "2.66"):
        member("actions-" + version, f"GET {at}", version=version, who="reader")
    member("actions-page", f"GET {at}?limit=2")
    member("actions-none-left", f"GET {at}?marker=req-aaaaaaaa-0000-4000-8000-f00000000001")
    member("actions-page-old", f"GET {at}?limit=2", version="2.57")
    member("actions-since", f"GET {at}?changes-since=2100-01-01T00:00:00Z")
    member("actions-before", f"GET {at}?changes-before=2000-01-01T00:00:00Z", version="2.66")
    member("actions-before-old", f"GET {at}?changes-before=2000-01-01T00:00:00Z", version="2.65")
    member("actions-before-since", f"GET {at}?changes-before=2000-01-01T00:00:00Z&changes-since=2001-01-01T00:00:00Z", version="2.66")
    member("actions-since-odd", f"GET {at}?changes-since=soon")
    member("actions-limit-odd", f"GET {at}?limit=x")
    member("actions-limit-twice", f"GET {at}?limit=1&limit=2")
    member("actions-marker-odd", f"GET {at}?marker=req-nothing")
    member("actions-unknown", f"GET {at}?foo=1")
    member("actions-unknown-old", f"GET {at}?foo=1", version="2.57")
    member("actions-building", f"GET {building}/os-instance-actions")
    member("actions-broken", f"GET {broken}/os-instance-actions")
    member("actions-missing", f"GET {missing}/os-instance-actions")
    member("actions-other", f"GET {at}", who="member2")
    for version in ("2.1", "2.50", "2.51", "2.58", "2.62"):
        for who in ("member", "admin"):
            member(f"action-{version}-{who}", f"GET {at}/req-aaaaaaaa-0000-4000-8000-f00000000001", version=version, who=who)
    member("action-building", f"GET {building}/os-instance-actions/req-aaaaaaaa-0000-4000-8000-f00000000002")
    member("action-failed", f"GET {broken}/os-instance-actions/req-aaaaaaaa-0000-4000-8000-f00000000003")
    member("action-missing", f"GET {at}/req-nothing")
    member("action-other", f"GET {at}/req-aaaaaaaa-0000-4000-8000-f00000000001", who="member2")
    member("actions-deleted-old", f"GET {at}", version="2.20", **host(1, "deleted"))
    member("actions-deleted", f"GET {at}", version="2.21")
    member("action-deleted", f"GET {at}/req-aaaaaaaa-0000-4000-8000-ffffffffffff")
    for name, request, body in (
            ("start", f"POST {one}/action", on), ("rename", f"PUT {one}", '{"server":{"name":"b"}}'), ("metadata", f"GET {one}/metadata", None),
            ("tags", f"GET {one}/tags", None)):
        member(f"{name}-deleted", request, body)


def hypervisors(r):
    at = "/v2.1/os-hypervisors"
    for version in ("2.1", "2.27", "2.28", "2.33", "2.52", "2.53", "2.69"):
        r.ask("list-" + version, f"GET {at}", version=version)
        r.ask("detail-" + version, f"GET {at}/detail", version=version)
        r.ask("statistics-" + version, f"GET {at}/statistics", version=version)
    for version in ("2.1", "2.28", "2.52"):
        r.ask("show-" + version, f"GET {at}/1", version=version)
    r.ask("show", f"GET {at}/uuid-1")
    r.ask("show-disabled", f"GET {at}/uuid-3")
    r.ask("show-with-servers", f"GET {at}/uuid-1?with_servers=yes")
    r.ask("show-with-servers-odd", f"GET {at}/uuid-1?with_servers=2")
    r.ask("show-unknown-parameter", f"GET {at}/uuid-1?foo=1")
    r.ask("show-pattern", f"GET {at}/uuid-1?hypervisor_hostname_pattern=h")
    r.ask("show-missing", f"GET {at}/{FIXED}")
    r.ask("show-no-uuid", f"GET {at}/1")
    r.ask("show-no-number", f"GET {at}/h1", version="2.52")
    r.ask("show-missing-number", f"GET {at}/99", version="2.52")
    r.ask("uptime", f"GET {at}/uuid-1/uptime")
    r.ask("uptime-missing", f"GET {at}/{FIXED}/uptime")
    r.ask("uptime-no-uuid", f"GET {at}/h1/uptime")
    r.ask("search", f"GET {at}/H/search", version="2.52")
    r.ask("search-one", f"GET {at}/h2/search", version="2.1")
    r.ask("search-none", f"GET {at}/q/search", version="2.52")
    r.ask("search-new", f"GET {at}/h/search", version="2.53")
    r.ask("servers", f"GET {at}/h/servers", version="2.52")
    r.ask("servers-none", f"GET {at}/q/servers", version="2.52")
    r.ask("servers-new", f"GET {at}/h/servers", version="2.53")
    for path in ("", "/detail"):
        name = path or "/list"
        r.ask("page" + name, f"GET {at}{path}?limit=1")
        r.ask("page-marker" + name, f"GET {at}{path}?limit=1&marker=uuid-1")
        r.ask("page-end" + name, f"GET {at}{path}?limit=2&marker=uuid-3")
        r.ask("page-number" + name, f"GET {at}{path}?limit=1&marker=1", version="2.33")
        r.ask("page-old" + name, f"GET {at}{path}?limit=1", version="2.32")
        r.ask("page-zero" + name, f"GET {at}{path}?limit=0")
        r.ask("page-odd" + name, f"GET {at}{path}?limit=x")
        r.ask("page-odd-old" + name, f"GET {at}{path}?limit=x", version="2.33")
        r.ask("page-twice" + name, f"GET {at}{path}?limit=1&limit=2")
        r.ask("page-no-marker" + name, f"GET {at}{path}?marker={FIXED}")
        r.ask("page-no-marker-old" + name, f"GET {at}{path}?marker=99", version="2.33")
        r.ask("pattern" + name, f"GET {at}{path}?hypervisor_hostname_pattern=H1")
        r.ask("pattern-none" + name, f"GET {at}{path}?hypervisor_hostname_pattern=q")
        r.ask("pattern-odd" + name, f"GET {at}{path}?hypervisor_hostname_pattern=a%20b")
        r.ask("pattern-empty" + name, f"GET {at}{path}?hypervisor_hostname_pattern=")
        r.ask("pattern-limit" + name, f"GET {at}{path}?hypervisor_hostname_pattern=h&limit=1")
        r.ask("pattern-marker" + name, f"GET {at}{path}?hypervisor_hostname_pattern=h&marker=uuid-1")
        r.ask("pattern-old" + name, f"GET {at}{path}?hypervisor_hostname_pattern=q", version="2.52")
        r.ask("with-servers" + name, f"GET {at}{path}?with_servers=true")
        r.ask("with-servers-pattern" + name, f"GET {at}{path}?with_servers=1&hypervisor_hostname_pattern=h1")
        r.ask("without-servers" + name, f"GET {at}{path}?with_servers=false")
        r.ask("with-servers-odd" + name, f"GET {at}{path}?with_servers=2")
        r.ask("with-servers-old" + name, f"GET {at}{path}?with_servers=true", version="2.52")
        r.ask("unknown" + name, f"GET {at}{path}?foo=1")
        r.ask("unknown-old" + name, f"GET {at}{path}?foo=1", version="2.52")
    for name, path, version in (
            ("list", "", "2.69"), ("detail", "/detail", "2.69"), ("show", "/uuid-1", "2.69"), ("statistics", "/statistics", "2.69"), ("uptime", "/uuid-1/uptime", "2.69"),
            ("search", "/h/search", "2.52"), ("servers", "/h/servers", "2.52")):
        for who in ("member", "reader"):
            r.ask(f"{name}-{who}", f"GET {at}{path}", version=version, who=who)


def boot():
    rpc.init(nova.conf.CONF)
    with nova_context.target_cell(ADMIN, CELL1) as cctxt:
        away = objects.Service.get_by_compute_host(cctxt, "h3")
        away.forced_down, away.disabled_reason = True, "broken"
        away.save()
    for n, where in ((1, "h1"), (2, "h1"), (3, "h2"), (4, None), (5, "h2")):
        server(n, where)


def uptime_unknown(*_, **_more):
    raise NotImplementedError


compute_rpcapi.ComputeAPI.get_host_uptime = uptime_unknown
for record, file, prepare in (
        (aggregates, "nova_aggregates.json", None), (server_groups, "nova_server_groups.json", None), (hypervisors, "nova_hypervisors.json", boot),
        (servers, "nova_servers.json", None)):
    if prepare:
        prepare()
    recorder = Recorder()
    record(recorder)
    recorder.write(os.path.join(sys.argv[1], file))
