// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// The microversions of consoles.
const (
	vRemoteConsoles api.Version = 6 // one call instead of actions
	vMKSConsoles    api.Version = 8
)

// consoleSerial is the only type of consoles that there is, and its protocol.
const consoleSerial = "serial"

// ConsolePath is the path of the page and of the websocket of serial consoles.
const ConsolePath = "/serial-console"

// remoteConsoleSchemas are the bodies of POST /servers/{id}/remote-consoles.
var remoteConsoleSchemas = func() api.SchemaSteps {
	oneOf := func(names ...any) js.Schema { return js.Schema{js.Type("string"), js.Enum(names...)} }
	return api.Fields{
		{Name: "protocol", Until: vMKSConsoles - 1, Schema: oneOf("vnc", "spice", "serial", "rdp")},
		{Name: "protocol", Since: vMKSConsoles, Schema: oneOf("vnc", "spice", "serial", "rdp", "mks")},
		{Name: "type", Until: vMKSConsoles - 1,
			Schema: oneOf("novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5")},
		{Name: "type", Since: vMKSConsoles,
			Schema: oneOf("novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5", "webmks")},
	}.Steps(func(_ api.Version, members js.Properties) js.Schema {
		console := js.ClosedObject(members, "protocol", "type")
		return js.ClosedObject(js.Properties{{Name: "remote_console", Schema: console}}, "remote_console")
	})
}()

func (d *Deps) consoleRoutes() []api.Route {
	return []api.Route{{Method: "POST", Path: "/v2.1/servers/{id}/remote-consoles", Body: remoteConsoleSchemas,
		Handle: d.createRemoteConsole, Since: vRemoteConsoles, Rules: []api.Rule{ruleRemoteConsoles}}}
}

// createRemoteConsole answers POST /servers/{id}/remote-consoles.
func (d *Deps) createRemoteConsole(x *api.Exchange) error {
	m, err := d.Servers.Mapping(x, x.Param("id"))
	if err != nil {
		return err
	}
	asked := api.MemberObject(x.Asked, "remote_console")
	protocol, kind := api.MemberString(asked, "protocol"), api.MemberString(asked, "type")
	unavailable := kind
	if protocol == "rdp" {
		unavailable = protocol
	}
	url, err := d.consoleURL(x, m, protocol == consoleSerial && kind == consoleSerial, unavailable)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).
		Add("remote_console", new(api.Object).Add("protocol", protocol).Add("type", kind).Add("url", url)))
}

// consoleAction is an action that is older than the one call for all consoles.
func (d *Deps) consoleAction(types ...any) api.Action {
	return api.Action{
		Rules:   []api.Rule{ruleRemoteConsoles},
		Until:   vRemoteConsoles - 1,
		Instead: "POST /servers/{server_id}/remote-consoles",
		Schemas: api.Always(
			js.ClosedObject(js.Properties{{Name: "type", Schema: js.Schema{js.Type("string"), js.Enum(types...)}}},
				"type")),
		Do: d.Servers.Action(func(x *api.Exchange, m apidb.Mapping, argument *js.Object) error {
			kind := api.MemberString(argument, "type")
			url, err := d.consoleURL(x, m, kind == consoleSerial, kind)
			if err != nil {
				return err
			}
			return x.JSON(http.StatusOK, new(api.Object).
				Add("console", new(api.Object).Add("type", kind).Add("url", url)))
		}),
	}
}

// consoleURL makes the URL of a server's console, if it is of a type that there is. Cost: three
// reads of the API database and a write, and one request to one cell.
func (d *Deps) consoleURL(x *api.Exchange, m apidb.Mapping, is bool, kind string) (string, error) {
	if err := x.Allow(ruleRemoteConsoles, m.ProjectID); err != nil {
		return "", err
	}
	if !is {
		return "", osapi.BadRequest("Unavailable console type %s.", kind)
	}
	server, _, err := d.hosted(x, m)
	switch {
	case err != nil:
		return "", err
	case server.Host == "":
		return "", api.Conflict("Instance %s is not ready", server.UUID)
	}
	token := rand.Text() + rand.Text() // 260 bits
	if err := d.Store.AddConsoleToken(x.Context(), token,
		server.UUID, x.Service.Now().Add(d.TokenTTL)); err != nil {
		return "", err
	}
	return d.consoleBase(x) + "?token=" + token, nil
}

// consoleBase is what the URLs of consoles begin with.
func (d *Deps) consoleBase(x *api.Exchange) string {
	if base := d.ConsoleURL; base != "" {
		return strings.TrimSuffix(base, "/")
	}
	return x.LinkBase() + ConsolePath
}
