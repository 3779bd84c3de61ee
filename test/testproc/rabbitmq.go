// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// rabbitScripts are where Debian's package rabbitmq-server has its own scripts: those in /usr/sbin
// are for root and the user rabbitmq.
const rabbitScripts = "/usr/lib/rabbitmq/bin"

// StartRabbitMQ runs a message broker (Debian's package rabbitmq-server) until the test ends and
// returns its URL, as oslo.messaging has it. It has a directory, ports and a port mapper of its
// own, and shares nothing with a broker of the machine. Without the package the test is not run.
func StartRabbitMQ(t testing.TB) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(rabbitScripts, "rabbitmq-server")); err != nil {
		NotRun(t, "a message broker needs Debian's package rabbitmq-server (tools/packages.sh databases): "+err.Error())
	}
	dir := t.TempDir()
	address, mapper, nodes := FreeAddress(t), freePort(t), freePort(t)
	_, clients, err := net.SplitHostPort(address)
	Check(t, err)
	environment := append(os.Environ(), "HOME="+dir, "ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT="+mapper,
		"RABBITMQ_NODENAME=test"+clients+"@localhost", "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT="+
			clients, "RABBITMQ_DIST_PORT="+nodes,
		"RABBITMQ_MNESIA_BASE="+dir, "RABBITMQ_LOG_BASE="+
			dir, "RABBITMQ_LOGS=-", "RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "plugins"), "RABBITMQ_CONF_ENV_FILE="+
			filepath.Join(dir, "env"), "RABBITMQ_CONFIG_FILE="+filepath.Join(dir, "rabbitmq"),
	)
	start := func(name, program string, args ...string) *Process {
		cmd := exec.Command(program, args...) //nolint:noctx // it ends with the test
		cmd.Env, cmd.Dir, cmd.SysProcAttr = environment,
			dir, &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		p := Start(t, name, cmd)
		t.Cleanup(func() {
			_ = syscall.Kill(-p.Pid(), syscall.SIGKILL) // the script and the broker
			<-p.Done()
			if t.Failed() {
				p.Show(t)
			}
		})
		return p
	}
	start("Erlang's port mapper", "epmd")
	start("RabbitMQ", filepath.Join(rabbitScripts, "rabbitmq-server")).Await(t, 0, "Server startup complete")
	return "rabbit://guest:guest@" + address + "/"
}

// freePort is a free port of 127.0.0.1.
func freePort(t testing.TB) string {
	t.Helper()
	address := FreeAddress(t)
	return address[strings.LastIndexByte(address, ':')+1:]
}
