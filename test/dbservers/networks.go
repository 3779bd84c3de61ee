// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// networks are the networks of the nodes of a cluster, and of the hosts of its clients. Nothing of
// them is in the network of the tests, where it could meet addresses that are in use:
//
//	hub:   bridge side0 ── port0, port2     bridge side1 ── port1 (separated)
//	                         │      │                         │
//	node0: eth0 10.0.0.1 ────┘      └──── eth0 of node2       └── eth0 of node1
//
// A network exists as long as a process is in it, which sleeps and does nothing else.
type networks struct {
	hub   *network
	nodes []*network // those of the hosts come last
	hosts int
}

// network is one of them.
type network struct {
	holder  *exec.Cmd
	address string // of a node or host
}

// needsRoot skips a test that lacks root's rights; see [testproc.NotRun].
func needsRoot(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	testproc.NotRun(t, what+" need root")
}

// startNetworks makes networks that last as long as the test.
func startNetworks(t testing.TB, nodes, hosts int) *networks {
	t.Helper()
	needsRoot(t, "networks of their own for database servers")
	if _, err := exec.LookPath("ip"); err != nil {
		t.Fatal(missing("ip", "iproute2"))
	}
	ns := &networks{hub: hold(t), hosts: hosts}
	wires := []string{"link add side0 type bridge",
		"link add side1 type bridge", "link set side0 up", "link set side1 up"}
	for n := range nodes + hosts {
		node := hold(t)
		node.address = fmt.Sprintf("10.0.0.%d", n+1)
		ns.nodes = append(ns.nodes, node)
		wires = append(wires,
			fmt.Sprintf("link add port%d type veth peer name eth0 netns %d", n, node.holder.Process.Pid),
			fmt.Sprintf("link set port%d master side0 up", n))
	}
	testproc.Check(t, ns.hub.ip(t.Context(), wires...))
	for _, node := range ns.nodes {
		testproc.Check(t,
			node.ip(t.Context(), "link set lo up", "address add "+node.address+"/24 dev eth0", "link set eth0 up"))
	}
	return ns
}

// hold makes a network, and ends it with the test.
func hold(t testing.TB) *network {
	t.Helper()
	h := testproc.Try(inMemory()).Or(t)
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

// split has some nodes and hosts on one side and the others on the other one. Frames that a node
// sends while it is moved are lost.
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

// within runs f in a thread that is in the network: what f opens belongs to it. The thread leaves
// the network again: processes that it started are killed with it.
func (n *network) within(f func() error) error {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", n.holder.Process.Pid))
	if err != nil {
		return err
	}
	defer func() { _ = there.Close() }()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)
		if back == nil {
			runtime.UnlockOSThread()
		}
		done <- errors.Join(err, back)
	}()
	return <-done
}

// dial connects to an address of the network.
func (n *network) dial(ctx context.Context, network, address string) (made net.Conn, err error) {
	err = n.within(func() error {
		made, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return made, err
}

// listen returns a socket for an address.
func listen(ctx context.Context, address string) (*os.File, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }() // the file is another descriptor
	return l.(*net.TCPListener).File()
}

// enter has a program, which is not started yet, run in the network as a user, nil for root. It
// inherits sockets, as from systemd.
func (n *network) enter(cmd *exec.Cmd, as *syscall.Credential, name string, sockets ...*os.File) {
	words := n.inside()
	if as != nil {
		words = append(words, fmt.Sprintf("--setgid=%d", as.Gid), fmt.Sprintf("--setuid=%d", as.Uid))
	}
	cmd.SysProcAttr.Credential = nil // root enters, and leaves its rights there
	if len(sockets) > 0 {
		names := strings.Join(slices.Repeat([]string{name}, len(sockets)), ":")
		script := fmt.Sprintf(`LISTEN_PID=$$ LISTEN_FDS=%d LISTEN_FDNAMES=%s exec "$@"`, len(sockets), names)
		words = append(words, "/bin/sh", "-c", script, "sh")
	}
	words = append(words, cmd.Path)
	cmd.Path, cmd.Args = words[0], append(words, cmd.Args[1:]...)
	cmd.ExtraFiles = sockets
}

// enter has a server of a node, which is not started yet, run in the node's network.
func (i *instance) enter(cmd *exec.Cmd, sockets ...*os.File) {
	i.network.enter(cmd, i.home.as, "database", sockets...)
}

// run has a program run on a host.
func (ns *networks) run(t testing.TB, host int, cmd *exec.Cmd, name, address string) {
	t.Helper()
	if ns == nil || host >= ns.hosts {
		t.Fatalf("there is no network for host %d: start the servers with Options.Hosts", host)
	}
	var sockets []*os.File
	if address != "" {
		socket := testproc.Try(listen(t.Context(), address)).Or(t)
		sockets = append(sockets, socket)
	}
	ns.nodes[len(ns.nodes)-ns.hosts+host].enter(cmd, nil, name, sockets...)
}

// partition is split for a test.
func (ns *networks) partition(t testing.TB, nodes []int) {
	t.Helper()
	if ns == nil {
		t.Fatal("the nodes of this cluster share a network: start it with Options.Networks")
	}
	testproc.Check(t, ns.split(t.Context(), nodes))
}
