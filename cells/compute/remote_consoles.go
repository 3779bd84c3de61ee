// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// remoteConsoleRoutes is the call for the URL of a console.
func (a *API) remoteConsoleRoutes() []route {
	return []route{
		{
			method: "POST",
			path:   "/v2.1/servers/{id}/remote-consoles",
			body:   remoteConsoleSchemas,
			handle: a.createRemoteConsole,
			since:  vRemoteConsoles,
			about:  &aboutCreateRemoteConsole,
		},
	}
}

// The microversions of consoles.
const (
	vRemoteConsoles Version = 6 // one call instead of actions
	vMKSConsoles    Version = 8
)

// consoleSerial is the only type of consoles that there is, and its protocol.
const consoleSerial = "serial"

// consolePath is that of the page and of the websocket of serial consoles.
const consolePath = "/serial-console"

// remoteConsoleSchemas are the bodies of POST /servers/{id}/remote-consoles.
var remoteConsoleSchemas = func() schemaSteps {
	body := func(protocols, types []any) js.Schema {
		return js.ClosedObject(js.Properties{{Name: "remote_console", Schema: js.ClosedObject(js.Properties{
			{Name: "protocol", Schema: js.Schema{js.Type("string"), js.Enum(protocols...)}},
			{Name: "type", Schema: js.Schema{js.Type("string"), js.Enum(types...)}},
		}, "protocol", "type")}}, "remote_console")
	}
	protocols := []any{"vnc", "spice", "serial", "rdp"}
	types := []any{"novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5"}
	return schemaSteps{
		{vMKSConsoles, body(append(protocols[:len(protocols):len(protocols)], "mks"), append(types[:len(types):len(types)], "webmks"))},
		{vRemoteConsoles, body(protocols, types)},
	}
}()

// createRemoteConsole answers POST /servers/{id}/remote-consoles.
func (a *API) createRemoteConsole(x *exchange) error {
	body, err := x.checked()
	if err != nil {
		return err
	}
	m, err := a.mapping(x, x.param("id"))
	if err != nil {
		return err
	}
	asked := memberObject(body, "remote_console")
	protocol, kind := memberString(asked, "protocol"), memberString(asked, "type")
	unavailable := kind
	if protocol == "rdp" {
		unavailable = protocol
	}
	url, err := a.consoleURL(x, m, protocol == consoleSerial && kind == consoleSerial, unavailable)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, new(object).add("remote_console", new(object).add("protocol", protocol).add("type", kind).add("url", url)))
}

// consoleAction is the action of before there was one call for all consoles.
func (a *API) consoleAction(what *about, types ...any) action {
	return action{
		about:   what,
		until:   vRemoteConsoles - 1,
		instead: "POST /servers/{server_id}/remote-consoles",
		schemas: once(js.ClosedObject(js.Properties{{Name: "type", Schema: js.Schema{js.Type("string"), js.Enum(types...)}}}, "type")),
		do: a.onServer(func(x *exchange, m apidb.Mapping, argument *js.Object) error {
			kind := memberString(argument, "type")
			url, err := a.consoleURL(x, m, kind == consoleSerial, kind)
			if err != nil {
				return err
			}
			return x.json(http.StatusOK, new(object).add("console", new(object).add("type", kind).add("url", url)))
		}),
	}
}

// consoleURL makes the URL of a server's console, if it is of a type that there is. Cost: three
// reads of the API database and a write, and one request to one cell.
func (a *API) consoleURL(x *exchange, m apidb.Mapping, is bool, kind string) (string, error) {
	if err := x.allow(ruleRemoteConsoles, m.ProjectID); err != nil {
		return "", err
	}
	if !is {
		return "", badRequest("Unavailable console type %s.", kind)
	}
	server, _, err := a.hosted(x, m)
	switch {
	case err != nil:
		return "", err
	case server.Host == "":
		return "", conflict("Instance %s is not ready", server.UUID)
	}
	token := rand.Text() + rand.Text() // 260 bits
	if err := a.store.AddConsoleToken(x.ctx(), token, server.UUID, a.service.Now().Add(a.options.TokenTTL)); err != nil {
		return "", err
	}
	return a.consoleBase(x) + "?token=" + token, nil
}

// consoleBase is what the URLs of consoles begin with.
func (a *API) consoleBase(x *exchange) string {
	if base := a.options.ConsoleURL; base != "" {
		return strings.TrimSuffix(base, "/")
	}
	return x.base() + consolePath
}
