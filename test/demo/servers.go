// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// computeURL is where the compute API listens by default.
const computeURL = "http://127.0.0.1:8774/v2.1"

// errNoClient means that OpenStack's command line is not installed.
var errNoClient = errors.New("the command openstack is missing (Debian's package python3-openstackclient)")

// clientEnv is what OpenStack's command line takes from the environment.
func clientEnv() ([]string, error) {
	if _, err := exec.LookPath("openstack"); err != nil {
		return nil, errNoClient
	}
	return []string{
		"OS_AUTH_TYPE=admin_token", "OS_ENDPOINT=" + computeURL, "OS_TOKEN=admin",
		"OS_COMPUTE_API_VERSION=2.69", "PYTHONWARNINGS=ignore",
	}, nil
}

// servers has OpenStack's own client make servers: one that gets processors, memory and a GPU of
// one cell, and one for which no cell has enough.
func (t *teller) servers(ctx context.Context) {
	t.chapter(ctx, "openstack server create",
		`compute-agent has a compute API as well. Its scheduler sends Placement requests like those of chapter 4. The agent reports cells again, and
		now makes the guests of this API:`)
	t.stops(ctx)
	t.types(ctx, `sed -i 's/numa = "flat"/numa = "nested"/' `+configFile)
	t.try(t.makeGuests)
	t.types(ctx, "tail -4 "+configFile)
	t.computes(ctx)
	t.starts(ctx, reshapes)
	t.discovers(ctx)
	t.say("A flavor with 8 GiB and a virtual GPU, which must be in the cell of the processors and memory, and a " +
		"server of it:")
	t.types(ctx, `openstack flavor create --vcpus 4 --ram 8192 --disk 10 -c name -c properties gpu.near \
        --property resources:VGPU=1 --property hw:numa_nodes=1 --property hw:pci_numa_affinity_policy=required`)
	const create = `openstack server create --flavor gpu.near --image "" --network none -c id -c name `
	t.types(ctx, create+"model")
	t.becomes(ctx, "model", "ACTIVE")
	t.types(ctx, "compute-agent tree --servers")
	t.say("In libvirt the guest runs on the processors of cell 0, and has its memory there:")
	guest := t.guest(ctx)
	pinned := t.types(ctx, "virsh vcpupin "+guest)
	bound := t.types(ctx, "virsh numatune "+guest)
	t.checks(func() error { return t.inCell0(ctx, strings.TrimPrefix(guest, "instance-"), pinned, bound) },
		"The server has its processors, memory and GPU in one cell, in Placement and in libvirt.")
	t.refuses(ctx, create)
}

// refuses has a second server refused.
func (t *teller) refuses(ctx context.Context, create string) {
	t.say(`The host still has 8704 MiB and 12 virtual GPUs free, but no cell has 8192 MiB. As one resource provider it would take a second such
		guest, and divide its memory between the sockets. With cells the guest is refused:`)
	t.types(ctx, create+"second")
	t.becomes(ctx, "second", "ERROR")
	t.types(ctx, "openstack server list -n -c Name -c Status -c Flavor --sort-column Name")
	t.types(ctx, "openstack server show second -c fault -f json")
	t.say("The fault ends with a command. With its query in a variable:")
	query := t.lastQuery()
	why := t.typesAs(ctx, `compute-agent placement explain "$query"`, "query='"+query+"'; ")
	t.checks(func() error {
		for _, lacks := range []string{"_NUMA0: 2816 of 8192 MEMORY_MB free", "_NUMA0: 5888 of 8192 MEMORY_MB free"} {
			if !strings.Contains(why, lacks) {
				return fmt.Errorf("%q is not there", lacks)
			}
		}
		return nil
	}, "No cell has the memory.")
}

// makeGuests has the agent make guests for a cell. This machine may have no KVM.
func (t *teller) makeGuests() error {
	path := filepath.Join(home, configFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "[cell_client]\nurl = %q\n[drivers.libvirt.config.instances]\nvirt_type = \"qemu\"\n",
		cellURL("cell1"))
	return os.WriteFile(path, text, 0o600)
}

// cellURL is where a cell answers.
func cellURL(name string) string { return "unix://" + filepath.Join(home, name, "cell.sock") }

