// SPDX-License-Identifier: Apache-2.0

// Package mdevs says how many mediated devices (vGPUs and others) each physical device can give, and of which resource class. The options are
// those of Nova's [devices] and [mdev_*] sections.
//
// A parent (a GPU, a virtual function of one, or a virtual device such as mtty) makes devices of one type only: the type that names its
// address, else the first enabled type that names none. Its provider is <node>_<libvirt's name>, as in Nova; its total is what there is of the
// type on it and what can still be made.
package mdevs
