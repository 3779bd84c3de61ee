// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const askSerial = `{"remote_console":{"protocol":"serial","type":"serial"}}`

// urlOf asks for the URL of the console.
func (c *consoleHost) urlOf() string {
	c.t.Helper()
	got := c.do(member, "2.71", "POST", "/v2.1/servers/"+c.id+"/remote-consoles", askSerial)
	console, _ := got.body["remote_console"].(map[string]any)
	url, _ := console["url"].(string)
	if got.status != 200 || console["protocol"] != "serial" || console["type"] != "serial" ||
		!strings.Contains(url, "/serial-console?token=") {
		c.t.Fatalf("asking for a console: got %d %s, want the URL of a serial console", got.status, got.text)
	}
	return url
}

// TestRemoteConsoles: Nova's bodies, and its refusals of what there is not.
func TestRemoteConsoles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newConsoleHost(t, plugins.AbilityConsole)
	first, second := c.urlOf(), c.urlOf()
	if first == second || !strings.HasPrefix(first, "http://compute/serial-console?token=") || len(first) < 80 {
		t.Errorf("%s, %s", first, second)
	}
	path := "/v2.1/servers/" + c.id
	for _, tt := range []struct {
		version, path, body string
		status              int
		text                string
	}{
		{"2.1", "/action", `{"os-getSerialConsole":{"type":"serial"}}`, 200, "http://compute/serial-console?token="},
		{"2.5", "/action", `{"os-getSerialConsole":{"type":"serial"}}`, 200, `"type": "serial"`},
		{"2.5", "/action", `{"os-getVNCConsole":{"type":"novnc"}}`, 400, "Unavailable console type novnc."},
		{"2.5", "/action", `{"os-getSPICEConsole":{"type":"spice-html5"}}`, 400,
			"Unavailable console type spice-html5."},
		{"2.5", "/action", `{"os-getSerialConsole":{"type":"novnc"}}`, 400, "novnc"},
		{"2.5", "/action", `{"os-getSerialConsole":{}}`, 400, "type"},
		{"2.6", "/action", `{"os-getSerialConsole":{"type":"serial"}}`, 400, "remote-consoles"},
		{"2.5", "/remote-consoles", askSerial, 404, "could not be found"},
		{"2.6", "/remote-consoles", askSerial, 200, "serial"},
		{"2.6", "/remote-consoles", `{"remote_console":{"protocol":"vnc","type":"novnc"}}`, 400,
			"Unavailable console type novnc."},
		{"2.6", "/remote-consoles", `{"remote_console":{"protocol":"rdp","type":"rdp-html5"}}`, 400,
			"Unavailable console type rdp."},
		{"2.7", "/remote-consoles", `{"remote_console":{"protocol":"mks","type":"webmks"}}`, 400, "mks"},
		{"2.8", "/remote-consoles", `{"remote_console":{"protocol":"mks","type":"webmks"}}`, 400,
			"Unavailable console type webmks."},
		{"2.6", "/remote-consoles", `{"remote_console":{"protocol":"serial"}}`, 400, "type"},
	} {
		got := c.do(member, tt.version, "POST", path+tt.path, tt.body)
		if got.status != tt.status || !strings.Contains(strings.ReplaceAll(got.text, `":"`, `": "`), tt.text) {
			t.Errorf("%s %s: %d %s", tt.version, tt.body, got.status, got.text)
		}
	}
	c.api.options.ConsoleURL = "https://consoles.example.org/serial-console/"
	c.api.setDeps()
	if url := c.urlOf(); !strings.HasPrefix(url, "https://consoles.example.org/serial-console?token=") {
		t.Error(url)
	}
}

// echoes sends back what comes, until that is an x.
func echoes(_ cellwire.StreamOffer, end *cellwire.Stream) {
	for b := make([]byte, 100); ; {
		n, err := end.Read(b)
		if err != nil || string(b[:n]) == "x" {
			_ = end.CloseWrite()
			return
		}
		_, _ = end.Write(b[:n])
	}
}

