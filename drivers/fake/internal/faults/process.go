// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/plugins"
)

const (
	// longLine is the size of one line of log, in bytes.
	longLine = 8 << 20
	// stormLines is how many lines, or events, a storm has.
	stormLines = 20_000
	// leaked is how many descriptors one leak loses.
	leaked = 200
)

// fault is something that a driver must not do.
type fault struct {
	text string
	do   func(ctx context.Context, f Config) error
}

// callFaults are the faults that any call can have.
var callFaults = map[string]fault{
	"hang": {"never returns, even if the call is cancelled", func(context.Context, Config) error { select {} }},
	"late": {"returns when the deadline has passed, with success", late},
	"wait": {"returns when there is a file of the configured name", wait},
	"error": {"returns an error", func(context.Context, Config) error {
		return errors.New("something is wrong")
	}},
	"refuse": {"returns a configuration error", refuse},
	"not-ready": {"returns NotReady",
		func(context.Context, Config) error { return &plugins.NotReady{Reason: "it sleeps"} }},
	"panic": {"panics in the call, which the SDK catches",
		func(context.Context, Config) error { panic("a defect of the driver") }},
	"panic-elsewhere": {"panics in another goroutine, which ends the process", func(context.Context, Config) error {
		go panic("a defect of the driver, elsewhere")
		select {}
	}},
	"crash": {"ends the process with status 7", func(context.Context, Config) error { os.Exit(7); return nil }},
	"exit":  {"ends the process with status 0", func(context.Context, Config) error { os.Exit(0); return nil }},
	"abort": {"ends the process by a signal", abort},
	"stop":  {"stops the process, as a debugger does", stop},
	"grandchild": {"starts a process that does not end, and keeps the driver's output open",
		func(context.Context, Config) error { return startProcess(false) }},
	"runaway": {"starts one that also leaves the driver's process group",
		func(context.Context, Config) error { return startProcess(true) }},
	"print": {"prints on standard output and standard error", printing},
	"raw-stdout": {"writes garbage where the handshake was written",
		func(context.Context, Config) error { return writeRaw(garbageOnStdout) }},
	"garbage": {"writes lines on standard error that are not text, or look like log lines",
		func(context.Context, Config) error { return garbage() }},
	"long-line": {"writes a line of 8 MiB on standard error",
		func(context.Context, Config) error { return longLog() }},
	"storm":       {"writes 20,000 lines on standard error; in watch and events, sends as many events", storm},
	"leak":        {"opens 200 file descriptors and never closes them", leak},
	"tidy-socket": {"removes its socket, as programs do that clean up directories", tidySocket},
}

// Run makes the named faults happen in their order, up to the first that returns an error. The
// names are separated by spaces, and are those of faults that any call can have.
func (c Config) Run(ctx context.Context, names string) error {
	for _, name := range strings.Fields(names) {
		if err := callFaults[name].do(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func late(ctx context.Context, _ Config) error {
	<-ctx.Done()
	return nil
}

func wait(ctx context.Context, f Config) error {
	plain(ctx, "waiting")
	for {
		if _, err := os.Stat(f.File); err == nil {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func plain(ctx context.Context, words string) {
	log := plugins.Logger(ctx)
	log.Info().Msg(words)
}

func refuse(context.Context, Config) error {
	return &plugins.ConfigError{Key: "faults", Problem: "this is refused"}
}

func abort(context.Context, Config) error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGABRT); err != nil {
		return err
	}
	select {}
}

// stop signals its own thread: it is stopped when that returns, with all others, and not some time
// later.
func stop(context.Context, Config) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGSTOP)
}

// startProcess starts a process that sleeps, and logs which.
func startProcess(leaves bool) error {
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "300"}, &os.ProcAttr{
		Files: []*os.File{nil, os.Stderr, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: leaves},
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stderr, "started process %d\n", p.Pid)
	return err
}

func printing(context.Context, Config) error {
	fmt.Println("printed on standard output")
	_, err := fmt.Fprintln(os.Stderr, "printed on standard error")
	return err
}

// garbage is what has crashed or confused programs that read logs: no UTF-8, NULs, wrong types in
// well-known keys, nesting, lines that forge others.
func garbage() error {
	lines := [][]byte{
		{0xff, 0xfe, 0x00, 0x80, 0x1b, '[', '2', 'J'},
		[]byte(`{"@message":1}`),
		[]byte(`{"@message":"x","@level":[],"@timestamp":{}}`),
		[]byte(`{"@message":"x","@level":"info","@timestamp":"never","level":"fatal","driver":"libvirt","pid":1}`),
		[]byte(`{"@message":"cut off`),
		bytes.Repeat([]byte(`{"a":`), 10_000),
		[]byte("1|1|unix|/nowhere|grpc|"),
	}
	for _, line := range lines {
		if _, err := os.Stderr.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

func longLog() error {
	_, err := os.Stderr.Write(append(bytes.Repeat([]byte("z"), longLine), '\n'))
	return err
}

func storm(context.Context, Config) error {
	var all bytes.Buffer
	for i := range stormLines {
		fmt.Fprintf(&all, "line %d of a storm\n", i)
	}
	_, err := os.Stderr.Write(all.Bytes())
	return err
}

func leak(context.Context, Config) error {
	for range leaked {
		if _, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0); err != nil {
			return fmt.Errorf("no more to leak: %w", err)
		}
	}
	return nil
}

// garbageOnStdout is no handshake.
const garbageOnStdout = "garbage on standard output\n\x00\xff\n"

// writeRaw writes to the true standard output, behind the back of the SDK, which keeps it to
// itself: it is the first pipe that we have besides standard error.
func writeRaw(words string) error {
	own, err := os.Readlink("/proc/self/fd/2")
	if err != nil {
		return err
	}
	const most = 100 // it was opened early
	for fd := 3; fd < most; fd++ {
		path := fmt.Sprint("/proc/self/fd/", fd)
		if to, err := os.Readlink(path); err != nil || to == own || !strings.HasPrefix(to, "pipe:") {
			continue
		}
		if f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_, err = f.WriteString(words)
			return errors.Join(err, f.Close())
		}
	}
	return errors.New("there is no standard output to write to")
}

// tidySocket removes the socket that the agent connects to.
func tidySocket(context.Context, Config) error {
	dir := os.Getenv("PLUGIN_UNIX_SOCKET_DIR")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
	}
	return err
}
