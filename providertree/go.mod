module github.com/compute-agent/compute-agent/providertree

go 1.24

require (
	github.com/google/go-cmp v0.7.0
	github.com/google/uuid v1.6.0
	pgregory.net/rapid v1.3.0
)
