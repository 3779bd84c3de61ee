// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// journald is a socket that reads entries as journald does.
type journald struct {
	t    *testing.T
	path string
	conn *net.UnixConn
}

func startJournald(t *testing.T) *journald {
	t.Helper()
	dir := testproc.SocketDir(t)
	path := filepath.Join(dir, "socket")
	conn := testproc.Try(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})).Or(t)
	t.Cleanup(func() { _ = conn.Close() })
	return &journald{t: t, path: path, conn: conn}
}

// next is the next entry, in a datagram or in a file that came with one.
func (j *journald) next() map[string]string {
	j.t.Helper()
	testproc.Check(j.t, j.conn.SetReadDeadline(time.Now().Add(testproc.Patience)))
	data, control := make([]byte, 1<<20), make([]byte, 1024)
	n, nc, _, _, err := j.conn.ReadMsgUnix(data, control)
	testproc.Check(j.t, err)
	data = data[:n]
	if nc > 0 {
		messages := testproc.Try(syscall.ParseSocketControlMessage(control[:nc])).Or(j.t)
		fds := testproc.Try(syscall.ParseUnixRights(&messages[0])).Or(j.t)
		seals, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GET_SEALS, 0)
		if err != nil || seals&unix.F_SEAL_WRITE == 0 {
			j.t.Errorf("the file is not sealed: %x, %v", seals, err)
		}
		f := os.NewFile(uintptr(fds[0]), "entry")
		if data, err = io.ReadAll(io.NewSectionReader(f, 0, 1<<30)); err != nil {
			j.t.Fatal(err)
		}
		_ = f.Close()
	}
	fields, err := parseEntry(data)
	if err != nil {
		j.t.Fatalf("%v in %q", err, data)
	}
	return fields
}

// parseEntry reads the native protocol; a field that comes twice is joined with a bar.
func parseEntry(data []byte) (map[string]string, error) {
	fields := map[string]string{}
	for len(data) > 0 {
		line, rest, found := bytes.Cut(data, []byte("\n"))
		if !found {
			return nil, errors.New("no line break at the end")
		}
		name, value, short := bytes.Cut(line, []byte("="))
		if !short {
			if len(rest) < 8 {
				return nil, errors.New("no length")
			}
			size := binary.LittleEndian.Uint64(rest)
			rest = rest[8:]
			if uint64(len(rest)) < size+1 || rest[size] != '\n' {
				return nil, fmt.Errorf("length %d does not fit", size)
			}
			value, rest = rest[:size], rest[size+1:]
		}
		if old, twice := fields[string(name)]; twice {
			value = append([]byte(old+"|"), value...)
		}
		fields[string(name)] = string(value)
		data = rest
	}
	return fields, nil
}

func TestJournalEntries(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := startJournald(t)
	var lost bytes.Buffer
	w := testproc.Try(NewJournal(server.path, "compute-agent", &lost)).Or(t)
	defer func() { _ = w.Close() }()
	log := zerolog.New(w).With().Timestamp().Logger()
	huge := strings.Repeat("a long tale, ", 100_000)
	for _, c := range []struct {
		name string
		log  func()
		want map[string]string
	}{
		{"a warning with its fields", func() {
			log.Warn().Str("driver", "libvirt").Str("node", "cn1").Int("failures", 3).
				Err(errors.New("no route to host")).Msg("The pass failed.")
		}, map[string]string{"PRIORITY": "4", "MESSAGE": "The pass failed.", "DRIVER": "libvirt", "NODE": "cn1",
			"FAILURES": "3", "ERROR": "no route to host"}},
		{"values that are neither text nor numbers", func() {
			log.Error().Strs("offenders", []string{"a", "b"}).Bool("held", true).Msg("Refused.")
		}, map[string]string{"PRIORITY": "3", "MESSAGE": "Refused.", "OFFENDERS": `["a","b"]`, "HELD": "true"}},
		{"line breaks", func() {
			log.Info().Str("stack", "a=1\nb=2\n").Msg("two\nlines")
		}, map[string]string{"PRIORITY": "6", "MESSAGE": "two\nlines", "STACK": "a=1\nb=2\n"}},
		{"names that journald does not take, or takes for its own", func() {
			log.Debug().Str("_pid", "1").Str("9a", "2").
				Str("a.b-c", "3").Str("priority", "0").Str(strings.Repeat("n", 70), "4").Send()
		}, map[string]string{"PRIORITY": "7", "MESSAGE": "", "X__PID": "1", "X_9A": "2", "A_B_C": "3",
			"X_PRIORITY": "0", strings.Repeat("N", 64): "4"}},
		{"more than a datagram holds", func() { log.Info().Str("tale", huge).Msg("Long.") },
			map[string]string{"PRIORITY": "6", "MESSAGE": "Long.", "TALE": huge}},
	} {
		c.log()
		c.want["SYSLOG_IDENTIFIER"] = "compute-agent"
		testproc.Samef(t, cmp.Diff(c.want, server.next()), "%s", c.name)
	}
	if lost.Len() > 0 {
		t.Errorf("not delivered: %s", lost.String())
	}
}

