// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/http"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/reportclient"
)

// RequestObserver is called for each request to Placement, see [placementclient.Config].Observe.
type RequestObserver = func(ctx context.Context, req *http.Request, route string) (done func(status int, err error))

// NewPlacementClient returns a client as configured in [placement_client], which records reshapes
// in a journal and says which run of the agent it is of; nil: none. It makes no requests.
func NewPlacementClient(
	cfg *config.Config, reshapes reportclient.ReshapeLog,
	observe RequestObserver, process *pki.ProcessSender, log zerolog.Logger,
) (*reportclient.Client, error) {
	a, err := access.New(cfg.PlacementClient, nil, log)
	if err != nil {
		return nil, err
	}
	a.Observe, a.Transport = observe, process.Transport(a.Transport)
	return reportclient.New(reportclient.Config{Config: a.Config,
		RefreshInterval: cfg.Tracker.AssociationRefresh, ReshapeLog: reshapes})
}

// placementEndpoint describes the endpoint for logs, before it is known.
func placementEndpoint(c config.PlacementClient) string {
	if c.URL == "" {
		return "from the catalog of Keystone at " + c.Keystone.AuthURL
	}
	return c.URL
}
