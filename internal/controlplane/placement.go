// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
)

// Listening is how a Placement service listens and authenticates clients, which is no part of the
// configuration.
type Listening struct {
	Address, Auth, TokenFile string
}

// Placement is what a Placement service is made with. connections are those of the process, nil if
// it does not serve clients.
func Placement(cfg *config.Config, on Listening, connections *osapi.Connections, log zerolog.Logger) placement.Config {
	return placement.Config{
		StateDir: filepath.Clean(cfg.Agent.StateDir), Database: cfg.Placement.Database, Listen: on.Address,
		Auth: placement.Auth{Strategy: placement.Strategy(on.Auth), TokenFile: on.TokenFile,
			Keystone: keystoneConfig(cfg.Keystone, log)},
		Policy:     api.Defaults(cfg.Policy.Defaults),
		PolicyFile: cfg.Policy.File,
		TLS: osapi.TLSFiles{
			CertFile: cfg.PlacementTLS.CertFile, KeyFile: cfg.PlacementTLS.KeyFile,
			ClientCAFile: cfg.PlacementTLS.ClientCAFile, HostCAFile: cfg.PlacementTLS.HostCAFile,
		},
		CORS:          corsOptions(cfg.CORS),
		Connections:   connections,
		StaleReads:    cfg.Placement.StaleReads,
		ShutdownDelay: cfg.Server.ShutdownDelay,
		Placement: api.Options{
			IncompleteProjectID: cfg.Placement.IncompleteConsumerProjectID,
			IncompleteUserID:    cfg.Placement.IncompleteConsumerUserID,
			MaxCandidates:       cfg.Placement.MaxAllocationCandidates,
			DepthFirst:          cfg.Placement.AllocationCandidatesGenerationStrategy == config.DepthFirst,
			Randomize:           cfg.Placement.RandomizeAllocationCandidates,
			Extensions:          cfg.Placement.Extensions,
			Endpoint:            cfg.Placement.Endpoint,
			HostCapacityFactor:  cfg.Placement.HostCapacityFactor,
			HostAdmissionWindow: cfg.Placement.HostAdmissionWindow,
			HostClassRenames:    cfg.Placement.HostClassRenames,
		},
		Logger: log,
	}
}

func corsOptions(c config.CORS) api.CORS {
	age := time.Duration(c.MaxAge) * time.Second
	if age == 0 {
		age = -1 // omit the header
	}
	return api.CORS{
		AllowedOrigins: c.AllowedOrigin, AllowHeaders: c.AllowHeaders, AllowMethods: c.AllowMethods,
		ExposeHeaders: c.ExposeHeaders,
		MaxAge:        age, WithoutCredentials: !c.AllowCredentials,
	}
}
