# Incumbent: the commands of this repository. `make help` lists them.
#
# How to generate code: edit a .proto file below api/ or core/, then
#
#     make generate          (or tools/generate.sh once bin/buf exists)
#
# and commit what it wrote beside the .proto file. Imports are paths inside the
# root: "incumbent/v1/lease.proto" below api/, "corepb/core.proto" below core/.
# go_package is the folder's import path with its package name, as in
#     option go_package = "github.com/incumbent-dev/incumbent/api/incumbent/v1;incumbentv1";

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# What a caller may change, with `make TARGET NAME=value`.
RUN_ARGS ?= server --dev --play
BENCH_SMOKE ?= juju-leases leader-stall expiry-avalanche idle-fleet kv-put kv-get kv-create txn-16 txn-guarded-16 txn-large backup-large consul-watchers consul-682 consul-closed consul-idle ovn-ports ovn-idle ovn-resync
JUJU_SMOKE ?= local:3
CLUSTER_SMOKE ?= leader-kill leader-kill:cut follower-wipe cluster-closed hand-over consul-failover ovn-failover agents-2013 overload-recover consul-flood ovn-flood juju-claim-flood login-storm login-storm:juju login-storm:ovsdb denied-storm ovn-sizes
SIM_SEEDS    ?= 20
RACE_CHECKS  ?= 25
MODEL_CHECKS ?= 100
FUZZ_TIME    ?= 2000x
FUZZ_BUILD   ?=
ROTATION_CLIENTS ?= 1000
SOAK_SEEDS   ?= 2000
SOAK_FUZZ    ?= 300000x
SOAK_PLAY    ?= 2h
SOAK_CHECKS  ?= 1000
PLAY_TIME    ?= 10m
TEST_TIMEOUT ?= 30m

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

GENERATORS := bin/buf bin/protoc-gen-go bin/protoc-gen-connect-go
TOOLS      := $(GENERATORS) bin/golangci-lint bin/govulncheck bin/benchstat

##@ Try it

.PHONY: run
run: build ## build, start a server, play a small fleet against it, keep serving
	bin/incumbent $(RUN_ARGS)

.PHONY: build
build: ## build bin/incumbent, static, with its version
	CGO_ENABLED=0 go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/incumbent ./cmd/incumbent

##@ Check it

# One line of result and time for each stage; the first that fails ends the run.
STAGE = @echo "== $(1)"; began=$$(date +%s); \
	$(MAKE) --no-print-directory $(1) && echo "== $(1): ok, $$(($$(date +%s) - began)) s"

.PHONY: test
test: ## everything below that CI runs, in this order
	$(call STAGE,fmt-check)
	$(call STAGE,vet)
	$(call STAGE,lint)
	$(call STAGE,check-generated)
	$(call STAGE,check-imports)
	$(call STAGE,race)
	$(call STAGE,sim-smoke)
	$(call STAGE,fuzz-smoke)
	$(call STAGE,bench-smoke)
	$(call STAGE,blackbox)
	$(call STAGE,mutants-smoke)

.PHONY: fmt-check
fmt-check: ## fail if a Go file is not formatted
	@found=$$(gofmt -l .); [ -z "$$found" ] || { echo "not formatted, run gofmt -w:"; echo "$$found"; exit 1; }

.PHONY: vet
vet: ## go vet
	go vet ./...

.PHONY: lint
lint: bin/golangci-lint bin/buf ## golangci-lint and buf lint
	bin/golangci-lint run ./...
	bin/buf lint

.PHONY: check-imports
check-imports: ## imports between packages go one way
	go test -count=1 ./test/deps

# Black-box tests run the real binary, so the race detector has nothing to see
# in them: they have their own stage.
# A test that fails is run again by itself, and named (docs/decisions/0012).
# None of these tests is about the machine's own disk, which may stand still for
# seconds: where there is room in memory, that is where their files go.
MEMORY_DIR := $(shell room=$$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1); [ "$${room:-0}" -gt 4000000 ] && [ -w /dev/shm ] && echo /dev/shm)

