// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Start runs the faults of the arguments --start=FAULT,... before the handshake. It returns when
// the driver can be served.
//
//	exit            ends with status 3 and a reason on standard error
//	crash           panics
//	hang            never gets as far as a handshake
//	sleep=DURATION  is slow
//	noise           prints, on both outputs
//	raw-stdout      writes garbage where the handshake goes
//	garbage, long-line, grandchild, runaway: as in any call
//	handshake=LINE  writes this as its handshake, and never serves
//
// Errors: anything else.
func Start(args []string) error {
	for _, arg := range args {
		if arg == "--info" || arg == "-info" {
			continue
		}
		names, ok := strings.CutPrefix(arg, "--start=")
		if !ok {
			return fmt.Errorf("argument %q: must be --start=FAULT,... or --info", arg)
		}
		for name := range strings.SplitSeq(names, ",") {
			if err := atStart(name); err != nil {
				return fmt.Errorf("--start=%s: %w", name, err)
			}
		}
	}
	return nil
}

func atStart(name string) error {
	name, value, _ := strings.Cut(name, "=")
	switch name {
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot find a library")
		os.Exit(3)
	case "crash":
		panic("a defect of the driver at its start")
	case "hang":
		forever()
	case "sleep":
		d, err := time.ParseDuration(value)
		if err != nil {
			return err
		}
		time.Sleep(d)
	case "noise":
		fmt.Println("a line on standard output before the handshake")
		fmt.Fprintln(os.Stderr, "and one on standard error")
	case "raw-stdout":
		return writeRaw(garbageOnStdout)
	case "garbage":
		return garbage()
	case "long-line":
		return longLog()
	case "grandchild", "runaway":
		return startProcess(name == "runaway")
	case "handshake":
		if err := writeRaw(value + "\n"); err != nil {
			return err
		}
		forever()
	default:
		return errors.New("unknown fault")
	}
	return nil
}

// forever never returns. Before the driver is served, an empty select would end the process: the
// runtime detects the deadlock, unless cgo is linked.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}
