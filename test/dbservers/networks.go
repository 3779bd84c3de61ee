// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// networks are the networks of the nodes of a cluster. Nothing of them is in the network of the
// tests, where it could meet addresses that are in use:
//
//	hub:   bridge side0 ── port0, port2     bridge side1 ── port1 (separated)
//	                         │      │                         │
//	node0: eth0 10.0.0.1 ────┘      └──── eth0 of node2       └── eth0 of node1
//
// A network exists as long as a process is in it, which sleeps and does nothing else.
type networks struct {
	hub   *network
	nodes []*network
}

// network is one of them.
type network struct {
	holder  *exec.Cmd
	address string // of a node
}

// startNetworks makes networks that last as long as the test.
func startNetworks(t testing.TB, nodes int) *networks {
	t.Helper()
	if os.Geteuid() != 0 {
		const why = "networks of their own for the nodes of a cluster need root"
		if os.Getenv("CI") != "" {
			t.Fatalf("NOT TESTED, and CI must have it: %s", why)
		}
		t.Skipf("NOT TESTED: %s", why)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Fatal(missing("ip", "iproute2"))
	}
	ns := &networks{hub: hold(t)}
	wires := []string{"link add side0 type bridge", "link add side1 type bridge", "link set side0 up", "link set side1 up"}
	for n := range nodes {
		node := hold(t)
		node.address = fmt.Sprintf("10.0.0.%d", n+1)
		ns.nodes = append(ns.nodes, node)
		wires = append(wires,
			fmt.Sprintf("link add port%d type veth peer name eth0 netns %d", n, node.holder.Process.Pid),
			fmt.Sprintf("link set port%d master side0 up", n))
	}
	testproc.Check(t, ns.hub.ip(t.Context(), wires...))
	for _, node := range ns.nodes {
		testproc.Check(t, node.ip(t.Context(), "link set lo up", "address add "+node.address+"/24 dev eth0", "link set eth0 up"))
	}
	return ns
}

// hold makes a network, and ends it with the test.
func hold(t testing.TB) *network {
	t.Helper()
	h, err := atHome()
	testproc.Check(t, err)
	dir, err := os.MkdirTemp(h.dir, "network") // the reaper ends what works below
	testproc.Check(t, err)
	cmd := exec.Command("/bin/sleep", "infinity") //nolint:noctx // see the cleanup
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setsid: true}
	testproc.Check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		testproc.Check(t, os.Remove(dir))
	})
	return &network{holder: cmd}
}

// inside are the words of a command that runs another one in the network.
func (n *network) inside(further ...string) []string {
	return append([]string{"/usr/bin/nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", n.holder.Process.Pid)}, further...)
}

// ip runs commands of ip(8) in the network.
func (n *network) ip(ctx context.Context, commands ...string) error {
	words := n.inside("ip", "-batch", "-")
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	_, err := run(cmd)
	return err
}

// split has some nodes on one side and the others on the other one.
func (ns *networks) split(ctx context.Context, nodes []int) error {
	var commands []string
	for n := range ns.nodes {
		side := 0
		if slices.Contains(nodes, n) {
			side = 1
		}
		commands = append(commands, fmt.Sprintf("link set port%d master side%d", n, side))
	}
	return ns.hub.ip(ctx, commands...)
}

// enter has a server, which is not started yet, run in the network, but listen for clients in that
// of the tests: it inherits a socket from there, as from systemd.
func (n *network) enter(ctx context.Context, i *instance, cmd *exec.Cmd) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", i.address)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	as := i.home.as
	cmd.SysProcAttr.Credential = nil // root enters, and leaves its rights there
	words := n.inside(fmt.Sprintf("--setgid=%d", as.Gid), fmt.Sprintf("--setuid=%d", as.Uid),
		"/bin/sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"`, "sh")
	cmd.Path, cmd.Args = words[0], append(words, cmd.Args...)
	cmd.ExtraFiles = []*os.File{socket}
	return nil
}
