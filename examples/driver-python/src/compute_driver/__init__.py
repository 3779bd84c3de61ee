# SPDX-License-Identifier: Apache-2.0
"""What the author of a compute-agent driver in Python imports.

Derive from Driver, then ``serve(YourDriver())`` is the whole main program. The author meets trees, allocations and the
answers below, and never gRPC or protobuf.
"""

from compute_driver.answers import ConfigError, Failure, NotReady, Offender, ReshapeFailed, ReshapeNeeded
from compute_driver.driver import Driver, HostInfo, Node
from compute_driver.moves import Move, Place, apply, distribute
from compute_driver.tree import Allocations, Inventory, Provider, Tree, child_uuid

__all__ = [
    "Allocations", "ConfigError", "Driver", "Failure", "HostInfo", "Inventory", "Move", "Node", "NotReady", "Offender",
    "Place", "Provider", "ReshapeFailed", "ReshapeNeeded", "Tree", "apply", "child_uuid", "distribute",
]
