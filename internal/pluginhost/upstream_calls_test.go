// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func crashingLine(h upstreamHost) {
	_, driver := h.start(h.config("log-line"))
	_, _ = driver.AvailableNodes(context.Background(), &driverv1.AvailableNodesRequest{})
}

func hostCrashed(t *testing.T, r *run) (bool, string) {
	r.start()
	r.pid("pid")
	select {
	case <-r.ended:
	case <-time.After(patience):
		return false, "the host runs"
	}
	words := r.stderr.String()
	if !strings.Contains(words, "panic: interface conversion") {
		t.Logf("the host said: %s", words)
		return false, fmt.Sprintf("the host ended (%s), and not by this panic", r.cmd.ProcessState)
	}
	return r.cmd.ProcessState.ExitCode() == 2, "the host panicked: " + words[strings.Index(words, "panic: "):][:60]
}

func logLineIsALogRecord(t *testing.T) {
	r, mark := newMarkedRig(t)
	p := r.mustStart(plainSpec(t, mark, "log-line"))
	pid := p.Status().PID
	testproc.Try(p.AvailableNodes(context.Background())).Or(t)
	r.awaitLog(`{\"@message\":1}`)
	if _, err := p.AvailableNodes(context.Background()); err != nil {
		t.Error(err)
	}
	if s := p.Status(); s.PID != pid {
		t.Errorf("status: %+v", s)
	}
}

// large is more than gRPC takes by default, 4 MiB.
const large = 5 << 20

func largeRequest(h upstreamHost) {
	_, driver := h.start(h.config())
	_, err := driver.UpdateProviderTree(context.Background(),
		&driverv1.UpdateProviderTreeRequest{Node: strings.Repeat("n", large)})
	h.say("code", status.Code(err))
	h.say("error", err)
}

func requestRefused(_ *testing.T, r *run) (bool, string) {
	r.start()
	return r.await("code") == codes.ResourceExhausted.String(), r.await("error")
}

func largeRequestPasses(t *testing.T) {
	r, mark := newMarkedRig(t)
	p := r.mustStart(chaosOrders(t, mark, "", nil))
	tree := oneNode(t)
	unit := providertree.Resource{Identifier: "x", Metadata: strings.Repeat("m", large)}
	testproc.Try(tree.SetResources(rootUUID, map[string][]providertree.Resource{"CUSTOM_X": {unit}})).Or(t)
	if _, _, err := p.UpdateProviderTree(context.Background(), tree, "cn1", nil); err != nil {
		t.Error(err)
	}

	// A plugin without the SDK may have the small limit. The call then fails with an error; the
	// plugin keeps working.
	plain := r.mustStart(plainSpec(t, mark))
	_, _, err := plain.UpdateProviderTree(context.Background(), tree, "cn1", nil)
	var call *driverclient.CallError
	if !errors.As(err, &call) || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("without the SDK: %v", err)
	}
	if _, err := plain.AvailableNodes(context.Background()); err != nil {
		t.Errorf("without the SDK, afterwards: %v", err)
	}
}

func killDuringCall(h upstreamHost) {
	file := filepath.Join(os.TempDir(), "go")
	client, driver := h.start(h.config("wait", file))
	result := make(chan error, 1)
	go func() {
		_, err := driver.AvailableNodes(context.Background(), &driverv1.AvailableNodesRequest{})
		result <- err
	}()
	awaitFile(file + ".begun")
	go client.Kill()
	select {
	case err := <-result:
		h.say("call", status.Code(err))
	case <-time.After(patience / 2):
		h.say("call", "still under way")
	}
}

func callCut(_ *testing.T, r *run) (bool, string) {
	call := r.start().await("call")
	return call == codes.Unavailable.String(), "the call ended with " + call
}

