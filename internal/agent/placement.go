// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/reportclient"
)

// newPlacementClient makes the client that [placement_client] describes, which records reshapes in a journal. It makes no
// request.
func newPlacementClient(cfg *config.Config, reshapes reportclient.ReshapeLog, log zerolog.Logger) (*reportclient.Client, error) {
	transport, err := Transport(cfg.PlacementClient)
	if err != nil {
		return nil, err
	}
	dial := transport.DialContext
	if cfg.PlacementClient.UseProxy {
		dial = nil
	}
	return reportclient.New(reportclient.Config{
		Dial: dial, URL: cfg.PlacementClient.URL, Authorize: Authorizer(cfg.PlacementClient), Transport: transport, Timeout: cfg.PlacementClient.Timeout,
		Retries: cfg.PlacementClient.Retries, RefreshInterval: cfg.Tracker.AssociationRefresh, ReshapeLog: reshapes, Logger: log,
	})
}

// Transport makes the HTTP transport that [placement_client] describes: TLS with the given authorities and certificate, no
// proxy unless one is wanted.
func Transport(c config.PlacementClient) (*http.Transport, error) {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: c.ConnectTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: c.ConnectTimeout,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        4,
		IdleConnTimeout:     90 * time.Second,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if c.UseProxy {
		t.Proxy = http.ProxyFromEnvironment
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("placement_client.ca_file: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("placement_client.ca_file: %s holds no certificate in PEM form", c.CAFile)
		}
	}
	if c.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			return nil, fmt.Errorf("placement_client.cert_file and key_file: %w", err)
		}
		// Read again for each connection, so that a renewed certificate needs no restart.
		t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			return &pair, err
		}
	}
	return t, nil
}

// Authorizer makes the headers that prove who the agent is. A token is read for each request, so that a renewed one needs
// no restart.
func Authorizer(c config.PlacementClient) func(context.Context, http.Header) error {
	if c.Auth == config.AuthNoauth {
		return func(_ context.Context, h http.Header) error {
			h.Set("X-Auth-Token", "admin")
			h.Set("X-Roles", "admin,service")
			return nil
		}
	}
	return func(_ context.Context, h http.Header) error {
		if c.TokenFile == "" {
			return errors.New("placement_client.token_file is not set")
		}
		token, err := config.ReadSecret(c.TokenFile)
		if err != nil {
			return err
		}
		h.Set("X-Auth-Token", token.Reveal())
		return nil
	}
}
