// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// CommandPath is where the admin socket of a process runs commands on its database.
const CommandPath = "/command"

// maxCommand bounds a request, in bytes.
const maxCommand = 1 << 20

// Command is a command on a database that another process has open: words of a command line, and
// what came of it.
type Command struct {
	Words []string `json:"words,omitempty"`
	// User is the user of the operating system who runs the command, as the command says: only root
	// and the user of the process can read the key of the socket.
	User string `json:"user,omitempty"`
	Out  string `json:"out,omitempty"`
	Err  string `json:"err,omitempty"`
	Code int    `json:"code"`
}

// ServeCommand answers requests by running commands. run returns the exit code.
func ServeCommand(run func(ctx context.Context, words []string, stdout, stderr io.Writer) int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c Command
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand)).Decode(&c); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		noDeadline(w) // a migration takes as long as it takes
		var out, problems bytes.Buffer
		code := run(context.WithValue(r.Context(), userKey{}, c.User), c.Words, &out, &problems)
		w.Header().Set("Content-Type", "application/json")
		// a client that went away needs nothing
		_ = json.NewEncoder(w).Encode(Command{Out: out.String(), Err: problems.String(), Code: code})
	})
}

// RunAt has the process at an admin socket run a command, writes what it says, and returns its exit
// code.
func RunAt(ctx context.Context, socket string, words []string, stdout, stderr io.Writer) (code int, err error) {
	body, err := json.Marshal(Command{Words: words, User: CommandUser(ctx)})
	if err != nil {
		return 0, err
	}
	answer, err := request(ctx, socket, http.MethodPost, CommandPath, body)
	if err != nil {
		return 0, fmt.Errorf("ask the process at %s: %w", socket, err)
	}
	defer func() { _ = answer.Close() }()
	var done Command
	if err := json.NewDecoder(answer).Decode(&done); err != nil {
		return 0, fmt.Errorf("ask the process at %s: %w", socket, err)
	}
	_, _ = io.WriteString(stdout, done.Out)
	_, _ = io.WriteString(stderr, done.Err)
	return done.Code, nil
}

const (
	// lockTime is how long RunWhereOpen waits for another command, or a starting service, to unlock
	// a database.
	lockTime = 5 * time.Second
	// lockPause is the time between two attempts.
	lockPause = 50 * time.Millisecond
)

// RunWhereOpen runs a command in the process that has the database of a name open. It runs direct,
// which opens it. A database file belongs to one process: if a service has it open, it runs ask,
// with the admin socket of the service.
func RunWhereOpen(ctx context.Context, name string, direct func() error, ask func(socket string) error) error {
	database, err := engine.ParseAddress(name)
	if err != nil {
		return err
	}
	if database.Shared() { // several processes can use it
		return direct()
	}
	deadline, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	for {
		err := direct()
		if !errors.Is(err, engine.ErrLocked) {
			return err
		}
		if h := HolderOf(database.Path); h.Socket != "" {
			return ask(h.Socket)
		}
		if !wait.For(deadline, lockPause) {
			return err
		}
	}
}

type userKey struct{}

// CommandUser is the user who runs a command: the one of the request that it came with, or else of
// this process. Beside root it names who became root with sudo.
func CommandUser(ctx context.Context) string {
	if name, ok := ctx.Value(userKey{}).(string); ok {
		return name
	}
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if by := os.Getenv("SUDO_USER"); by != "" {
		name += " (sudo by " + by + ")"
	}
	return name
}
