// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Debian's programs. A Python from elsewhere does not have Debian's packages.
const (
	python     = "/usr/bin/python3"
	manage     = "/usr/bin/placement-manage"
	wsgi       = "/usr/bin/placement-api"
	uwsgi      = "/usr/bin/uwsgi"
	mariadb    = "/usr/bin/mariadb"
	uwsgiProcs = 2
	uwsgiThr   = 4
)

// startUpstream starts OpenStack's Placement as Debian's packages run it: under uwsgi with 2
// processes of 4 threads, in a database of its own on a MariaDB server. The data comes from an
// SQLite database of ours, whose tables are Placement's own, by SQL: through its API it would take
// Placement a third of a second for each tree. from may be "".
func startUpstream(ctx context.Context, dir, from string, on *server) (_ *peer, err error) {
	for _, program := range []string{python, manage, wsgi, uwsgi, mariadb} {
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("%w; OpenStack's Placement is installed by: tools/packages.sh bench", err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	dsn, err := on.MakeDatabase(ctx, "placement")
	if err != nil {
		return nil, err
	}
	p := &peer{Name: "Placement", dir: dir, server: on}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	conf := filepath.Join(dir, "placement.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, `[DEFAULT]
debug = false
log_file = %s
[api]
auth_strategy = noauth2
[placement_database]
connection = %s?charset=utf8
max_pool_size = 25
max_overflow = 100
sync_on_startup = false
`, p.logFile("placement"), strings.Replace(dsn, "mysql:", "mysql+pymysql:", 1)), 0o600); err != nil {
		return nil, err
	}
	if err := p.run(ctx, "make Placement's tables", nil,
		python, manage, "--config-file", conf, "db", "sync"); err != nil {
		return nil, err
	}
	if from != "" {
		if err := p.copyFrom(ctx, from, dsn); err != nil {
			return nil, fmt.Errorf("copy %s to MariaDB: %w", from, err)
		}
	}
	return p, p.startPlacement(ctx)
}

// sql runs statements from a file on the database of a DSN.
func (p *peer) sql(ctx context.Context, what, dsn string, statements *os.File) error {
	at, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	password, _ := at.User.Password()
	return p.run(ctx, what, statements, mariadb, "--no-defaults", "--host="+at.Hostname(), "--port="+at.Port(),
		"--user="+at.User.Username(), "--password="+password, "--database="+strings.TrimPrefix(at.Path, "/"))
}

// startPlacement uses the options of Debian's own /etc/placement/placement-api-uwsgi.ini, and one
// connection a request.
func (p *peer) startPlacement(ctx context.Context) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	p.URL = "http://" + address
	begin := time.Now()
	proc, err := p.start(ctx, "uwsgi", []string{"OS_PLACEMENT_CONFIG_DIR=" + p.dir, "PYTHONWARNINGS=ignore"}, uwsgi,
		"--plugin", "python3", "--http-socket", address, "--wsgi-file", wsgi,
		"--master", "--lazy-apps", "--thunder-lock", "--enable-threads", "--need-app", "--die-on-term",
		"--processes", strconv.Itoa(uwsgiProcs), "--threads", strconv.Itoa(uwsgiThr), "--listen", "100",
		"--buffer-size", "65535", "--add-header", "Connection: close", "--disable-logging")
	if err != nil {
		return err
	}
	if err := p.await(ctx, proc, p.answers); err != nil {
		return err
	}
	p.Startup = time.Since(begin)
	return nil
}