// TestConsoleProxy: the page and the websocket of a URL, for as long as its token is good, and only
// for pages of this host.
func TestConsoleProxy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newConsoleHost(t, plugins.AbilityConsole)
	c.serves(echoes)
	api := httptest.NewServer(c.api)
	t.Cleanup(api.Close)
	t.Cleanup(c.api.CloseConsoles)
	_, token, _ := strings.Cut(c.urlOf(), "?")
	url := api.URL + "/serial-console?" + token
	ctx, cancel := context.WithTimeout(t.Context(), testproc.Patience)
	defer cancel()
	dial := func(url string, header http.Header) (*websocket.Conn, int) {
		t.Helper()
		socket, resp, err := websocket.Dial(ctx, url,
			&websocket.DialOptions{Subprotocols: []string{"binary"}, HTTPHeader: header})
		if resp == nil {
			t.Fatal(err)
		}
		if err == nil {
			t.Cleanup(func() { _ = socket.CloseNow() })
		}
		return socket, resp.StatusCode
	}

	page := testproc.Try(http.Get(url)).Or(t)
	text, err := io.ReadAll(page.Body)
	_ = page.Body.Close()
	policy := page.Header.Get("Content-Security-Policy")
	if err != nil || page.StatusCode != http.StatusOK || !strings.Contains(string(text), "<!doctype html>") ||
		strings.Contains(policy, "unsafe") ||
		!strings.Contains(policy, "default-src 'none'") ||
		page.Header.Get("Cache-Control") != "no-store" || page.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the page of the console: got %d %v %v", page.StatusCode, page.Header, err)
	}
	if posted, err := http.Post(url, "text/plain", nil); err != nil ||
		posted.StatusCode != http.StatusMethodNotAllowed || posted.Body.Close() != nil {
		t.Errorf("POST: %v, %v", posted, err)
	}

	for range 2 { // a token is good until it expires
		socket, status := dial(url, http.Header{"Origin": {api.URL}})
		if status != 101 || socket.Subprotocol() != "binary" {
			t.Fatalf("the websocket of the console: got %d, want 101", status)
		}
		for _, typed := range []string{"hello", "\x00\xff"} {
			testproc.Check(t, socket.Write(ctx, websocket.MessageBinary, []byte(typed)))
			if kind, got, err := socket.Read(ctx); err != nil ||
				kind != websocket.MessageBinary || string(got) != typed {
				t.Errorf("the echo of %q: got %q, %v", typed, got, err)
			}
		}
		testproc.Eventually(t, testproc.Patience, "the request is over while its console is open",
			testproc.True(func() bool { return c.api.InFlight() == 0 }))
		testproc.Check(t, socket.Write(ctx, websocket.MessageText, []byte("x")))
		if _, _, err := socket.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("the guest is off: %v", err)
		}
	}
	for origin, want := range map[string]int{
		"https://evil.example.org": 403, strings.Replace(api.URL, "http", "https", 1): 403,
		"null": 403, "http://127.0.0.1": 101,
	} {
		if _, status := dial(url, http.Header{"Origin": {origin}}); status != want {
			t.Errorf("origin %s: %d, want %d", origin, status, want)
		}
	}
	for _, bad := range []string{"?token=", "?token=x", "", "?" + token + "x"} {
		if _, status := dial(api.URL+"/serial-console"+bad, nil); status != 401 {
			t.Errorf("the websocket with the token %q: got %d, want 401", bad, status)
		}
	}
	c.serves(func(_ cellwire.StreamOffer, end *cellwire.Stream) {
		end.Abort(&cellwire.Error{Status: 409, Code: cellwire.CodeConflict,
			Message: "Instance x: its serial console is in use" + strings.Repeat("é", 200)})
	})
	socket, _ := dial(url, nil)
	if _, _, err := socket.Read(ctx); websocket.CloseStatus(err) != websocket.StatusInternalError ||
		!strings.Contains(err.Error(), "is in use") {
		t.Errorf("a console in use: %v", err)
	}
	c.serves(echoes)
	open, _ := dial(url, nil)
	c.api.CloseConsoles()
	if _, _, err := open.Read(ctx); err == nil {
		t.Error("a console outlives the API")
	}
	if _, status := dial(url, nil); status != 503 {
		t.Errorf("the API stops: %d", status)
	}
	testproc.Check(t, c.store.SetQueued(ctx, map[string]bool{c.id: true}))
	if _, status := dial(url, nil); status != 401 {
		t.Errorf("a deleted server: %d", status)
	}
	if strings.Contains(c.logged.String(), strings.TrimPrefix(token, "token=")) {
		t.Error("the token is in the log")
	}
}

// TestConsoleTokensExpire: a URL is good for as long as the configuration says.
func TestConsoleTokensExpire(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newConsoleHost(t, plugins.AbilityConsole)
	c.api.options.TokenTTL = time.Hour
	c.api.setDeps()
	_, token, _ := strings.Cut(c.urlOf(), "token=")
	for after, found := range map[time.Duration]bool{59 * time.Minute: true, 61 * time.Minute: false} {
		c.clock = time.Now().Add(after)
		if got, err := c.store.ConsoleToken(t.Context(), token); (err == nil) != found || found && got != c.id {
			t.Errorf("after %v: %q, %v", after, got, err)
		}
	}
}