// TestJournalIsDown: lines that journald does not accept go to the fallback.
func TestJournalIsDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := startJournald(t)
	var fallback bytes.Buffer
	w := testproc.Try(NewJournal(server.path, "compute-agent", &fallback)).Or(t)
	defer func() { _ = w.Close() }()
	_ = server.conn.Close()
	log := zerolog.New(w)
	log.Info().Str("node", "cn1").Msg("Still logged.")
	testproc.Try(w.Write([]byte("no JSON\n"))).Or(t)
	testproc.Same(t, cmp.Diff("{\"level\":\"info\",\"node\":\"cn1\",\"message\":\"Still logged.\"}\nno JSON\n",
		fallback.String()))
	if _, err := NewJournal(server.path+"-none", "compute-agent", io.Discard); err == nil {
		t.Error("a missing journal was opened")
	}
}

func TestStderrIsJournal(t *testing.T) {
	var stderr syscall.Stat_t
	testproc.Check(t, syscall.Fstat(2, &stderr))
	for stream, want := range map[string]bool{
		"": false, "nonsense": false,
		fmt.Sprintf("%d:%d", stderr.Dev, stderr.Ino):   true,
		fmt.Sprintf("%d:%d", stderr.Dev, stderr.Ino+1): false,
	} {
		t.Setenv("JOURNAL_STREAM", stream)
		testproc.Equal(t, StderrIsJournal(), want, "JOURNAL_STREAM=%q: %t", stream)
	}
}

// FuzzJournalEntry: whatever is logged, journald reads the same fields.
func FuzzJournalEntry(f *testing.F) {
	f.Add("driver", "libvirt", "message")
	f.Add("_x", "a\nb=c\n", "\n")
	f.Add("", "\x00", "=")
	f.Fuzz(func(t *testing.T, name, value, message string) {
		line := testproc.Try(json.Marshal(map[string]string{name: value, "message": message, "level": "info"})).Or(t)
		var said map[string]string
		testproc.Check(t, json.Unmarshal(line, &said))
		entry := testproc.Try(encode("x", line)).Or(t)
		got, err := parseEntry(entry)
		if err != nil || got["MESSAGE"] != said["message"] || got["PRIORITY"] == "" {
			t.Fatalf("%q, %v", got, err)
		}
		for name, value := range said { // JSON has its own idea of what is no UTF-8
			if name != "message" && name != "level" && name != "time" && got[fieldName(name)] != value {
				t.Fatalf("%q: %q became %q", name, value, got[fieldName(name)])
			}
		}
	})
}

// BenchmarkJournalEncode is what a log line costs before it is sent.
func BenchmarkJournalEncode(b *testing.B) {
	line := []byte(`{"level":"info","driver":"libvirt","node":"cn1","failures":3,"error":"no route to ` +
		`host","message":"The pass failed."}`)
	b.ReportAllocs()
	for b.Loop() {
		testproc.Try(encode("compute-agent", line)).Or(b)
	}
}
