# SPDX-License-Identifier: Apache-2.0
"""The plugin process. Standard output is taken care of before anything of the driver is loaded."""

from compute_driver import handshake

stdout = handshake.claim_stdout() if handshake.started_by_agent() else 1

from compute_driver.serving import serve  # noqa: E402
from machine.driver import MachineDriver  # noqa: E402

serve(MachineDriver(), stdout)
