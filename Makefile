# SPDX-License-Identifier: Apache-2.0

# The libvirt driver is the only part that uses cgo; libvirt.so is loaded when it runs, so its headers are not needed.
GOFLAGS_LIBVIRT := -tags libvirt_dlopen
# Without the directory in what is built, one cache is for all clones on a machine. Go refuses most of -mod in a workspace.
export GOFLAGS := $(filter-out -mod=%,$(shell go env GOFLAGS 2>/dev/null)) -trimpath
VERSION ?= $(shell git describe --tags --always --abbrev=12 --match 'v[0-9]*' --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/compute-agent/compute-agent/internal/version.number=$(VERSION)
STATE ?= .run
RUN_ARGS ?=
ORACLE_DIR = $(or $(DIR),.run/oracle)

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

packages-%:
	@tools/packages.sh $*

# The modules of the repository, as directories: go.work has them, and . is the first. For Go, the pattern work is all of their packages.
MODULES := $(shell sed -n 's,^\t\./,,p; s,^\t\.$$,.,p' go.work)

# The pattern, where it is used: with GOWORK=off it is the packages of one module only.
WORK = $(if $(filter off,$(shell go env GOWORK)),$(error GOWORK=off leaves out modules of this repository: unset it),work)

# The complete graph of each module, as it is without go.work, and what its packages and their tests import: drivers that tests create, and
# test/policy, need them, and have no network.
.PHONY: modules
modules:
	@for module in $(MODULES); do (cd $$module && export GOWORK=off && go list -m all >/dev/null && \
	  go list -deps -test $(GOFLAGS_LIBVIRT) ./... >/dev/null) || exit 1; done

.PHONY: build
build: ## Build all binaries into bin/.
	@[ -e bin ] || echo "Building for the first time, which takes a few minutes."
	@install -d -m 755 bin
	@umask 022 && CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/compute-agent ./cmd/compute-driver-fake ./cmd/compute-driver-test
	@umask 022 && CGO_ENABLED=1 go build -trimpath -ldflags '$(LDFLAGS)' $(GOFLAGS_LIBVIRT) -o bin/ ./cmd/compute-driver-libvirt

# packaging/files lists what is installed, here and by the packages. Existing configuration files are kept.
.PHONY: install uninstall
install: ## Install what `make build` built, with units and a first configuration, below DESTDIR (default: this machine, as root).
	@test -x bin/compute-agent -a -x bin/compute-driver-libvirt || { echo "Nothing is built yet: run make build." >&2; exit 1; }
	@packaging/install.sh install '$(DESTDIR)'
	$(if $(DESTDIR),,systemd-sysusers compute-agent.conf)
	$(if $(DESTDIR),,systemd-tmpfiles --create compute-agent.conf)
	$(if $(DESTDIR),,systemctl daemon-reload)
uninstall: ## Remove what `make install` installed; configuration and state stay.
	$(if $(DESTDIR),,-systemctl disable --now compute-agent-cells-api.service 'compute-agent-cell@*.service' compute-agent.service compute-agent-placement.socket compute-agent-placement.service)
	@packaging/install.sh uninstall '$(DESTDIR)'
	$(if $(DESTDIR),,systemctl daemon-reload)

# Everything in a package has the time of the commit, so that the same commit gives the same bytes.
EPOCH = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct))
PACKAGE_VERSION = $(shell packaging/version.sh)