.PHONY: race
race: ## unit, transcript, model and virtual-time tests with the race detector, the models with RACE_CHECKS rounds
	$(if $(MEMORY_DIR),GOTMPDIR=$${GOTMPDIR:-$${TMPDIR:-/tmp}} TMPDIR=$(MEMORY_DIR)) RAPID_CHECKS=$(RACE_CHECKS) CGO_ENABLED=1 test/again/again.sh '-race -timeout $(TEST_TIMEOUT)' $$(go list ./... | grep -v '/incumbent/test/')

.PHONY: sim-smoke
sim-smoke: ## the simulator over SIM_SEEDS seeds, with all invariants asserted
	@if [ -d sim ]; then \
		INCUMBENT_SIM_SEEDS=$(SIM_SEEDS) go test -count=1 -tags invariants -timeout $(TEST_TIMEOUT) -run 'TestSmoke|AFlood|AllComeBackAtOnce|SameFlood' ./sim/...; \
	else echo "no sim folder"; fi

# go test fuzzes one target of one package at a time. Budgets are numbers of
# executions: with a time, the go command now and then reports its own deadline
# as a failure ("context deadline exceeded") although no input failed, and by
# default it may spend a minute making one interesting input smaller.
# A package is built once for all its targets; not to be guided by coverage unless
# FUZZ_BUILD is "-fuzz .": so few executions learn nothing from that, for which
# everything would be compiled once more.
.PHONY: fuzz-smoke
fuzz-smoke: ## each fuzz target for FUZZ_TIME executions
	@work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT; \
	folders=$$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u | grep -v '^\./test/peers'); \
	echo "$$folders" | work=$$work xargs -P 2 -I{} sh -c 'mkdir -p "$$work/{}" && go test -c $(FUZZ_BUILD) -o "$$work/{}/fuzz.test" {}' || exit 1; \
	for folder in $$folders; do \
		test=$$work/$$folder/fuzz.test; \
		cache=$$(go env GOCACHE)/fuzz/$$folder; \
		for target in $$("$$test" -test.list '^Fuzz'); do \
			echo "fuzz $$folder $$target"; \
			(cd "$$folder" && "$$test" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZ_TIME) -test.fuzzminimizetime 100x \
				-test.fuzzcachedir "$$cache/$$target") || exit 1; \
		done; \
	done

