// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"
)

// Debian's programs. A Python from elsewhere does not have Debian's packages.
const (
	python     = "/usr/bin/python3"
	manage     = "/usr/bin/placement-manage"
	wsgi       = "/usr/bin/placement-api"
	uwsgi      = "/usr/bin/uwsgi"
	mariadb    = "/usr/bin/mariadb"
	mariadbd   = "/usr/sbin/mariadbd"
	installDB  = "/usr/bin/mariadb-install-db"
	uwsgiProcs = 2
	uwsgiThr   = 4
)

// startUpstream starts OpenStack's Placement as Debian's packages run it: under uwsgi with 2
// processes of 4 threads, on a MariaDB with its default settings and durable commits. The data
// comes from an SQLite database of ours, whose tables are Placement's own, by SQL: through its API
// it would take Placement a third of a second for each tree. from may be "".
func startUpstream(ctx context.Context, dir, from string) (_ *peer, err error) {
	for _, program := range []string{python, manage, wsgi, uwsgi, mariadb, mariadbd, installDB} {
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("%w; OpenStack's Placement is installed by: tools/packages.sh bench", err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &peer{Name: "Placement", dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	databasePort, err := p.startMariaDB(ctx)
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "placement.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, `[DEFAULT]
debug = false
log_file = %s
[api]
auth_strategy = noauth2
[placement_database]
connection = mysql+pymysql://placement:placement@127.0.0.1:%d/placement?charset=utf8
max_pool_size = 25
max_overflow = 100
sync_on_startup = false
`, p.logFile("placement"), databasePort), 0o600); err != nil {
		return nil, err
	}
	if err := p.run(ctx, "make Placement's tables", nil, python, manage, "--config-file", conf, "db", "sync"); err != nil {
		return nil, err
	}
	if from != "" {
		if err := p.copyFrom(ctx, from); err != nil {
			return nil, fmt.Errorf("copy %s to MariaDB: %w", from, err)
		}
	}
	return p, p.startPlacement(ctx)
}

func (p *peer) socket() string { return filepath.Join(p.dir, "mariadb.sock") }

// sql runs statements from a file.
func (p *peer) sql(ctx context.Context, what string, statements *os.File) error {
	return p.run(ctx, what, statements, mariadb, "--no-defaults", "--socket="+p.socket(), "--user=root", "--database=placement")
}

func (p *peer) startMariaDB(ctx context.Context) (port int, err error) {
	me, err := user.Current()
	if err != nil {
		return 0, err
	}
	if port, err = freePort(ctx); err != nil {
		return 0, err
	}
	data := filepath.Join(p.dir, "mariadb")
	if err := p.run(ctx, "make a MariaDB", nil, installDB, "--no-defaults", "--user="+me.Username, "--datadir="+data,
		"--auth-root-authentication-method=normal", "--skip-test-db"); err != nil {
		return 0, err
	}
	proc, err := p.start(ctx, "mariadbd", nil, mariadbd, "--no-defaults", "--user="+me.Username, "--datadir="+data, "--socket="+p.socket(),
		"--port="+strconv.Itoa(port), "--bind-address=127.0.0.1", "--pid-file="+filepath.Join(p.dir, "mariadb.pid"),
		"--skip-name-resolve", "--character-set-server=utf8mb3", "--innodb-flush-log-at-trx-commit=1")
	if err != nil {
		return 0, err
	}
	return port, p.await(ctx, proc, func(ctx context.Context) error {
		return p.run(ctx, "make Placement's database", nil, mariadb, "--no-defaults", "--socket="+p.socket(), "--user=root", "--execute="+
			"CREATE DATABASE IF NOT EXISTS placement CHARACTER SET utf8; CREATE USER IF NOT EXISTS 'placement'@'%' IDENTIFIED BY 'placement';"+
			"GRANT ALL PRIVILEGES ON placement.* TO 'placement'@'%'")
	})
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