.PHONY: manual sdk packages image release
manual: ## Generate the manual pages and shell completion from the commands, which `make install` then installs, too.
	@rm -rf .run/manual && install -d .run/manual
	@SOURCE_DATE_EPOCH=$(EPOCH) CGO_ENABLED=0 go test -trimpath -vet=off -ldflags '$(LDFLAGS)' -run '^TestManual$$' ./cmd/compute-agent -manual '$(CURDIR)/.run/manual'
	@packaging/licenses.sh > .run/manual/third-party-licenses
	@gzip -9n .run/manual/*.[1-9] .run/manual/third-party-licenses
sdk:
	@rm -rf .run/python && install -d .run/python
	@cd examples/driver-python && /usr/bin/python3 build.py --stage ../../.run/python
packages: packages-packages build manual sdk ## Make dist/*.deb and dist/*.rpm (packaging/files); the same commit gives the same bytes.
	@SOURCE_DATE_EPOCH=$(EPOCH) packaging/build.sh dist '$(PACKAGE_VERSION)'
image: build ## Make dist/compute-agent-VERSION.oci.tar, a container image for Placement and the compute API, without a container engine.
	@install -d dist && rm -f dist/*.oci.tar
	@go run ./test/ociimage -program bin/compute-agent -version '$(subst ~,-,$(subst +,-,$(PACKAGE_VERSION)))' -revision '$(shell git rev-parse HEAD)' \
	  -epoch $(EPOCH) -out 'dist/compute-agent-$(PACKAGE_VERSION).oci.tar'
release: ## Make packages, image, SBOM, digests and their signature of a tagged commit in dist/; GPG_KEY is the key that signs.
	@packaging/release.sh check '$(GPG_KEY)'
	@rm -rf dist
	@$(MAKE) --no-print-directory packages image
	@packaging/release.sh sign '$(GPG_KEY)'
.PHONY: run
run: packages-run build ## Report this machine to a bundled Placement: installs what is missing, builds, runs until Ctrl-C.
	@COMPUTE_AGENT_AGENT_SHARE_USER=true exec bin/compute-agent standalone --state-dir $(STATE) $(RUN_ARGS)

.PHONY: demo
demo: packages-demo build ## Simulate a GPU host whose provider tree changes while guests run, and create servers on it; STEP=1 waits for Enter.
	@install -d .run && CGO_ENABLED=0 go build -trimpath -o .run/demo ./test/demo
	@set -- .run/demo -bin bin $(if $(STEP),-step); \
	  if [ "$$(id -u)" = 0 ]; then exec "$$@"; fi; \
	  command -v sudo >/dev/null || { echo "The demo creates namespaces, which requires root, and there is no sudo: run it as root."; exit 1; }; \
	  echo "The demo creates namespaces, which requires root: it runs through sudo."; exec sudo "$$@"

# Each tier of tests is one target; CONTRIBUTING.md describes them, and tools/tests.sh runs them.
export RAPID_SEED ?= 1
# One engine a run, which follows from the commit: the next commit, and make nightly, have the other one.
ENGINE = $(or $(DATABASE),$(shell tools/draw.sh mariadb postgresql))
ENGINES := sqlite mariadb postgresql
ONLY = $(if $(RUN),-run '$(RUN)')

.PHONY: test test-real test-suites test-databases
test: packages-test modules build ## Run all tests that need no server, in some minutes; with RACE=1, packages that start goroutines under the race detector; also RUN.
	@RACE=$(RACE) tools/tests.sh pure $(ONLY)
test-real: packages-databases modules build ## Run the tests with libvirt, binaries, real clients, kills and outages, OpenStack's Placement, and DATABASE (mariadb or postgresql; by default the commit's hash says); also RUN.
	@echo "The database engine of this run: $(ENGINE)."
	@DATABASE=$(ENGINE) tools/tests.sh real $(ONLY)
test-suites: packages-real modules ## Run the suites of Placement and the cells on DATABASE (mariadb, postgresql or sqlite); also RUN.
	@DATABASE=$(ENGINE) tools/tests.sh suites $(ONLY)
test-databases: packages-databases modules build ## Run the long tests with real database servers, of which some are killed, stopped and separated, some as root only; also RUN.
	@tools/tests.sh databases $(ONLY)

.PHONY: race
race: packages-test modules build ## Run all tests of the pure Go packages under the race detector.
	@tools/tests.sh race $(ONLY)

.PHONY: nightly
nightly: ## Run everything in full, for hours: all engines, new seeds, storms, soaks, fuzzing, mutants, other distributions; as root; also TEST_SEED, RAPID_SEED, CONFORMANCE.
	@tools/nightly.sh

.PHONY: test-install test-systemd
test-install: packages-packages packages-systemd build manual sdk ## Test packages, units and docs/getting-started.md in a Debian whose PID 1 is systemd; with ALL=1 whatever the commit is, the upgrade of the previous release and a release that is built twice; as root, or through sudo.
	@packaging/debs.sh .run/debs $(ALL)
	@$(MAKE) --no-print-directory test-systemd RUN='$(or $(RUN),^Test(Units|PackageFiles|Packages|GettingStarted)$$)' ARGS='-packages=$(abspath .run/debs)'
test-systemd: packages-systemd build ## Install below a root of DISTRIBUTION (debian-12, debian-13 or ubuntu-24.04), boot its systemd in a container and test the units there; as root, or through sudo.
	@install -d .run && CGO_ENABLED=0 go test -c -vet=off -o .run/systemd.test ./systemd
	@cd systemd && set -- ../.run/systemd.test -systemd -test.v -test.parallel 4 -test.timeout 90m -test.run '$(or $(RUN),^TestUnits$$)' -distribution=$(or $(DISTRIBUTION),debian-12) $(ARGS); \
	  if [ "$$(id -u)" = 0 ]; then exec "$$@"; fi; \
	  command -v sudo >/dev/null || { echo "Only root can boot a container, and there is no sudo: run make test-systemd as root." >&2; exit 1; }; \
	  exec sudo "$$@"

# What cgo makes names the directory of its source, with -trimpath that of the clone that made it first, which may be gone since.
WITH_C = $(shell git grep -l '^import "C"' -- '*.go' | xargs -n1 dirname | sort -u | sed 's,^,./,')
.PHONY: lint
lint: ## Check formatting, tidy modules, vet and lint.
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted"; exit 1; }
	@for module in $(MODULES) tools; do echo "go mod tidy -diff: $$module"; (cd $$module && GOWORK=off go mod tidy -diff) || exit 1; done
	tools/tool.sh golangci-lint run --build-tags libvirt_dlopen $$(go list -tags libvirt_dlopen -f '{{.Dir}}' work | sed 's,^$(CURDIR),.,' | grep -vxF $(addprefix -e ,$(WITH_C)))
	GOFLAGS= tools/tool.sh golangci-lint run --build-tags libvirt_dlopen $(WITH_C)
	CGO_ENABLED=0 go vet ./drivers/libvirt/...

.PHONY: generated
generated: packages-test ## Check that the generated code of the plugin protocol is up to date.
	plugins/proto/generate.sh --check

.PHONY: vulncheck
vulncheck: ## Check for known vulnerabilities, where their database can be reached.
	tools/vulncheck.sh

.PHONY: fuzz
fuzz: ## Fuzz every parser for FUZZTIME (default 30s) each.
	@set -e; for d in $$(git grep -l 'func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -ho 'func Fuzz[A-Za-z0-9]*' $$d/*_test.go | cut -c6-); do \
	    echo "$$d $$f"; go test $(GOFLAGS_LIBVIRT) -run xxx -fuzz "^$$f\$$" -fuzztime $${FUZZTIME:-30s} ./$$d; done; done

# gremlins changes comparisons, arithmetic and conditions, one at a time, where a test reaches them, and runs the tests of the package. It
# works on a copy of the module alone, from where relative replacements lead nowhere and each mutant would seem to be killed: they are absolute.
MUTATED := providertree internal/lib/pmap placement/ledger placement/transactor placement/candidates reportclient resourcetracker
.PHONY: mutants
mutants: ## Count the mutants of PACKAGE (default: the engine's packages) that no test kills; the lines LIVED are those.
	@install -d .run; for package in $(or $(PACKAGE),$(MUTATED)); do echo "--- $$package"; \
	  module=$$package; until [ -e $$module/go.mod ]; do module=$$(dirname $$module); done; \
	  below=$$(realpath --relative-to=$$module $$package); [ $$below = . ] || below=./$$below; \
	  sed "s, => \(\.\.*/\), => $(CURDIR)/$$module/\1," $$module/go.mod >.run/mutants.mod && cp $$module/go.sum .run/mutants.sum || exit 1; \
	  (cd $$module && GOWORK=off GOFLAGS="$$GOFLAGS -modfile=$(CURDIR)/.run/mutants.mod" $(CURDIR)/tools/tool.sh gremlins unleash $$below --workers $$(nproc) --timeout-coefficient 10 \
	    --output $(CURDIR)/.run/mutants-$$(echo $$package | tr / -).json) || exit 1; done

