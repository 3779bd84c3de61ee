// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// servicesSocket is where Share answers.
const servicesSocket = "dbservers.sock"

// given is what Share answers to the name of an engine: a server of that.
type given struct {
	Address, Password, Dir, Error string
}

// ShareDir makes a directory for the services that the processes of a run of tests share. It is
// removed, and what works below it is ended, when this process has ended, however that was.
func ShareDir() (string, error) {
	h, err := inMemory()
	if err != nil {
		return "", err
	}
	// Its parent is the servers' user's.
	return os.MkdirTemp(h.dir, "")
}

// Share serves [MariaDB] and [PostgreSQL] to the tests whose environment has the directory in
// [testproc.ServicesEnv]. A server is started when the first one asks for it, and ends with this
// process.
func Share(ctx context.Context, dir string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(dir, servicesSocket))
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				if err := answer(ctx, c); err != nil {
					fmt.Fprintln(os.Stderr, "sharing database servers:", err)
				}
			}()
		}
	}()
	return nil
}

func answer(ctx context.Context, c net.Conn) error {
	name, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err
	}
	var reply given
	for _, s := range []*shared{sharedMariaDB, sharedPostgreSQL} {
		if s.kind.String() != strings.TrimSpace(name) {
			continue
		}
		if i, err := s.server(ctx); err != nil {
			reply.Error = err.Error()
		} else {
			reply = given{i.address, i.password, i.dir, ""}
		}
	}
	return json.NewEncoder(c).Encode(reply)
}

// askFor is the server of an engine that Share has in a directory.
func askFor(ctx context.Context, kind engine, dir string) (*instance, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, servicesSocket))
	if err != nil {
		return nil, fmt.Errorf("%w; it has the directory of %s", err, testproc.ServicesEnv)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintln(c, kind); err != nil {
		return nil, err
	}
	var reply given
	if err := json.NewDecoder(c).Decode(&reply); err != nil {
		return nil, err
	}
	if reply.Error != "" {
		return nil, errors.New(reply.Error)
	}
	return &instance{kind: kind, address: reply.Address, password: reply.Password, dir: reply.Dir}, nil
}
