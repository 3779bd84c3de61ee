#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Use Placement as Nova does: with the code of the installed Nova, its SchedulerReportClient.

    nova_client.py URL

Each line of standard input is the name of a step; the answer is a line of JSON. One client makes all steps, so that what
it remembers of one Placement has to be true of the next one at the same URL.
"""

import json
import logging
import sys
import uuid

from nova import monkey_patch  # noqa: F401,I001  (first: its trees cannot be copied with the locks of threads)
from keystoneauth1 import adapter, session, token_endpoint
from nova import context as nova_context
from nova import exception, objects
from nova.scheduler import utils
from nova.scheduler.client import report

logging.basicConfig(level=logging.WARNING)
objects.register_all()
context = nova_context.get_admin_context()
context.user_id, context.project_id = "user", "project"
client = report.SchedulerReportClient(
    adapter.Adapter(
        session.Session(auth=token_endpoint.Token(sys.argv[1], "admin")),
        service_type="placement",
        endpoint_override=sys.argv[1],
        raise_exc=False,
    )
)


def ident(name):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def inventory(total, **more):
    whole = {"total": total, "reserved": 0, "min_unit": 1, "max_unit": total, "step_size": 1, "allocation_ratio": 1.0}
    return dict(whole, **more)


HOSTS = ["compute1", "compute2", "compute3"]
ZONE, STORAGE = ident("zone"), ident("storage")


def tree_of(host):
    return client.get_provider_tree_and_ensure_root(context, ident(host), name=host)


def update(host, edit):
    """Have Placement know what edit makes of a tree, as nova-compute's resource tracker does it."""
    for _ in range(4):
        tree = tree_of(host)
        allocations = edit(tree)
        try:
            return client.update_from_provider_tree(context, tree, allocations=allocations)
        except (exception.ResourceProviderUpdateConflict, exception.PlacementReshapeConflict):
            pass  # The client has forgotten the tree.
    raise AssertionError("conflicts without an end: " + host)


def compute(tree, host):
    """What nova-compute reports: a host with two cells, one of which has a device."""
    tree.update_inventory(host, {"MEMORY_MB": inventory(65536, reserved=512), "DISK_GB": inventory(900)})
    tree.update_traits(host, ["COMPUTE_NODE", "COMPUTE_VOLUME_EXTEND", "CUSTOM_RACK_7"])
    for cell in ("_numa0", "_numa1"):
        if not tree.exists(host + cell):
            tree.new_child(host + cell, ident(host), uuid=ident(host + cell))
        tree.update_inventory(host + cell, {"VCPU": inventory(16, allocation_ratio=4.0), "PCPU": inventory(4)})
        tree.update_traits(host + cell, ["HW_NUMA_ROOT", "HW_CPU_X86_AVX2"])
    if not tree.exists(host + "_gpu"):
        tree.new_child(host + "_gpu", ident(host + "_numa1"), uuid=ident(host + "_gpu"))
    tree.update_inventory(host + "_gpu", {"CUSTOM_GPU": inventory(2), "VGPU": inventory(8)})
    tree.update_traits(host + "_gpu", ["CUSTOM_GPU_T4", "OWNER_NOVA"])


def candidates(resources):
    wanted = utils.ResourceRequest()
    for resource_class, amount in resources.items():
        wanted._add_resource(resource_class, amount)
    found, _, version = client.get_allocation_candidates(context, wanted)
    return sorted(found, key=lambda r: json.dumps(r, sort_keys=True)), version


def boot(name, number, resources):
    found, version = candidates(resources)
    consumer = ident(name)
    made = client.claim_resources(context, consumer, found[number % len(found)], "project%d" % (number % 2), "user", version)
    return {"candidates": len(found), "claimed": made}


SMALL = {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 20}


def build():
    for host in HOSTS:
        update(host, lambda tree, host=host: compute(tree, host))
        client.aggregate_add_host(context, ZONE, host_name=host)
    client._ensure_resource_provider(context, STORAGE, name="storage")
    client.set_inventory_for_provider(context, STORAGE, {"DISK_GB": inventory(10000)})
    client.set_traits_for_provider(context, STORAGE, ["MISC_SHARES_VIA_AGGREGATE"])
    client.set_aggregates_for_provider(context, STORAGE, [ZONE])
    servers = [boot("server%d" % n, n * 7, SMALL) for n in range(8)]
    servers.append(boot("gpu", 1, dict(SMALL, CUSTOM_GPU=1)))
    return servers


def work():
    """A day's work: an unchanged report, a changed one, a server, a migration, a resize, a deletion, a reshape."""
    for host in HOSTS:
        update(host, lambda tree: None)

    def grow(tree):
        tree.update_inventory("compute1", {"MEMORY_MB": inventory(131072, reserved=1024), "DISK_GB": inventory(900)})
        tree.add_traits("compute1", "CUSTOM_RACK_8")

    update("compute1", grow)
    out = [boot("more" + work.tag, 3, SMALL)]
    client.move_allocations(context, ident("server1" + work.old), ident("server1" + work.tag))
    held = client.get_allocs_for_consumer(context, ident("server2"))
    host = next(iter(held["allocations"]))
    client.remove_resources_from_instance_allocation(context, ident("server2"), {host: {"resources": {next(iter(held["allocations"][host]["resources"])): 1}}})
    out.append(client.delete_allocation_for_instance(context, ident(work.end)))
    # The device of compute2 becomes a part of its other cell, as a driver does it.
    gone, name = "compute2_gpu" + work.old, "compute2_gpu" + work.tag

    def reshape(tree):
        held = client.get_allocations_for_provider_tree(context, "compute2")
        if not tree.exists(name):
            tree.new_child(name, ident("compute2_numa0"), uuid=ident(name))
        tree.update_inventory(name, {"CUSTOM_GPU": inventory(2), "VGPU": inventory(8)})
        tree.update_inventory(gone, {})
        for consumer in held.values():
            if ident(gone) in consumer["allocations"]:
                consumer["allocations"][ident(name)] = consumer["allocations"].pop(ident(gone))
        return held

    update("compute2", reshape)
    update("compute2", lambda tree: tree.remove(gone))
    return out


def read():
    """What Nova reads, from Placement itself."""
    consumers = {}
    out = {}
    for host in HOSTS:
        tree_of(host)
        found = client.get_providers_in_tree(context, ident(host))
        out[host] = sorted(found, key=lambda p: p["uuid"])
        held = client.get_allocations_for_provider_tree(context, host)
        out[host + " servers"] = held
        consumers.update(held)
    out["consumers"] = {c: client.get_allocs_for_consumer(context, c) for c in sorted(consumers)}
    out["quota"] = [client.get_usages_counts_for_quota(context, "project%d" % n) for n in (0, 1)]
    out["candidates"] = candidates(dict(SMALL, CUSTOM_GPU=1))[0]
    return out


STEPS = {"build": (build, None), "read": (read, None), "work": (work, ("", "_b", "server3")), "work again": (work, ("_b", "_c", "server4"))}
for line in sys.stdin:
    step, how = STEPS[line.strip()]
    if how:
        work.old, work.tag, work.end = how
    sys.stdout.write(json.dumps(step(), sort_keys=True) + "\n")
    sys.stdout.flush()
