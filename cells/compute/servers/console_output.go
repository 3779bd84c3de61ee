// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/cells/gather"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// maxConsoleOutput is how much of the end of a console log is shown, in bytes, as in Nova.
const maxConsoleOutput = 100 << 10

// consoleOutputSchema is the argument of os-getConsoleOutput.
var consoleOutputSchema = js.ClosedObject(js.Properties{
	{Name: "length", Schema: js.Schema{js.Type("integer", "string", "null"), js.Pattern("^-?[0-9]+$"), js.Minimum(-1)}},
})

// consoleOutput answers with the end of what a guest wrote to its serial console: as many lines as
// are asked for, all for -1, null and none. Cost: two reads of the API database, two requests to
// one cell, and one call of the host's driver.
func (d *Deps) consoleOutput(x *api.Exchange, m apidb.Mapping, argument *js.Object) error {
	if err := x.Allow(ruleConsoleOutput, m.ProjectID); err != nil {
		return err
	}
	server, client, err := d.hosted(x, m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(x.Context())
	defer cancel()
	log, err := readLog(ctx, client, server.UUID)
	if err != nil {
		return consoleFault(err, server.UUID)
	}
	lines := int64(-1)
	if v, _ := argument.Get("length"); v != nil {
		lines = api.MemberInt(argument, "length", -1)
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("output", printableLog(lastLines(log, lines))))
}

// readLog reads the end of the console log of a server.
func readLog(ctx context.Context, client *cellclient.Client, uuid string) (string, error) {
	stream, err := client.OpenStream(ctx, uuid, cellwire.PurposeConsoleLog, maxConsoleOutput)
	if err != nil {
		return "", err
	}
	defer func() { _ = stream.Close() }() // it was only read
	if err := stream.CloseWrite(); err != nil {
		return "", err
	}
	log, err := io.ReadAll(io.LimitReader(stream, maxConsoleOutput))
	return string(log), err
}

// lastLines is the end of a text; all of it if lines is negative.
func lastLines(text string, lines int64) string {
	if lines < 0 {
		return text
	}
	if lines == 0 {
		return ""
	}
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] == '\n' {
			if lines--; lines == 0 {
				return text[i+1:]
			}
		}
	}
	return text
}

// printableLog is a log without the control characters that Nova removes, too, and in UTF-8.
func printableLog(log string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' && c != '\t' && c != '\n' {
			return -1
		}
		return c
	}, strings.ToValidUTF8(log, "�"))
}

// hosted is a server that its host may be asked about, and the client of its cell. One without a
// host is refused (409).
func (d *Deps) hosted(x *api.Exchange, m apidb.Mapping) (server cellwire.Server, client *cellclient.Client, err error) {
	cell, building, err := d.Servers.Placed(x, m)
	switch {
	case err != nil:
		return server, nil, err
	case building != nil:
		return server, nil, api.Conflict("Instance %s is not ready", m.InstanceUUID)
	}
	server, err = gather.One(x.Context(), d.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) {
			client = c
			return c.Server(ctx, m.InstanceUUID)
		})
	switch {
	case err != nil:
		return server, nil, serverview.Fault(err, "console", m.InstanceUUID)
	case server.Deleted, server.Hidden:
		return server, nil, serverview.NotFound(m.InstanceUUID)
	}
	return server, client, nil
}

// consoleFault is the answer for a stream that could not be opened or broke: what the host cannot
// do is 501, as in Nova, and what may be better in a moment is 503. It says nothing about the cell.
func consoleFault(err error, uuid string) error {
	var refusal *cellwire.Error
	if !errors.As(err, &refusal) {
		refusal = &cellwire.Error{}
	}
	switch {
	case refusal.Code == cellwire.CodeUnable:
		return osapi.Errorf(http.StatusNotImplemented, "The requested functionality is not supported.").Because(err)
	case refusal.Status == http.StatusConflict:
		return api.Conflict("%s", osapi.Shortened(refusal.Message)).Because(err)
	case refusal.Status == http.StatusNotFound:
		return serverview.NotFound(uuid).Because(err)
	case refusal.Status == http.StatusServiceUnavailable:
		return osapi.Unavailable("%s", osapi.Shortened(refusal.Message)).Because(err)
	}
	return osapi.Unavailable("The host of instance %s cannot be asked for its console now.", uuid).Because(err)
}