.PHONY: soak
soak: packages-real ## Try for SOAK (default 10m) per storm to make the bundled Placement lose something, from SEED; with RUN=Databases, three servers on Galera and on PostgreSQL only.
	TEST_SEED=$(or $(SEED),random) SOAK=$${SOAK:-10m} go test -count=1 -timeout 0 -v -run '$(RUN)' ./test/soak

.PHONY: storm-cells
storm-cells: packages-real ## Kill and stop processes of the compute API, its cells and agents at random for TIME (10m), from SEED, with libvirt in LIBVIRT (3) of three cells, while servers come and go; with STORM=TestSharedStorm, several APIs on one DATABASE (mariadb or postgresql).
	TEST_SEED=$(or $(SEED),random) go test ./test/cellstorm -count=1 -timeout 0 -v -run '^$(or $(STORM),TestStorm)$$' -args -storm.libvirt=$(or $(LIBVIRT),3) -storm.time=$(or $(TIME),10m) -database=$(or $(DATABASE),mariadb)

PHASES ?= restart,steady
.PHONY: faults races fleet fleet-cell
faults: packages-real ## Break a reshaping start-up, and a first one, at every request and every write to disk.
	TEST_TIER=nightly go test ./test/e2e -count=1 -timeout 0 -v -run '^(TestReshapeUnderFaults|TestReshapeUnderDiskFaults|TestFirstStartUnderDiskFaults)$$'