// computes starts the compute API and its cells, and registers these.
func (t *teller) computes(ctx context.Context) {
	t.say("The compute API, and its two cells, of which the first has no hosts:")
	var lines []string
	for _, name := range []string{"cell0", "cell1"} {
		lines = append(lines,
			fmt.Sprintf("compute-agent cells serve --name %s --state-dir %[1]s --listen %s", name, cellURL(name)))
	}
	for _, line := range append(lines, "compute-agent cells api") {
		t.try(func() error {
			p, err := t.serve(ctx, line)
			if err == nil {
				t.compute = append(t.compute, p)
				t.show(line+" &", "")
			}
			return err
		})
	}
	t.types(ctx, "compute-agent cells manage create --cell0 --url "+cellURL("cell0"))
	t.types(ctx, "compute-agent cells manage create --name cell1 --url "+cellURL("cell1"))
}

// discovers waits until the compute API knows the host, and shows it.
func (t *teller) discovers(ctx context.Context) {
	t.awaits(ctx, "the host registers with its cell", func(ctx context.Context) (bool, error) {
		hosts, err := t.typed(ctx, "compute-agent cells manage discover-hosts && compute-agent cells manage list-hosts")
		return strings.Contains(hosts, rootUUID), err
	})
	t.types(ctx, "compute-agent cells manage list-hosts")
}

// becomes waits until a server has a status.
func (t *teller) becomes(ctx context.Context, name, status string) {
	t.awaits(ctx, "the server "+name+" is "+status, func(ctx context.Context) (bool, error) {
		r, err := http.NewRequestWithContext(ctx,
			http.MethodGet, computeURL+"/servers?name="+name+"&status="+status, nil)
		if err != nil {
			return false, err
		}
		r.Header.Set("X-Auth-Token", "admin")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return false, err
		}
		var found struct{ Servers []any }
		err = json.NewDecoder(answer.Body).Decode(&found)
		return len(found.Servers) > 0, errors.Join(err, answer.Body.Close())
	})
}

// awaits waits until something is so.
func (t *teller) awaits(ctx context.Context, what string, so func(context.Context) (bool, error)) {
	t.try(func() error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for {
			is, err := so(ctx)
			if is || err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting until %s: %w\n%s", what, ctx.Err(), t.agent.log)
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
}

// guest is the name that libvirt has for the guest of the server.
func (t *teller) guest(ctx context.Context) (name string) {
	t.try(func() error {
		names, err := t.typed(ctx, "virsh list --name")
		if name = regexp.MustCompile(`instance-\S+`).FindString(names); err == nil && name == "" {
			err = fmt.Errorf("no guest of a server runs:\n%s", names)
		}
		return err
	})
	return name
}

// inCell0 says what of a server is not in cell 0, as Placement and libvirt have it.
func (t *teller) inCell0(ctx context.Context, uuid, pinned, bound string) error {
	held, err := holdingsOf(ctx, uuid)
	if err != nil {
		return err
	}
	want := map[string]map[string]int64{hostName: {"DISK_GB": 10},
		cell0: {"VCPU": 4, "MEMORY_MB": 8192}, gpu0: {"VGPU": 1}}
	if !reflect.DeepEqual(held, want) {
		return fmt.Errorf("in Placement it holds %v", held)
	}
	if strings.Count(pinned, "  0-3,8-11\n") != 4 || !strings.Contains(bound, "strict") ||
		!strings.HasSuffix(strings.TrimSpace(bound), ": 0") {
		return fmt.Errorf("libvirt has it on other processors or memory:\n%s\n%s", pinned, bound)
	}
	return nil
}

// lastQuery is the last one for candidates in Placement's log.
func (t *teller) lastQuery() (query string) {
	t.try(func() error {
		for lines := bufio.NewScanner(strings.NewReader(t.placement.log.String())); lines.Scan(); {
			var line struct{ Path, Query string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Path == "/allocation_candidates" {
				query = line.Query
			}
		}
		var err error
		if query, err = url.QueryUnescape(query); err == nil && query == "" {
			err = errors.New("no query for candidates is in Placement's log")
		}
		return err
	})
	return query
}