func stopDrains(t *testing.T) {
	r, mark := newMarkedRig(t)
	file := filepath.Join(t.TempDir(), "go")
	p := r.mustStart(chaosOrders(t, mark, "", map[string]string{"update": "wait", "file": file}))
	result, stopped := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.update(p, nil)
		result <- err
	}()
	r.awaitLog(`"message":"waiting"`)
	_, n := r.await(0, "the start", is(Healthy))
	go func() { stopped <- p.Stop(context.Background()) }()
	for begun := false; !begun; { // the driver does one thing at a time, so there is no answer
		_, err := p.AvailableNodes(impatient(t))
		begun = errors.Is(err, driverclient.ErrUnavailable)
	}
	select {
	case err := <-result:
		t.Fatalf("the call under way was cut: %v", err)
	default:
	}
	testproc.Check(t, os.WriteFile(file, nil, 0o600))
	testproc.NoErrorf(t, <-result, "the call under way was cut")
	testproc.NoError(t, <-stopped)
	r.await(n, "the end", is(Stopped))
}

func printBeforeHandshake(h upstreamHost) {
	_, err := goplugin.NewClient(h.config("print")).Start()
	h.say("start", err)
}

func startFailedByPrint(_ *testing.T, r *run) (bool, string) {
	start := r.start().await("start")
	return strings.Contains(start, "Unrecognized remote plugin message"), "the start: " + textutil.Clip(start, 200)
}

func printIsALogRecord(t *testing.T) {
	r, mark := newMarkedRig(t)
	p := r.mustStart(chaosOrders(t, mark, "noise", map[string]string{"update": "print"}))
	testproc.Try(r.update(p, nil)).Or(t)
	for _, words := range []string{"a line on standard output before the handshake", "printed on standard output"} {
		r.awaitLog(words)
	}

	// Without the SDK there is nothing to be done but to say what is wrong.
	spec := plainSpec(t, mark, "print")
	spec.Restart.BackoffBase, spec.Restart.BackoffMax = time.Hour, time.Hour
	_, err := r.start(spec)
	var start *StartError
	if !errors.As(err, &start) ||
		!strings.Contains(err.Error(),
			`it wrote "a line on standard output before the handshake" instead of a plugin`) {
		t.Errorf("without the SDK: %v", err)
	}
}

// infoFrom asks the process that listens on a socket for its identity.
func infoFrom(t *testing.T, socket string, creds credentials.TransportCredentials) (*driverv1.InfoResponse, error) {
	t.Helper()
	conn := testproc.Try(grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(creds))).Or(t)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return driverv1.NewPluginClient(conn).Info(ctx, &driverv1.InfoRequest{})
}

func anyClientIsAnswered(t *testing.T, r *run) (bool, string) {
	info, err := infoFrom(t, r.start().await("address"), insecure.NewCredentials())
	return err == nil, fmt.Sprintf("a call without credentials: %v, %v", info, err)
}

func otherClientsAreRefused(t *testing.T) {
	r, mark := newMarkedRig(t)
	p := r.mustStart(plainSpec(t, mark))
	sockets, err := filepath.Glob(filepath.Join(r.runtime, socketDirName, "*", "*"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets: %v, %v", sockets, err)
	}
	server := httptest.NewTLSServer(nil) // for its certificate, which the plugin does not trust
	foreign := server.TLS.Certificates
	server.Close()
	for name, creds := range map[string]credentials.TransportCredentials{
		"without TLS":                insecure.NewCredentials(),
		"without a certificate":      credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}),
		"with a foreign certificate": credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, Certificates: foreign}),
	} {
		if info, err := infoFrom(t, sockets[0], creds); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for _, path := range []string{filepath.Join(r.runtime, socketDirName), filepath.Dir(sockets[0])} {
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil || st.Mode&0o077 != 0 {
			t.Errorf("mode of %s: %o, %v", path, st.Mode, err)
		}
	}
	if _, err := p.AvailableNodes(context.Background()); err != nil {
		t.Errorf("the agent itself: %v", err)
	}
}
