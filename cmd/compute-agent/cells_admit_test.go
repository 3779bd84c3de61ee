// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAdmitHost: a person states at Placement what a host may report, and sees it. The names of
// hosts that the compute API does not know are refused, unless --unknown takes them.
func TestAdmitHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := testproc.Try(placement.New(t.Context(), placement.Config{
		StateDir: t.TempDir(), Auth: placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop(),
		Placement: api.Options{HostCapacityFactor: 2, HostAdmissionWindow: time.Hour},
	})).Or(t)
	defer func() { testproc.NoError(t, server.Close()) }()
	// A Placement that has fewer microversions than this program knows is served all the same.
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked := r.Header.Get(wire.HeaderVersion); asked != wire.Version(wire.ErrorCodes).HeaderValue() {
			http.Error(w, "asks for "+asked, http.StatusNotAcceptable)
			return
		}
		server.Handler().ServeHTTP(w, r)
	}))
	defer web.Close()
	dir := t.TempDir()
	testproc.Try(pki.InitAuthority(filepath.Join(dir, "ca"), "ca", time.Now())).Or(t)
	configured := filepath.Join(dir, "api.toml")
	write := func(url string) {
		text := fmt.Appendf(nil,
			"[enrolment]\nlisten = \"127.0.0.1:1\"\nca_dir = %q\n[placement_client]\nurl = %q\nauth = \"noauth\"\n",
			filepath.Join(dir, "ca"), url)
		testproc.Check(t, os.WriteFile(configured, text, 0o600))
	}
	write(web.URL)
	run := func(want int, parts []string, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		args = append(append([]string{"cells", "manage"}, args...), "--config", configured, "--state-dir", dir)
		if code := execute(t.Context(), args, &out, &out); code != want {
			t.Errorf("%v ends with %d:\n%s", args, code, &out)
		}
		for _, part := range parts {
			testproc.Contains(t, out.String(), part, "%v does not say %q:\n%s", args, part)
		}
		return out.String()
	}
	run(cli.ExitFailed, []string{"no API database"}, "admit-host", "h998", "--class", "VCPU=1")
	run(cli.ExitDone, []string{"Host h998 may report"}, "admit-host", "h998", "--class", "VCPU=1", "--unknown")
	run(cli.ExitFailed, []string{"no API database"}, "list") // and none was made
	run(cli.ExitDone, nil, "create", "--name", "cell1", "--url", "http://127.0.0.1:1")
	run(cli.ExitDone, nil, "add-host", "h417", "--cell", "cell1")
	run(cli.ExitProtect, []string{"did you mean h417?", "--unknown"}, "admit-host", "h471", "--class", "VCPU=1")
	run(cli.ExitFailed, []string{"nothing of host h417"}, "admit-host", "h417")
	for _, wrong := range [][]string{{"--class", "VCPU"},
		{"--class", "VCPU=-1"}, {"--class", "vcpu=1"}, {"--trait", "gpu"}} {
		run(cli.ExitUsage, []string{"such as"}, append([]string{"admit-host", "h417"}, wrong...)...)
	}
	run(cli.ExitFailed, []string{"needs no admission"}, "admit-host", "h417", "--trait", "COMPUTE_NODE")
	run(cli.ExitDone, []string{"Host h417 may report", "VCPU   128       256", "Kinds of traits: HW_GPU\n"},
		"admit-host", "H417", "--class", "VCPU=128", "--class", "VGPU=4", "--trait", "HW_GPU_API_VULKAN")
	if text := run(cli.ExitDone, []string{"VGPU   8         16", "VCPU   128       256"}, "admit-host", "h417",
		"--class",
		"VGPU=8"); strings.Contains(text, "until") {
		t.Errorf("a window is open:\n%s", text)
	}
	run(cli.ExitDone, []string{"All that it reports until "}, "admit-host", "h417", "--window")
	var shown wire.HostAdmission
	testproc.Check(t, json.Unmarshal([]byte(run(cli.ExitDone, nil, "admit-host", "h417", "--output", "json")), &shown))
	if shown.Since == nil || shown.Until == nil {
		t.Errorf("the window: %+v", shown)
	}
	shown.Since, shown.Until = nil, nil
	want := wire.HostAdmission{Host: "h417", Classes: map[string]int64{"VCPU": 128, "VGPU": 8},
		Factor: 2, Traits: []string{"HW_GPU"}}
	testproc.Same(t, cmp.Diff(want, shown))
	run(cli.ExitDone, []string{"Host h999 may report"}, "admit-host", "h999", "--class", "VCPU=1", "--unknown")
	write("http://127.0.0.1:1")
	run(cli.ExitFailed, []string{"[placement_client]"}, "admit-host", "h417")
}
