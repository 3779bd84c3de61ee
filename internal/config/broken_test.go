// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestBrokenFiles: each file of testdata/broken is wrong in its own way; the message that people
// get is the golden file beside it.
func TestBrokenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.toml")
	if err != nil || len(files) < 10 {
		t.Fatalf("broken files: %d, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			cfg, err := Load(machine(file))
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("Load: %v, want ErrInvalid", err)
			}
			if cfg == nil {
				t.Fatal("no Config beside the error")
			}
			var all Problems
			if !errors.As(err, &all) {
				t.Fatalf("%T is not Problems", err)
			}
			for _, p := range all {
				if p.Source.Kind == FromFile && p.Source.Line == 0 {
					t.Errorf("no line: %v", p)
				}
				if p.Hint == "" {
					t.Errorf("no hint: %v", p)
				}
			}
			if strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("the message holds the secret:\n%v", err)
			}
			golden.Text(t, strings.TrimSuffix(file, ".toml")+".golden", err.Error()+"\n")
		})
	}
}

func TestBrokenEnvironment(t *testing.T) {
	opts := machine(write(t, map[string]string{"compute-agent.toml": "[drivers.libvirt]\n"}),
		"COMPUTE_AGENT_TRACKER_UPDATE_RESOURCES_INTERVALL=60s",
		"COMPUTE_AGENT_TRACKER_PASS_DEADLINE=60",
		"COMPUTE_AGENT_PLACEMENT_CLIENT_RETRIES=many",
		"COMPUTE_AGENT_PLACEMENT_CLIENT_USE_PROXY=yes",
		"COMPUTE_AGENT_PLACEMENT_CLIENT_TOKEN_FILE=gAAAA/s3cr3t+token",
		"COMPUTE_AGENT_CORS_ALLOWED_ORIGIN=[1]",
		"COMPUTE_AGENT_DRIVERS_NOSUCH_SHA256=00",
		"COMPUTE_AGENT_DRIVERS_LIBVIRT_ENV={LD_PRELOAD = \"x\"}",
		"COMPUTE_AGENT_DRIVERS_LIBVIRT_CONFIG=uri",
		"COMPUTE_AGENT_DRIVERS_LIBVIRT_ENABLED=1",
		"COMPUTE_AGENT_WHATEVER=1",
		"OTHER_VARIABLE=1",
	)
	opts.Overrides = []Override{{Key: "agent.nothing", Value: "1", Flag: "--nothing"},
		{Key: "agent.state_dir", Value: "here", Flag: "--state-dir"}}
	_, err := Load(opts)
	if !errors.Is(err, ErrInvalid) {
		t.Fatalf("Load: %v", err)
	}
	if strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("the message holds the secret:\n%v", err)
	}
	golden.Text(t, "testdata/environment.golden", err.Error()+"\n")
}

// TestValidate: Validate is for those who change a Config by hand, too.
func TestValidate(t *testing.T) {
	c := mustLoad(t, machine(write(t, map[string]string{"compute-agent.toml": ""})))
	for name, tc := range map[string]struct {
		change func(*Config)
		key    string
	}{
		"socket path": {func(c *Config) { c.Agent.RuntimeDir = "/" + strings.Repeat("x", 61) }, "agent.runtime_dir"},
		"client key":  {func(c *Config) { c.PlacementClient.KeyFile = "/k" }, "placement_client.key_file"},
		"back-off":    {func(c *Config) { c.Tracker.RetryBackoffMax = 1 }, "tracker.retry_backoff_max"},
	} {
		changed := *c
		tc.change(&changed)
		var all Problems
		if err := changed.Validate(); !errors.As(err, &all) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var keys []string
		for _, p := range all {
			keys = append(keys, p.Key)
		}
		testproc.Samef(t, cmp.Diff([]string{tc.key}, keys), "%s: keys", name)
	}
	fits := *c
	fits.Agent.RuntimeDir = "/" + strings.Repeat("x", 60)
	testproc.NoErrorf(t, fits.Validate(), "61 bytes fit")
}

// TestNoauthIsForThisMachine: a server without authentication is refused at load on an address
// where others can connect. What a name resolves to is known when it starts.
func TestNoauthIsForThisMachine(t *testing.T) {
	c := mustLoad(t, machine(write(t, map[string]string{"compute-agent.toml": ""})))
	for listen, refused := range map[string]bool{
		"127.0.0.1:8780": false, "127.0.0.2:8780": false, "[::1]:8780": false, "[::ffff:127.0.0.1]:8780": false,
		"localhost:8780": false, "host.example:8780": false,
		"0.0.0.0:8780": true, "[::]:8780": true, ":8780": true, "192.0.2.1:8780": true, "[fe80::1%eth0]:8780": true,
		"unix:///run/cell.sock": false,
	} {
		for _, auth := range []string{AuthNoauth, AuthToken} {
			changed := *c
			changed.Cell.Listen, changed.Cell.Auth,
				changed.ComputeAPI.Listen, changed.ComputeAPI.Auth = listen, auth, listen, auth
			if auth == AuthToken {
				changed.Cell.TokenFile, changed.ComputeAPI.TokenFile = "/t", "/t"
			}
			var all Problems
			if err := changed.Validate(); err != nil && !errors.As(err, &all) {
				t.Fatal(err)
			}
			var keys, want []string
			for _, p := range all {
				keys = append(keys, p.Key)
			}
			if refused && auth == AuthNoauth {
				want = []string{"cell.listen", "compute_api.listen"}
			}
			testproc.Samef(t, cmp.Diff(want, keys), "%s on %s: keys", auth, listen)
		}
	}
}

// FuzzLoad: whatever a file holds, Load ends, does not panic, and either finds nothing wrong or
// explains itself; what it accepts can be printed and compared.
func FuzzLoad(f *testing.F) {
	files := testproc.Try(filepath.Glob("testdata/broken/*.toml")).Or(f)
	for _, name := range append(files, "testdata/defaults.toml") {
		data := testproc.Try(os.ReadFile(name)).Or(f)
		f.Add(string(data))
	}
	f.Add("[drivers.x.config]\na.b.c = [{d = 1979-05-27}, {e = nan}]\n")
	f.Add("drivers = {x = {config = {y = [[[1]]]}}}")
	f.Add("[[agent]]\nhost = 1")
	f.Add("\"\" = 1\n[\"a.b\"]\n")
	f.Fuzz(func(t *testing.T, content string) {
		doc, bad := parse("fuzz.toml", []byte(content))
		if bad != nil {
			if bad.Error() == "" || !errors.Is(bad, ErrInvalid) {
				t.Errorf("a problem without a word: %#v", bad)
			}
			return
		}
		l := &loader{cfg: &Config{Drivers: map[string]*Driver{}, sources: map[string]Source{}}}
		l.applyDocument(doc)
		for _, p := range l.problems {
			if p.Source.Line == 0 || p.What == "" {
				t.Errorf("a problem without a place: %v", p)
			}
		}
		for _, d := range l.cfg.Drivers {
			if _, err := d.ConfigJSON(); err != nil {
				t.Errorf("accepted, but not JSON: %v", err)
			}
		}
		if changes := Diff(l.cfg, l.cfg); len(changes) != 0 {
			t.Errorf("differs from itself: %v", changes)
		}
	})
}
