# SPDX-License-Identifier: Apache-2.0
"""A program with OpenStack's SDK: makes and deletes a server, or looks at one, and prints what it saw."""

import json
import sys

import openstack

what, which = sys.argv[1:]
compute = openstack.connect(cloud="ours").compute

made = None
if what == "make":
    server = compute.create_server(name="made", flavor_id="1", image_id=which, networks="none")
    made = compute.wait_for_server(server, interval=0.2, wait=60).id
shown = compute.get_server(made or which)
print(json.dumps({
    "made": made,
    "servers": {s.id: f"{s.name} {s.status}" for s in compute.servers()},
    "image": shown.image.id if shown.image else None,
    "shown": {"name": str(shown.name), "status": shown.status, "project": shown.project_id},
    "services": {s.host: f"{s.status} {s.state}" for s in compute.services()},
}))
if made:
    compute.delete_server(made)
