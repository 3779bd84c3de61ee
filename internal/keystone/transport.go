// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"crypto/tls"
	"net/http"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
)

// maxAnswer bounds what Keystone answers, in bytes. A catalog of 100 regions with 30 services each
// is some 2 MiB.
const maxAnswer = 16 << 20

// identityClient asks Keystone's API v3. Each request brings its own token. It follows no redirect:
// with one, secrets would go where they were not meant to go.
func identityClient(cfg Config) (*gophercloud.ServiceClient, error) {
	provider, err := openstack.NewClient(cfg.AuthURL)
	if err != nil {
		return nil, err
	}
	provider.HTTPClient = http.Client{
		Transport:     bounded{cfg.Transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	provider.UserAgent.Prepend("compute-agent")
	provider.SetThrowaway(true)
	return openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{})
}

// newTransport makes a transport that takes no proxy from the environment.
func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig:     config,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: maxCalls,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: defaultTimeout,
	}
}

// bounded is a transport whose answers are cut off after maxAnswer bytes.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}
