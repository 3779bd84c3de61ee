# SPDX-License-Identifier: Apache-2.0
"""What the author of a compute-agent driver in Python imports.

Derive from Driver, then ``serve(YourDriver())`` is the whole main program. The API has trees, allocations and the
errors below, and no types of gRPC or protobuf.
"""

from compute_driver.capabilities import (CapabilityReporter, DriverWarning, Guest, GuestLister, HealthChecker, Hypervisor, HypervisorReporter, LayoutVersioner,
                                      NodeChecker, ProductNamer, Renamer, Shutdowner, Warner, Watcher)
from compute_driver.errors import (ConfigError, Failure, InstanceFault, InstanceNotFound, NotReady, ReshapeFailed, ReshapeNeeded,
                                    Unsupported, Violation)
from compute_driver.call import Call
from compute_driver.driver import Driver, HostInfo, Node
from compute_driver.instances import Flavor, Instance, InstanceManager, InstanceSpec, InstanceWatcher, PowerState
from compute_driver.moves import Move, Place, apply, distribute, move_all, rename_class
from compute_driver.tree import Allocations, Inventory, Provider, Tree, child_uuid

__all__ = [
    "Allocations", "Call", "CapabilityReporter", "ConfigError", "Driver", "DriverWarning", "Failure", "Flavor", "Guest", "GuestLister", "HealthChecker",
    "HostInfo", "Hypervisor", "HypervisorReporter", "Instance", "InstanceFault", "InstanceManager", "InstanceNotFound", "InstanceSpec", "InstanceWatcher", "Inventory",
    "LayoutVersioner", "Move", "Node", "NodeChecker", "NotReady", "Place", "PowerState", "ProductNamer", "Provider", "Renamer",
    "ReshapeFailed", "ReshapeNeeded", "Shutdowner", "Tree", "Unsupported", "Violation", "Warner", "Watcher", "apply", "child_uuid", "distribute",
    "move_all", "rename_class",
]
