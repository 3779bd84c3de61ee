# SPDX-License-Identifier: Apache-2.0
"""A driver for the machine that it runs on: processors, memory, a disk, and VGPUs as they are configured."""
