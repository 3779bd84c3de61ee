// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/compute-agent/compute-agent/test/dbservers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbservers.Tests{M: m}) }
