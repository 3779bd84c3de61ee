// SPDX-License-Identifier: Apache-2.0

// Command services runs a command, as go test, beside one MariaDB server, one PostgreSQL server and
// one OpenStack Placement that all tests below it share. Each is started when the first test asks
// for it, and all end with the command:
//
//	services COMMAND [ARGUMENT...]
//
// Without it, each process of tests starts its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func main() {
	runtime.LockOSThread() // the command ends with the thread that started it
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
	}
	os.Exit(code)
}

// run returns the exit code of the command.
func run(words []string) (int, error) {
	if len(words) == 0 {
		return 64, errors.New("usage: services COMMAND [ARGUMENT...]")
	}
	cmd := exec.Command(words[0], words[1:]...) //nolint:noctx // the caller's words; it gets the signals
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if os.Getenv(testproc.ServicesEnv) == "" { // no command around this one shares them
		dir, err := dbservers.ShareDir()
		if err != nil {
			return 1, err
		}
		if err := errors.Join(dbservers.Share(context.Background(), dir), testproc.SharePlacement(dir)); err != nil {
			return 1, err
		}
		cmd.Env = append(os.Environ(), testproc.ServicesEnv+"="+dir)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	go func() {
		for s := range signals {
			if s != syscall.SIGINT { // a Ctrl-C is for all of the terminal
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
