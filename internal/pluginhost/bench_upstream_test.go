// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// partEcho is a plugin made with go-plugin as it is, which answers with the message that it got:
// what the same payload costs at least with go-plugin as it is and protobuf, without a tree made of
// it, a check, or a driver.
const partEcho = "echo"

// echoHandshake has a cookie of its own: at the sight of ours the SDK, which this executable holds
// too, takes over standard output.
var echoHandshake = goplugin.HandshakeConfig{ProtocolVersion: 1,
	MagicCookieKey: "HOST_TEST_ECHO", MagicCookieValue: "echo"}

type echo struct {
	driverv1.UnimplementedDriverServer
	goplugin.NetRPCUnsupportedPlugin
}

func (e *echo) UpdateProviderTree(
	_ context.Context, req *driverv1.UpdateProviderTreeRequest,
) (*driverv1.UpdateProviderTreeResponse, error) {
	return &driverv1.UpdateProviderTreeResponse{Tree: req.GetTree(), Allocations: req.GetAllocations()}, nil
}

func (e *echo) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	driverv1.RegisterDriverServer(s, e)
	return nil
}

func (e *echo) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

func echoMain() {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: echoHandshake, Plugins: goplugin.PluginSet{protocol.PluginName: &echo{}},
		GRPCServer: goplugin.DefaultGRPCServer, Logger: hclog.NewNullLogger(),
	})
}

// startEcho starts it as go-plugin as it is does, with its mutual TLS.
func startEcho(b *testing.B) (*goplugin.Client, driverv1.DriverClient) {
	b.Helper()
	cmd := exec.Command(chaosPath)
	cmd.Env = append(os.Environ(), partKey+"="+partEcho)
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: echoHandshake, Plugins: goplugin.PluginSet{protocol.PluginName: &echo{}}, Cmd: cmd,
		AutoMTLS:         true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, Logger: hclog.NewNullLogger(),
	})
	dialled := testproc.Try(client.Client()).Or(b)
	raw := testproc.Try(dialled.Dispense(protocol.PluginName)).Or(b)
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		b.Fatal(errors.New("no connection"))
	}
	return client, driverv1.NewDriverClient(conn)
}

// BenchmarkGoPlugin is the peer of the benchmarks of this package.
func BenchmarkGoPlugin(b *testing.B) {
	b.Run("start", func(b *testing.B) {
		for b.Loop() {
			client, driver := startEcho(b)
			testproc.Try(driver.UpdateProviderTree(context.Background(),
				&driverv1.UpdateProviderTreeRequest{Tree: protocol.FromTree(oneNode(b))})).Or(b)
			b.StopTimer()
			client.Kill()
			b.StartTimer()
		}
	})
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint("roundtrip/", n), func(b *testing.B) {
			h := benchHost(b, nil)
			tree, _ := update(b, startBench(b, h, Spec{Name: "fake", Config: wideNode(b, n)}), oneNode(b), nil)
			client, driver := startEcho(b)
			defer client.Kill()
			upstreamRoundTrip(b, client, driver, tree)
		})
	}
}

func upstreamRoundTrip(b *testing.B, client *goplugin.Client, driver driverv1.DriverClient, tree *providertree.Tree) {
	pid := client.ReattachConfig().Pid
	req := &driverv1.UpdateProviderTreeRequest{Node: "cn1", Tree: protocol.FromTree(tree)}
	own, its := cpuTime(b, os.Getpid()), cpuTime(b, pid)
	b.ReportAllocs()
	for b.Loop() {
		reply, err := driver.UpdateProviderTree(context.Background(), req)
		if err != nil || len(reply.GetTree().GetProviders()) != tree.Len() {
			b.Fatal(err)
		}
	}
	b.ReportMetric(milliseconds(cpuTime(b, os.Getpid())-own)/float64(b.N), "host-CPU-ms")
	b.ReportMetric(milliseconds(cpuTime(b, pid)-its)/float64(b.N), "plugin-CPU-ms")
	b.ReportMetric(memoryMiB(b, pid, "Rss"), "plugin-RSS-MiB")
}
