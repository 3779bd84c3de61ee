// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Cluster is a MariaDB Galera Cluster: every node accepts writes and has all data.
type Cluster struct {
	// Nodes are its servers. Start of one has it join the others again: it receives what it has
	// missed, or all data where that is not enough.
	Nodes []*Server

	networks *networks // nil without
}

// galera is MariaDB as a node of a cluster.
type galera struct {
	mariaDB
	name string
	// group is the HOST:PORT for the other nodes, incremental that for what a node has missed.
	group, incremental string
	cluster            func() []string // the group addresses of all nodes
	provider           []string        // further options
	// bootstrap has starts begin a cluster, instead of joining one.
	bootstrap bool
}

const (
	provider = "/usr/lib/galera/libgalera_smm.so"
	// mariaDBPort is that of a node in its own network.
	mariaDBPort = "3306"
	// copyProgram is run by both nodes to give a node all data of another.
	copyProgram = "wsrep_sst_copy"
)

//go:embed wsrep_sst_copy.sh
var copyScript []byte

func (g *galera) String() string { return "Galera node " + g.name }

// initialise has nothing to do: all nodes start with the files of one.
func (g *galera) initialise(context.Context, *instance) error { return nil }

func (g *galera) command(ctx context.Context, i *instance) (*exec.Cmd, error) {
	own, _, err := net.SplitHostPort(g.group)
	if err != nil {
		return nil, err
	}
	options := append([]string{
		"gmcast.listen_addr=tcp://" + g.group, "ist.recv_addr=" + g.incremental, "ist.recv_bind=" +
			g.incremental, "gcache.size=128M",
	}, g.provider...)
	args := []string{
		"--wsrep-on=ON", "--wsrep-provider=" + provider, "--wsrep-provider-options=" + strings.Join(options, ";"),
		"--wsrep-cluster-address=gcomm://" + strings.Join(g.cluster(), ","), "--wsrep-node-name=" + g.name,
		"--wsrep-node-address=" + g.group,
		"--wsrep-node-incoming-address=" + i.address, "--wsrep-sst-method=copy", "--wsrep-sst-receive-address=" + own,
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2",
	}
	position, err := g.position(ctx, i, args)
	if err != nil {
		return nil, err
	}
	args = append(args, position...)
	if g.bootstrap {
		args = append(args, "--wsrep-new-cluster")
	}
	cmd, err := g.mariaDB.command(ctx, i)
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, args...)
	if i.network == nil {
		return cmd, nil
	}
	// Clients are in the network of the tests, or in those of the hosts.
	outside, err := listen(ctx, i.address)
	if err != nil {
		return nil, err
	}
	var inside *os.File
	err = i.network.within(func() error {
		inside, err = listen(ctx, i.network.address+":"+mariaDBPort)
		return err
	})
	if err != nil {
		_ = outside.Close()
		return nil, err
	}
	i.enter(cmd, outside, inside)
	return cmd, nil
}

// stateFile is where Galera keeps up to where a node has the data, -1 while it runs.
func stateFile(i *instance) string { return filepath.Join(i.data, "grastate.dat") }

var (
	unknownPosition   = regexp.MustCompile(`(?m)^seqno: +-1$`)
	recoveredPosition = regexp.MustCompile(`Recovered position: ([0-9a-f-]{36}:[0-9]+)`)
)

// position returns how a node that was killed says up to where it has the data: as Debian's unit of
// MariaDB finds it out.
func (g *galera) position(ctx context.Context, i *instance, args []string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(i.data, "sst_in_progress")); err == nil {
		return nil, os.RemoveAll(stateFile(i)) // its data are not complete: it needs all
	}
	state, err := os.ReadFile(stateFile(i))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !unknownPosition.Match(state) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := run(i.program(ctx, mariadbd,
		append(append(g.files(i), args...), "--wsrep-recover", "--socket="+
			filepath.Join(i.dir, "socket"), "--skip-networking")...))
	if err != nil {
		return nil, err
	}
	found := recoveredPosition.FindStringSubmatch(out)
	if found == nil {
		return nil, nil
	}
	return []string{"--wsrep-start-position=" + found[1]}, nil
}

// status are the variables of a node's state.
func status(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx,
		"SHOW STATUS WHERE Variable_name IN ('wsrep_local_state_comment', 'wsrep_cluster_status', "+
			"'wsrep_cluster_size')")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	out := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		out[name] = value
	}
	return out, rows.Err()
}

// ready returns nil when the node has all data of the cluster.
func (g *galera) ready(ctx context.Context, db *sql.DB) error {
	s, err := status(ctx, db)
	if err == nil && (s["wsrep_local_state_comment"] != "Synced" || s["wsrep_cluster_status"] != "Primary") {
		err = fmt.Errorf("it is %s in a component that is %s",
			s["wsrep_local_state_comment"], s["wsrep_cluster_status"])
	}
	return err
}