races: ## Race ROUNDS (default 1000) reshapes against a scheduler.
	TEST_SEED=random go test ./test/e2e -count=1 -timeout 0 -v -run '^TestReshapeAgainstScheduler$$' -args -race-rounds=$(or $(ROUNDS),1000)
fleet: ## Have AGENTS (10000) restart within five minutes and report for ten simulated minutes to SERVERS (2) of our Placement; also PROVIDERS (7), PHASES, ARGS (-fleet.url=URL,URL …).
	go test ./test/fleet -count=1 -timeout 0 -v -run '^TestFleet$$' -args -fleet.agents=$(or $(AGENTS),10000) -fleet.servers=$(or $(SERVERS),2) \
	  -fleet.providers=$(or $(PROVIDERS),7) -fleet.phases=$(PHASES) $(ARGS)
fleet-cell: ## Have AGENTS (1000) without work ask one cell for TIME (1m), then build BOOTS (2000) servers in it; ARGS: -fleet.database=mariadb or postgresql.
	go test ./test/fleet -count=1 -timeout 0 -v -run '^TestCell$$' -args -fleet.hosts=$(or $(AGENTS),1000) -fleet.for=$(or $(TIME),1m) \
	  -fleet.boots=$(or $(BOOTS),2000) $(ARGS)

