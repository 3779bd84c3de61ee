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
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// JournalSocket is where journald listens for entries with fields.
const JournalSocket = "/run/systemd/journal/socket"

// StderrIsJournal reports whether standard error is the file that JOURNAL_STREAM names. The
// variable alone does not say so: children inherit it with another standard error.
func StderrIsJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return err == nil && is
}

// Journal is an io.Writer for zerolog: each log line in JSON becomes an entry of systemd's journal
// with its fields.
//
//	level    PRIORITY, as syslog numbers it
//	message  MESSAGE
//	others   their names in capitals (driver: DRIVER); text and numbers as is, others as JSON
//
// with SYSLOG_IDENTIFIER beside them. What journald does not take goes to a second writer as it
// came, so that nothing is lost. It is safe for concurrent use.
//
// Source: systemd.io/JOURNAL_NATIVE_PROTOCOL. A line costs one datagram; one that is too large for
// a datagram goes in a sealed memory file.
type Journal struct {
	identifier string
	conn       *net.UnixConn
	fallback   io.Writer
}

// NewJournal returns a writer to the journal at a socket ([JournalSocket]) that calls itself
// identifier. What cannot be delivered goes to fallback.
func NewJournal(socket, identifier string, fallback io.Writer) (*Journal, error) {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("the journal cannot be written to: %w", err)
	}
	return &Journal{identifier: identifier, conn: conn, fallback: fallback}, nil
}

// Close closes the socket.
func (j *Journal) Close() error { return j.conn.Close() }

// Write implements io.Writer.
func (j *Journal) Write(line []byte) (int, error) {
	entry, err := encode(j.identifier, line)
	if err == nil {
		err = j.send(entry)
	}
	if err != nil {
		return j.fallback.Write(line)
	}
	return len(line), nil
}

// Field is a field of an entry. Its name has capitals, digits and underscores.
type Field struct{ Name, Value string }

// Send sends an entry of these fields and SYSLOG_IDENTIFIER. A name can be there several times: the
// entry has all of its values. What cannot be delivered is an error and does not go to the
// fallback.
func (j *Journal) Send(fields []Field) error {
	var b bytes.Buffer
	add(&b, "SYSLOG_IDENTIFIER", j.identifier)
	for _, f := range fields {
		add(&b, f.Name, f.Value)
	}
	return j.send(b.Bytes())
}

func (j *Journal) send(entry []byte) error {
	_, err := j.conn.Write(entry)
	if !errors.Is(err, unix.EMSGSIZE) && !errors.Is(err, unix.ENOBUFS) {
		return err
	}
	return j.sendFile(entry)
}

// sendFile passes an entry in a sealed memory file, as journald requires.
func (j *Journal) sendFile(entry []byte) error {
	fd, err := unix.MemfdCreate("journal-entry", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "journal-entry")
	defer func() { _ = f.Close() }()
	if _, err := f.Write(entry); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL); err != nil {
		return err
	}
	raw, err := j.conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Write(func(socket uintptr) bool {
		sent = unix.Sendmsg(int(socket), nil, unix.UnixRights(fd), nil, 0)
		return !errors.Is(sent, unix.EAGAIN)
	}); err != nil {
		return err
	}
	return sent
}

// encode converts a JSON line to a journal entry.
func encode(identifier string, line []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var fields map[string]any
	if err := dec.Decode(&fields); err != nil {
		return nil, err
	}
	level, _ := fields[zerolog.LevelFieldName].(string)
	message, _ := fields[zerolog.MessageFieldName].(string)
	var b bytes.Buffer
	add(&b, "PRIORITY", strconv.Itoa(priority(level)))
	add(&b, "SYSLOG_IDENTIFIER", identifier)
	add(&b, "MESSAGE", message)
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch name {
		// the journal has its own clock
		case zerolog.LevelFieldName, zerolog.MessageFieldName, zerolog.TimestampFieldName:
			continue
		}
		text, err := fieldText(fields[name])
		if err != nil {
			return nil, err
		}
		add(&b, fieldName(name), text)
	}
	return b.Bytes(), nil
}

func fieldText(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// maxFieldName is journald's limit.
const maxFieldName = 64

// reserved are fields that journald or the unit gives a meaning to; one of ours by that name must
// not pass for it.
var reserved = []string{
	"PRIORITY",
	"SYSLOG_IDENTIFIER",
	"SYSLOG_FACILITY",
	"SYSLOG_PID",
	"SYSLOG_TIMESTAMP",
	"SYSLOG_RAW",
	"MESSAGE",
	"MESSAGE_ID",
	"ERRNO",
	"UNIT",
	"USER_UNIT",
	"COREDUMP_UNIT",
	"OBJECT_PID",
}

// fieldName makes of a name one that journald accepts: capitals, digits and underscores, no
// underscore or digit first.
func fieldName(name string) string {
	mapped := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
	if mapped == "" || mapped[0] == '_' || mapped[0] <= '9' || slices.Contains(reserved, mapped) {
		mapped = "X_" + mapped
	}
	return mapped[:min(len(mapped), maxFieldName)]
}

// add appends a field: on one line, or preceded by its length if it contains a line break.
func add(b *bytes.Buffer, name, value string) {
	b.WriteString(name)
	if !strings.Contains(value, "\n") {
		b.WriteByte('=')
		b.WriteString(value)
		b.WriteByte('\n')
		return
	}
	b.WriteByte('\n')
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(value)))
	b.Write(size[:])
	b.WriteString(value)
	b.WriteByte('\n')
}

// priority returns syslog's number of a level.
func priority(level string) int {
	switch l, _ := zerolog.ParseLevel(level); l {
	case zerolog.TraceLevel, zerolog.DebugLevel:
		return int(journal.PriDebug)
	case zerolog.InfoLevel:
		return int(journal.PriInfo)
	case zerolog.WarnLevel:
		return int(journal.PriWarning)
	case zerolog.ErrorLevel:
		return int(journal.PriErr)
	case zerolog.FatalLevel:
		return int(journal.PriCrit)
	case zerolog.PanicLevel:
		return int(journal.PriEmerg)
	case zerolog.NoLevel, zerolog.Disabled:
	}
	return int(journal.PriNotice)
}
