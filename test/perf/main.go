// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// settings are the flags of a run.
type settings struct {
	binary   string
	state    string
	upstream bool
	trees    int
	atLeast  time.Duration
	hosts    []int
	// consumers are how many the largest number of hosts has in the end.
	consumers int
	only      *regexp.Regexp // operations
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "perf:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	usage := errors.New("usage: perf adopt|compare|contend|databases|grow|latency|optimum [flags]")
	if len(args) == 0 {
		return usage
	}
	if args[0] == "bare" { // a process that optimum starts
		return bare(ctx, args[1:])
	}
	var s settings
	flags := flag.NewFlagSet("perf "+args[0], flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", "bin/compute-agent", "the compute-agent to measure")
	flags.Func("run", "only the operations whose name matches this `REGEXP`", func(expression string) (err error) {
		s.only, err = regexp.Compile(expression)
		return err
	})
	flags.DurationVar(&s.atLeast, "for", 3*time.Second, "how long each operation is repeated at least")
	var work func(context.Context, settings) error
	switch args[0] {
	case "adopt":
		work = adopt
		flags.IntVar(&s.trees, "hosts", 10000, "hosts of 7 providers")
		flags.IntVar(&s.consumers, "consumers", 200_000, "consumers of 3 allocations each")
	case "compare":
		work = compare
		flags.IntVar(&s.trees, "trees", 1000, "trees of 7 providers, and flat hosts")
		flags.BoolVar(&s.upstream, "upstream", true, "start OpenStack's Placement beside ours")
	case "contend":
		work = contend
		flags.IntVar(&s.trees, "hosts", 400, "flat hosts, each of which can serve one claim")
		flags.BoolVar(&s.upstream, "upstream", false, "start OpenStack's Placement beside ours")
	case "databases":
		work = databases
		flags.IntVar(&s.trees, "trees", 1000, "trees of 7 providers")
		flags.BoolVar(&s.upstream, "upstream", true, "start OpenStack's Placement beside ours")
	case "optimum":
		work = optimum
		flags.IntVar(&s.trees, "trees", 1000, "trees of 7 providers")
	case "latency":
		work = latency
		flags.IntVar(&s.trees, "hosts", 10000, "hosts of 7 providers")
	case "grow":
		work = grow
		flags.IntVar(&s.consumers, "consumers", 200_000, "consumers that the largest number of hosts has in the end")
		flags.Func("hosts", "numbers of hosts, with commas (default 1000,5000,10000)", func(list string) error {
			for word := range strings.SplitSeq(list, ",") {
				n, err := strconv.Atoi(word)
				if err != nil || n < 1 {
					return fmt.Errorf("%q is no number of hosts", word)
				}
				s.hosts = append(s.hosts, n)
			}
			return nil
		})
	default:
		return usage
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if len(s.hosts) == 0 {
		s.hosts = []int{1000, 5000, 10000}
	}
	if s.state, err = os.MkdirTemp("", "perf"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(s.state) }()
	fmt.Printf("%s\n\n", testproc.Machine())
	return work(ctx, s)
}

// say reports progress.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
