// SPDX-License-Identifier: Apache-2.0

package apidb

import "context"

// CountPending counts the servers that are not built to the end, and the claims that are not
// accounted for. It is for metrics. Cost: the number of both, out of indexes.
func (db *DB) CountPending(ctx context.Context) (builds, claims int64, err error) {
	err = db.kit.Reader.QueryRowContext(ctx,
		"SELECT (SELECT COUNT(*) FROM build_requests), (SELECT COUNT(*) FROM claims)").Scan(&builds, &claims)
	return builds, claims, db.failed(ctx, "counting build requests", err)
}