.PHONY: bench-smoke
bench-smoke: ## a few seconds of the load tool; any violation fails
	@$(MAKE) --no-print-directory build
	@for scenario in $(BENCH_SMOKE); do \
		echo "bench $$scenario"; \
		bin/incumbent bench run $$scenario --set scale=smoke --dir bin/smoke/$$scenario || exit 1; \
	done
	@for members in $(JUJU_SMOKE); do \
		echo "bench juju-leases over the door for Juju's agents on $$members"; \
		bin/incumbent bench run juju-leases --members $$members --set door=juju --set scale=smoke --dir bin/smoke/juju-leases-juju-$${members#local:} || exit 1; \
	done
	@for scenario in $(CLUSTER_SMOKE); do \
		echo "bench $$scenario on three members"; \
		name=$${scenario%%:*}; fault=$${scenario#$$name}; \
		bin/incumbent bench run $$name --members local:3 --set scale=smoke $${fault:+--set fault=$${fault#:}} --dir bin/smoke/$$name$${fault:+-$${fault#:}} || exit 1; \
	done
	@echo "bench juju-leases, all of whose connections end at once, on three members"
	@bin/incumbent bench run juju-leases --members local:3 --set scale=smoke-reconnect --dir bin/smoke/juju-leases-reconnect
	@echo "bench learner-edges on three members and two learners"
	@bin/incumbent bench run learner-edges --members local:3+2 --set scale=smoke --dir bin/smoke/learner-edges

.PHONY: blackbox
blackbox: build ## tests of the binary, from outside
	@packages=$$(go list ./test/... | grep -v -e '/test/deps$$' -e '/test/mutants'); \
	test/again/again.sh '-count=1 -p 1 -timeout $(TEST_TIMEOUT)' $$packages
	cd test/consul/clients && go test -count=1 -timeout $(TEST_TIMEOUT) ./...

.PHONY: mutants-smoke
mutants-smoke: ## two of the mutants, chosen by INCUMBENT_MUTANT_SEED
	go test -count=1 -timeout $(TEST_TIMEOUT) ./test/mutants

##@ Look harder

# Programs that are not at hand are left out: docs/conformance.md.
.PHONY: conformance
conformance: build ## real clients against Consul's door: CONSUL=, PATRONI=, TEMPLATE=, PYTHON=, PROMETHEUS=, FABIO=, TRAEFIK= say where they are
	go test -count=1 -v -timeout $(TEST_TIMEOUT) ./test/consul $(if $(CONSUL),-peer $(CONSUL)) $(if $(PATRONI),-patroni $(PATRONI)) \
		$(if $(TEMPLATE),-consul-template $(TEMPLATE)) $(if $(PYTHON),-python $(PYTHON)) $(if $(PROMETHEUS),-prometheus $(PROMETHEUS)) $(if $(FABIO),-fabio $(FABIO)) $(if $(TRAEFIK),-traefik $(TRAEFIK))
	cd test/consul/clients && go test -count=1 ./...

.PHONY: mutants
mutants: ## break the code in known ways; a named test must notice each
	INCUMBENT_MUTANTS=1 go test -count=1 -timeout 60m -v ./test/mutants/...

.PHONY: soak
soak: ## the simulator over SOAK_SEEDS seeds, models for SOAK_CHECKS rounds, each fuzz target for SOAK_FUZZ executions, random calls for twice SOAK_PLAY
	$(MAKE) --no-print-directory sim-smoke SIM_SEEDS=$(SOAK_SEEDS) TEST_TIMEOUT=0
	$(MAKE) --no-print-directory models MODEL_CHECKS=$(SOAK_CHECKS)
	$(MAKE) --no-print-directory fuzz-smoke FUZZ_TIME=$(SOAK_FUZZ) FUZZ_BUILD='-fuzz .'
	$(MAKE) --no-print-directory play PLAY_TIME=$(SOAK_PLAY)

.PHONY: models
models: ## model tests for MODEL_CHECKS rounds each, with all invariants asserted
	@grep -rl --include='*_test.go' 'rapid\.Check' . | xargs -r -n 1 dirname | sort -u | \
		RAPID_CHECKS=$(MODEL_CHECKS) xargs go test -count=1 -tags invariants -timeout 0

.PHONY: play
play: build ## random calls of every door against the binary, on one member and on three, for PLAY_TIME each (INCUMBENT_PLAYER_SEED replays)
	INCUMBENT_PLAYER_TIME=$(PLAY_TIME) go test -count=1 -timeout 0 -v -run TestRandomCalls ./test/player

.PHONY: rotation
rotation: build ## secret, authority and certificates are exchanged under ROTATION_CLIENTS clients that hold leases
	INCUMBENT_ROTATION_CLIENTS=$(ROTATION_CLIENTS) go test -count=1 -timeout $(TEST_TIMEOUT) -v -run TestG33_EverythingIsExchangedWhileItRuns ./test/cluster

.PHONY: vuln
vuln: bin/govulncheck ## known vulnerabilities in what we call; asks the Go vulnerability database
	bin/govulncheck ./...

.PHONY: cross
cross: ## type-check the builds for other systems
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet ./...
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go vet ./...

.PHONY: tidy-check
tidy-check: ## go.mod names what is used, nothing else
	go mod tidy -diff

.PHONY: peers
peers: bin/etcd bin/etcd-bench bin/incumbent-bench ## build etcd and its load generators, for comparisons (test/peers)

# What the comparison plays: closed loops, and idle connections at the end.
PEER_SCENARIOS ?= session-open create-closed claim-closed refuse-closed extend-single extend-batch idle-fleet
PEER_WORKERS   ?= 64 1024
PEER_DURATION  ?= 10s
PEER_RESULTS   ?= results/etcd
PEER_IDLE      ?= 2000
# And on several members: empty takes the script's own.
PEER_CLUSTER_SCENARIOS ?=
PEER_CLUSTER_RESULTS   ?= results/etcd-cluster
PEER_MEMBERS           ?= local:3
PEER_SCALE             ?=
PEER_TLS               ?=

.PHONY: bench-etcd
bench-etcd: build peers ## the same closed loops on etcd and on us, side by side (PEER_DURATION each)
	@SCENARIOS='$(PEER_SCENARIOS)' WORKERS='$(PEER_WORKERS)' DURATION='$(PEER_DURATION)' RESULTS='$(PEER_RESULTS)' IDLE='$(PEER_IDLE)' \
		sh test/peers/bench-etcd.sh

.PHONY: bench-etcd-cluster
bench-etcd-cluster: build peers ## three members of etcd and of ours, side by side: turns, extensions, the leader killed and stopped
	@$(if $(PEER_CLUSTER_SCENARIOS),SCENARIOS='$(PEER_CLUSTER_SCENARIOS)') MEMBERS='$(PEER_MEMBERS)' SCALE='$(PEER_SCALE)' TLS='$(PEER_TLS)' \
		RESULTS='$(PEER_CLUSTER_RESULTS)' sh test/peers/bench-etcd-cluster.sh

# Keys and values: as the product's scenarios have them, with 1, 64 and 1,024 workers,
# and 2,000 watchers.
PEER_KEYS         ?= $(foreach s,kv-put kv-get kv-get-stale kv-create txn-1 txn-16 txn-guarded-1 txn-guarded-16,$(s):one $(s) $(s):many $(s):shared) kv-watch
PEER_KEYS_MEMBERS ?= 1 3
PEER_KEYS_RESULTS ?= results/etcd-keys

.PHONY: bench-etcd-keys
bench-etcd-keys: build peers ## keys and values on etcd and on us, side by side, on one member and on three
	@for members in $(PEER_KEYS_MEMBERS); do \
		echo "members: $$members"; \
		SCENARIOS='$(PEER_KEYS)' MEMBERS=local:$$members SCALE='$(PEER_SCALE)' TLS='$(PEER_TLS)' RESULTS='$(PEER_KEYS_RESULTS)'-$$members \
			sh test/peers/bench-etcd-cluster.sh || failed=1; \
	done; exit $${failed:-0}

##@ Make things

.PHONY: fmt
fmt: bin/golangci-lint ## format as fmt-check and lint want it
	bin/golangci-lint fmt ./...

.PHONY: generate
generate: $(GENERATORS) ## generate Go from the .proto files
	@tools/generate.sh

.PHONY: check-generated
check-generated: $(GENERATORS) ## fail if generated code is not what is checked in
	@tools/generate.sh check

.PHONY: tools
tools: $(TOOLS) ## build the pinned tools into bin/

.PHONY: clean
clean: ## remove what was built
	rm -rf bin

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

# Each tool is a module of its own below tools/, so that no tool's dependencies
# decide another's or the product's. It is rebuilt when its pins change.
BUILD_TOOL = cd tools/$(1) && GOWORK=off CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@ tool

bin/buf: tools/buf/go.mod
	$(call BUILD_TOOL,buf)
bin/protoc-gen-go: tools/protoc-gen-go/go.mod
	$(call BUILD_TOOL,protoc-gen-go)
bin/protoc-gen-connect-go: tools/protoc-gen-connect-go/go.mod
	$(call BUILD_TOOL,protoc-gen-connect-go)
bin/golangci-lint: tools/lint/go.mod
	$(call BUILD_TOOL,lint)
bin/govulncheck: tools/vuln/go.mod
	$(call BUILD_TOOL,vuln)
bin/benchstat: tools/benchstat/go.mod
	$(call BUILD_TOOL,benchstat)

# The peers are built from the modules that test/peers pins.
PEER_SOURCES := $(shell find test/peers -name '*.go' -o -name 'go.*' 2>/dev/null)
bin/etcd: test/peers/go.mod
	cd test/peers && GOWORK=off CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@ ./cmd/etcd
bin/etcd-bench: $(PEER_SOURCES)
	cd test/peers && GOWORK=off CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@ ./cmd/etcd-bench
bin/incumbent-bench: $(PEER_SOURCES) $(wildcard bench/*.go bench/scenarios/*.yaml client/*.go)
	cd test/peers/cmd/incumbent-bench && GOWORK=off CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@ .
