// SPDX-License-Identifier: Apache-2.0

package sqlite

import "context"

// CountPending counts the servers that are not built to the end, and the claims that are not accounted for. It is for metrics. Cost: the
// number of both, out of indexes.
func (s *Store) CountPending(ctx context.Context) (builds, claims int64, err error) {
	err = s.reader.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM build_requests), (SELECT COUNT(*) FROM claims)").Scan(&builds, &claims)
	return builds, claims, failed(ctx, "counting build requests in the API database", s.path, err)
}
