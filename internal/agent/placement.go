// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/http"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/reportclient"
)

// RequestObserver is told of each request to Placement, see [reportclient.Config].Observe.
type RequestObserver = func(ctx context.Context, req *http.Request, route string) (done func(status int, err error))

// NewPlacementClient makes the client that [placement_client] describes, which records reshapes in a journal. It makes no
// request.
func NewPlacementClient(cfg *config.Config, reshapes reportclient.ReshapeLog, observe RequestObserver, log zerolog.Logger) (*reportclient.Client, error) {
	c := cfg.PlacementClient
	a, err := access.New(c, nil, log)
	if err != nil {
		return nil, err
	}
	where := a.Endpoint
	if c.URL != "" {
		where = nil // nobody needs to be asked
	}
	return reportclient.New(reportclient.Config{
		URL: c.URL, Endpoint: where, Authorize: a.Authorize, Reauthorize: a.Reauthorize, Transport: a.Transport, Dial: a.Dial,
		Timeout: c.Timeout, Retries: c.Retries, RefreshInterval: cfg.Tracker.AssociationRefresh, ReshapeLog: reshapes, Observe: observe, Logger: log,
	})
}

// whereIsPlacement says it for people, before anybody was asked.
func whereIsPlacement(c config.PlacementClient) string {
	if c.URL == "" {
		return "as the catalogue of Keystone at " + c.Keystone.AuthURL + " says"
	}
	return c.URL
}
