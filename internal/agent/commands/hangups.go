// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/rs/zerolog"
)

// Hangups passes each SIGHUP on, which asks for a reload, until stop. The kernel also sends one to
// the processes of a terminal that is gone, such as a closed window or connection: that ends the
// context, unless the process was started to survive it, with nohup or without a terminal.
func Hangups(ctx context.Context, log zerolog.Logger) (_ context.Context, reload <-chan os.Signal, stop func()) {
	bound := !signal.Ignored(syscall.SIGHUP) && hasTerminal()
	signals, passed := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case sig := <-signals:
				if bound && !hasTerminal() {
					log.Info().Msg("The terminal is gone: the agent stops.")
					cancel()
					return
				}
				select {
				case passed <- sig:
				default: // one is waiting
				}
			}
		}
	})
	return ctx, passed, func() {
		signal.Stop(signals)
		cancel()
		watch.Wait()
	}
}

// hasTerminal reports whether the process has a controlling terminal.
func hasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}
