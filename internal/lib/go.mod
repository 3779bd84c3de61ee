module github.com/compute-agent/compute-agent/internal/lib

go 1.26.0

require (
	github.com/compute-agent/compute-agent/test/testproc v0.0.0-00010101000000-000000000000
	github.com/google/go-cmp v0.7.0
	golang.org/x/sys v0.49.0
	pgregory.net/rapid v1.3.0
)

replace github.com/compute-agent/compute-agent/test/testproc => ../../test/testproc
