// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// The policies of consoles.
var (
	ruleConsoleOutput  = api.Rule{Name: "os_compute_api:os-console-output", Default: api.Members}
	ruleRemoteConsoles = api.Rule{Name: "os_compute_api:os-remote-consoles", Default: api.Members}
)

// The schemas of answers.
var (
	consoleAnswer = api.In("console", apidoc.Whole(apidoc.Members("type", api.SchemaText,
		"url", apidoc.Described(api.SchemaText, "An URL for browsers, good for some minutes."))))
	remoteConsoleAnswer = api.In(
		"remote_console", apidoc.Whole(apidoc.Members("protocol", api.SchemaText, "type", api.SchemaText,
			"url", apidoc.Described(api.SchemaText, "An URL for browsers, good for some minutes."))))
	consoleOutputAnswer = api.In("output", apidoc.Described(api.SchemaText, "The end of the log."))
)

const noteConsole = "The URL is for a browser: its page opens a websocket on the same path. Whether the host can " +
	"show the console, the page says."

// What the reference says about consoles.
var (
	aboutCreateRemoteConsole = api.About{Summary: "Makes the URL of a console", Rules: api.Rules(ruleRemoteConsoles),
		Notes: []string{"The only console is the serial one: `protocol` and `type` are `serial`. All others are " +
			"refused with 400. " + noteConsole},
		Answers: api.OK("The URL.", apidoc.Always(remoteConsoleAnswer)), Failures: consoleFailures}
	aboutConsoleOutput = api.About{
		Summary: "Shows the end of what a guest wrote to its serial console: so many lines of its last 100 KiB",
		Rules:   api.Rules(ruleConsoleOutput),
		Notes:   []string{"`length` is the number of lines; all for -1, null and none."},
		Answers: api.OK("The output.", apidoc.Always(consoleOutputAnswer)),
		Failures: append(serverview.Changing[:3:3],
			api.Failure(http.StatusNotImplemented, "The host keeps no console logs."),
			api.Failure(http.StatusServiceUnavailable, "The agent of the host cannot be asked now.")),
	}
	aboutSerialConsole = api.About{
		Summary:  "Makes the URL of a serial console",
		Notes:    []string{noteConsole},
		Rules:    api.Rules(ruleRemoteConsoles),
		Answers:  api.OK("The URL.", apidoc.Always(consoleAnswer)),
		Failures: consoleFailures,
	}
	aboutVNCConsole = api.About{Summary: "Asks for a graphical console: there are none",
		Rules: api.Rules(ruleRemoteConsoles), Failures: noConsole}
	aboutSPICEConsole = api.About{Summary: "Asks for a graphical console: there are none",
		Rules: api.Rules(ruleRemoteConsoles), Failures: noConsole}

	consoleFailures = append(serverview.Changing[:3:3], api.Failure(http.StatusBadRequest, "There is no such console."))
	noConsole       = []apidoc.Failure{serverview.NoServer, api.Failure(http.StatusBadRequest, "Always.")}
)