.PHONY: load-cells
load-cells: ## List SERVERS (100000) of CELLS (50) as CLIENTS (50), EACH (6) times, while one cell hangs and one refuses; also TIMEOUT (10s) and DOWN (2s) of a cell, SLACK (2s).
	go test ./cells -count=1 -v -timeout 0 -run '^TestLoad$$' -args -load.figures -load.cells=$(or $(CELLS),50) \
	  -load.servers=$(or $(SERVERS),100000) -load.clients=$(or $(CLIENTS),50) -load.each=$(or $(EACH),6) -load.timeout=$(or $(TIMEOUT),10s) \
	  -load.down=$(or $(DOWN),2s) -load.slack=$(or $(SLACK),2s)

.PHONY: bench
bench: ## Run the benchmarks.
	go test $(GOFLAGS_LIBVIRT) -run xxx -bench . -benchmem $(WORK)

.PHONY: oracle
oracle: packages-real ## Compare the bundled Placement with OpenStack's for TIME (10m), from SEED; also STEPS, PARALLEL, PROFILE, DIR, DATABASE (sqlite).
	@install -d '$(ORACLE_DIR)'
	go test ./test/oracle -count=1 -v -timeout 0 -run '^TestOracle$$' -args -oracle.time=$(or $(TIME),10m) -oracle.seed=$(or $(SEED),0) \
	  -oracle.steps=$(or $(STEPS),0) -oracle.parallel=$(or $(PARALLEL),1) -oracle.profile=$(PROFILE) -oracle.dir='$(abspath $(ORACLE_DIR))' -database=$(DATABASE)

TREES ?= 1000
HOSTS ?= 1000,5000,10000
CONSUMERS ?= 200000
.PHONY: bench-upstream bench-databases bench-adopt bench-scale bench-claims bench-optimum bench-latency
bench-upstream: packages-bench build ## Measure our Placement beside OpenStack's on MariaDB, with TREES (default 1000) trees of 7 and flat hosts.
	@go run ./test/perf compare -trees $(TREES)
bench-databases: packages-bench build ## Measure our Placement on MariaDB, PostgreSQL and SQLite beside OpenStack's on the same MariaDB server, with 1 and 16 clients.
	@go run ./test/perf databases -trees $(TREES)
bench-adopt: packages-bench build ## Time the adoption of a database of OpenStack's Placement on MariaDB and PostgreSQL (10,000 hosts of 7, CONSUMERS=200000), and the way back.
	@go run ./test/perf adopt -consumers $(CONSUMERS) $(ARGS)
bench-claims: packages-bench build ## Count the claims of 1, 4 and 16 clients that are refused, with limits of 1, 10 and 100, beside OpenStack's Placement.
	@go run ./test/perf contend -upstream -hosts 100
bench-scale: build ## Measure our Placement alone as hosts (HOSTS=1000,5000,10000), their children and consumers (CONSUMERS=200000) grow.
	@go run ./test/perf grow -hosts $(HOSTS) -consumers $(CONSUMERS)
bench-optimum: build ## Measure our Placement beside a bare net/http server with the same answers, whose writes are an append and an fsync.
	@go run ./test/perf optimum -trees $(TREES)
bench-latency: build ## Measure how long candidates take at 10,000 hosts of 7 providers while 100 writes a second go on, beside a bare server.
	@go run ./test/perf latency

.PHONY: conformance
conformance: packages-real ## Run Placement's own API cases (CONFORMANCE=DIR, with their runner) against the bundled server on DATABASE (sqlite, mariadb or postgresql; all).
	@[ -n '$(CONFORMANCE)' ] || { echo "usage: make conformance CONFORMANCE=DIR" >&2; exit 64; }
	@tools/packages.sh conformance
	@set -e; for engine in $(or $(DATABASE),$(ENGINES)); do echo "The cases on $$engine:"; \
	  go test ./test/conformance -count=1 -timeout 20m -v -run '^TestCases$$' -args -conformance='$(abspath $(CONFORMANCE))' -database=$$engine; done

.PHONY: generate
generate: ## Generate code again (protobuf; needs Debian's protobuf-compiler).
	go generate $(WORK)

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin dist
