// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
)

// TestMain lets the test program be a Placement server as well: with PLACEMENT_TEST_SERVE it serves
// noauth on that address, from the state directory that its last argument names, until SIGTERM.
// Tests start themselves like this to have a server that they can stop and kill.
// PLACEMENT_TEST_POLICY, PLACEMENT_TEST_CORS_ORIGIN and PLACEMENT_TEST_CORS_ALLOW_HEADERS are its
// configuration.
func TestMain(m *testing.M) {
	address := os.Getenv("PLACEMENT_TEST_SERVE")
	if address == "" {
		os.Exit(m.Run())
	}
	if err := serveUntilTerminated(address, os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveUntilTerminated(address, stateDir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := placement.Config{
		StateDir: stateDir,
		Listen:   address,
		Auth:     placement.Auth{Strategy: placement.NoAuth},
		Policy:   api.Defaults(os.Getenv("PLACEMENT_TEST_POLICY")),
		Logger:   zerolog.New(os.Stderr).Level(zerolog.WarnLevel),
	}
	if origin := os.Getenv("PLACEMENT_TEST_CORS_ORIGIN"); origin != "" {
		cfg.CORS = api.CORS{AllowedOrigins: []string{origin}, AllowHeaders: strings.Split(os.Getenv("PLACEMENT_TEST_CORS_ALLOW_HEADERS"), ",")}
	}
	server, err := placement.New(ctx, cfg)
	if err != nil {
		return err
	}
	if err := server.ListenAndServe(ctx); err != nil {
		return err
	}
	return server.Close()
}