// StartGalera starts a cluster of some nodes for one test, all of them synced.
func StartGalera(t testing.TB, nodes int, o Options) *Cluster {
	t.Helper()
	if _, err := os.Stat(provider); err != nil {
		t.Fatal(missing(provider, "galera-4"))
	}
	c := &Cluster{}
	if o.Networks {
		c.networks = startNetworks(t, nodes, o.Hosts)
	}
	cluster := func() []string {
		var all []string
		for _, n := range c.Nodes {
			all = append(all, n.galera().group)
		}
		return all
	}
	password := rand.Text()
	for n := range nodes {
		g := &galera{name: "node" + strconv.Itoa(n), cluster: cluster, provider: o.Provider}
		s := newServer(t, g, o)
		if o.Networks {
			s.i.network = c.networks.nodes[n]
			g.group, g.incremental = s.i.network.address+":4567", s.i.network.address+":4568"
		} else {
			g.group, g.incremental = testproc.FreeAddress(t), testproc.FreeAddress(t)
		}
		s.i.password = password
		path := filepath.Join(s.i.dir, copyProgram)
		testproc.Check(t, testproc.WriteExecutable(path, copyScript))
		c.Nodes = append(c.Nodes, s)
	}
	c.begin(t)
	for _, s := range c.Nodes[1:] {
		// One after the other: that is quicker than all at once.
		testproc.Check(t, s.i.startAnywhere(t.Context()))
	}
	c.WaitSynced(t)
	return c
}

// begin makes the files of all nodes and starts the first one. The first has to have been started
// before, so that its files say to which cluster they belong; then the others need no copy of all
// data from a running node, which takes longer.
func (c *Cluster) begin(t testing.TB) {
	t.Helper()
	first := c.Nodes[0]
	g := first.galera()
	testproc.Check(t, g.mariaDB.initialise(t.Context(), first.i))
	g.bootstrap = true
	testproc.Check(t, first.i.startAnywhere(t.Context()))
	first.Stop(t)
	for _, s := range c.Nodes[1:] {
		testproc.Check(t, s.i.emptyData())
		_, err := run(s.i.program(t.Context(), "/bin/cp",
			"--recursive", "--sparse=always", first.i.data+"/.", s.i.data))
		testproc.Check(t, err)
	}
	first.Start(t)
	g.bootstrap = false
}

func (s *Server) galera() *galera { return s.i.kind.(*galera) }

// Database makes an empty database, whose owner has the same name, and returns its DSNs, one for
// each node.
func (c *Cluster) Database(t testing.TB, name string) []string {
	t.Helper()
	c.Nodes[0].Database(t, name)
	var out []string
	for _, s := range c.Nodes {
		// This waits until the node has what the first one did.
		testproc.Try(s.word(t.Context(), "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1")).Or(t)
		out = append(out, s.DSN(name))
	}
	return out
}

// WaitSynced waits until some nodes are one component that has a quorum and no other members, and
// have all its data. Without any named, it is for all that run and are not stopped by Pause.
func (c *Cluster) WaitSynced(t testing.TB, nodes ...int) {
	t.Helper()
	var running []*Server
	for n, s := range c.Nodes {
		if slices.Contains(nodes, n) || len(nodes) == 0 && s.i.cmd != nil && !s.paused {
			running = append(running, s)
		}
	}
	for _, s := range running {
		testproc.Eventually(t, patience, s.i.kind.String()+" is synced", func() error {
			db, err := s.i.kind.open(s.i, "")
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }()
			if err := s.i.kind.ready(t.Context(), db); err != nil {
				return err
			}
			all, err := status(t.Context(), db)
			if size := all["wsrep_cluster_size"]; err == nil && size != strconv.Itoa(len(running)) {
				err = fmt.Errorf("its component has %s members, and is to have %d", size, len(running))
			}
			return err
		})
	}
}

// Bootstrap makes a component with a quorum of one node: one that runs and has lost the others, or
// one that does not run and starts with its own data. The others join it: those that run do so by
// themselves, the others with Start.
func (c *Cluster) Bootstrap(t testing.TB, node int) {
	t.Helper()
	s := c.Nodes[node]
	if s.i.cmd != nil {
		testproc.Check(t, s.i.statements(t.Context(), "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=true'"))
		testproc.Eventually(t, patience, s.i.kind.String()+" has a quorum", func() error {
			db, err := s.i.kind.open(s.i, "")
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }()
			return s.i.kind.ready(t.Context(), db)
		})
		return
	}
	state := testproc.Try(os.ReadFile(stateFile(s.i))).Or(t)
	testproc.Check(t, os.WriteFile(stateFile(s.i),
		[]byte(strings.Replace(string(state), "safe_to_bootstrap: 0", "safe_to_bootstrap: 1", 1)), 0o600))
	s.galera().bootstrap = true
	s.Start(t)
	s.galera().bootstrap = false
}

// Inside returns the DSN of a database on a node, as it is for programs on the hosts.
func (c *Cluster) Inside(node int, database string) string {
	i := c.Nodes[node].i
	return i.kind.dsn(database, i.password, i.network.address+":"+mariaDBPort, database)
}

// Enter has a program, which is not started yet, run on a host: see [Options]. Where address is not
// "", it inherits a socket with the name given, as from systemd, that listens there in the network
// of the tests: they reach it also when the host is separated. The program's ExtraFiles are to be
// closed once it is started.
func (c *Cluster) Enter(t testing.TB, host int, cmd *exec.Cmd, name, address string) {
	t.Helper()
	c.networks.run(t, host, cmd, name, address)
}

// Partition separates some nodes from the others: what one side sends the other is lost, as when a
// switch fails. Tests reach all nodes. The nodes must have networks of their own. The hosts have
// the numbers that follow those of the nodes.
func (c *Cluster) Partition(t testing.TB, nodes ...int) {
	t.Helper()
	c.networks.partition(t, nodes)
}

// Heal undoes Partition.
func (c *Cluster) Heal(t testing.TB) {
	t.Helper()
	c.networks.partition(t, nil)
}
