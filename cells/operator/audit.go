// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/config"
)

// Audit compares the API database, the cells, Placement and the guests, and with repair corrects
// what there is one right correction for. progress is called with what is read.
func (d *Deployment) Audit(
	ctx context.Context, repair bool, progress func(what string),
) (report scheduler.AuditReport, err error) {
	a, err := d.access()
	if err != nil {
		return report, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	placement, err := scheduler.NewPlacementClient(a.Config)
	if err != nil {
		return report, err
	}
	defer placement.CloseIdle()
	return scheduler.Audit(ctx, scheduler.AuditConfig{
		Store: d.Store, Gatherer: d.Gatherer, Placement: placement, Repair: repair,
		DiscoverPatterns: d.DiscoverPatterns, Progress: progress,
	})
}
