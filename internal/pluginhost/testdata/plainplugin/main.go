// SPDX-License-Identifier: Apache-2.0

// Command plainplugin is a driver as one would write it with go-plugin alone: it speaks the driver
// protocol, and has nothing of the SDK. Its argument is what it does wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// The outputs of the process: go-plugin puts pipes of its own in their place.
var stdout, stderr = os.Stdout, os.Stderr

func main() {
	p := &plain{}
	if len(os.Args) > 1 {
		p.deed = os.Args[1]
	}
	if p.deed == "print" {
		fmt.Println("a line on standard output before the handshake")
	}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  protocol.Handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{protocol.ProtocolVersion: {protocol.PluginName: served{p: p}}},
		GRPCServer:       goplugin.DefaultGRPCServer,
	})
}

// plain is the driver. What is wrong with it happens in AvailableNodes.
type plain struct {
	driverv1.UnimplementedPluginServer
	driverv1.UnimplementedDriverServer
	deed string
}

// Info says who it is.
func (*plain) Info(context.Context, *driverv1.InfoRequest) (*driverv1.InfoResponse, error) {
	return &driverv1.InfoResponse{Name: "plain", Version: "1"}, nil
}

// Configure takes anything.
func (*plain) Configure(context.Context, *driverv1.ConfigureRequest) (*driverv1.ConfigureResponse, error) {
	return &driverv1.ConfigureResponse{}, nil
}

// Health is good.
func (*plain) Health(context.Context, *driverv1.HealthRequest) (*driverv1.HealthResponse, error) {
	return &driverv1.HealthResponse{}, nil
}

// Shutdown has nothing to tidy up.
func (*plain) Shutdown(context.Context, *driverv1.ShutdownRequest) (*driverv1.ShutdownResponse, error) {
	return &driverv1.ShutdownResponse{}, nil
}

// AvailableNodes does the deed.
func (p *plain) AvailableNodes(
	context.Context, *driverv1.AvailableNodesRequest,
) (*driverv1.AvailableNodesResponse, error) {
	switch p.deed {
	case "log-line":
		fmt.Fprintln(stderr, `{"@message":1}`)
	case "child": // which inherits the outputs, and does not end
		if _, err := os.StartProcess("/bin/sleep", []string{"sleep", "300"},
			&os.ProcAttr{Files: []*os.File{nil, stdout, stderr}}); err != nil {
			return nil, err
		}
	case "wait": // until there is a file of the name in the second argument, after saying so with one called NAME.begun
		if err := os.WriteFile(os.Args[2]+".begun", nil, 0o600); err != nil {
			return nil, err
		}
		for _, err := os.Stat(os.Args[2]); err != nil; _, err = os.Stat(os.Args[2]) {
			time.Sleep(5 * time.Millisecond)
		}
	}
	return &driverv1.AvailableNodesResponse{Nodes: []*driverv1.Node{{Name: "cn1"}}}, nil
}

// UpdateProviderTree returns the tree as it is.
func (*plain) UpdateProviderTree(
	_ context.Context, req *driverv1.UpdateProviderTreeRequest,
) (*driverv1.UpdateProviderTreeResponse, error) {
	return &driverv1.UpdateProviderTreeResponse{Tree: req.GetTree()}, nil
}

// served registers the services with go-plugin's server.
type served struct {
	goplugin.NetRPCUnsupportedPlugin
	p *plain
}

// GRPCServer registers the services.
func (s served) GRPCServer(
	_ *goplugin.GRPCBroker, server *grpc.Server,
) error { //nolint:unparam // go-plugin wants it so
	driverv1.RegisterPluginServer(server, s.p)
	driverv1.RegisterDriverServer(server, s.p)
	return nil
}

// GRPCClient is for the other side.
func (served) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this is the plugin's side of the connection")
}
