// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// CheckVersion reads the version document, once for each endpoint, and again after a 406: is this a
// Placement, and does it have the client's microversion?
//
// Errors: [ErrTooOld] if it does not, [ErrUnexpected] if it is no Placement.
//
// Cost: nothing once it was found good, else one GET.
func (c *Client) CheckVersion(ctx context.Context) error {
	if c.VersionChecked(ctx) {
		return nil
	}
	var doc wire.Versions
	if err := c.Do(ctx, http.MethodGet, "/", nil, &doc); err != nil {
		return err
	}
	if err := c.checkVersions(doc); err != nil {
		return err
	}
	base, err := c.endpoint(ctx)
	if err != nil {
		return err
	}
	checked := base.String()
	c.checked.Store(&checked)
	return nil
}

// VersionChecked reports whether [Client.CheckVersion] needs no request: the server at the endpoint
// of now was found good.
func (c *Client) VersionChecked(ctx context.Context) bool {
	base, err := c.endpoint(ctx)
	checked := c.checked.Load()
	return err == nil && checked != nil && *checked == base.String()
}

// checkVersions returns an error unless a version document has what the client needs.
func (c *Client) checkVersions(doc wire.Versions) error {
	unexpected := func(detail string) error {
		return &Error{Method: http.MethodGet, Path: "/", Status: http.StatusOK, Kind: ErrUnexpected, Detail: detail}
	}
	if len(doc.Versions) == 0 || doc.Versions[0].MaxVersion == "" {
		return unexpected("the answer is no version document")
	}
	low, high, needed := doc.Versions[0].MinVersion, doc.Versions[0].MaxVersion, c.config.Microversion
	least, err1 := versionNumber(low)
	most, err2 := versionNumber(high)
	ours, err3 := versionNumber(needed)
	if err := errors.Join(err1, err2, err3); err != nil {
		return unexpected(fmt.Sprintf("the microversions in the version document, %.20q to %.20q, are invalid",
			low, high))
	}
	switch {
	case most < ours:
		return fmt.Errorf("%w: it supports %s to %s, and %s is needed; upgrade Placement (OpenStack Xena or later)",
			ErrTooOld, low, high, needed)
	case least > ours:
		return fmt.Errorf("%w: it supports %s to %s, and %s is needed; upgrade the agent", ErrTooOld, low, high, needed)
	}
	return nil
}

// versionNumber makes a microversion such as 1.37 a number.
func versionNumber(version string) (int, error) {
	major, minor, _ := strings.Cut(version, ".")
	x, err1 := strconv.ParseUint(major, 10, 16)
	y, err2 := strconv.ParseUint(minor, 10, 16)
	return int(x)<<16 + int(y), errors.Join(err1, err2)
}
