SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
# Targets run one after the other, so that the time of each step is meaningful. The go command uses all cores anyway.
.NOTPARALLEL:

# The folder that keeps tools and control planes after they are built. Several checkouts can share it.
export RULEFLEET_CACHE := $(or $(RULEFLEET_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rulefleet)

# With -trimpath, compiled code does not contain the path of the checkout, so all checkouts share Go's build cache.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath)

VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

API := ./api/v1alpha1
CRDS := charts/rulefleet/files/crds
WEBHOOKS := charts/rulefleet/files/webhook
CHART := charts/rulefleet

MODULES := $(patsubst %/go.mod,%,$(wildcard go.mod .ci/*/go.mod e2e/*/go.mod))
MODULES := $(MODULES:go.mod=.)

TOOLS := bin/tools
CHART_TOOL_SOURCES := $(wildcard .ci/chart-tools/go.*)
DOC_TOOL_SOURCES := $(filter-out %_test.go,$(wildcard .ci/doc-tools/go.mod .ci/doc-tools/*/*.go))
SUPPLY_TOOL_SOURCES := $(filter-out %_test.go,$(wildcard .ci/supply-tools/go.* .ci/supply-tools/*/*.go))
TOOL_SOURCES := $(filter-out %_test.go,$(wildcard .ci/tools/go.* .ci/tools/*/*.go .ci/tools/*/*/*.go))

##@ Build

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build the manager into bin/rulefleet-manager.
	@.ci/step build env CGO_ENABLED=0 go build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/rulefleet-manager ./cmd/manager

.PHONY: plugin
plugin: ## Build the kubectl plugin into bin/kubectl-rulefleet.
	@.ci/step plugin env CGO_ENABLED=0 go build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/kubectl-rulefleet ./cmd/kubectl-rulefleet

# The image of the manager and its base image. Dockerfile describes both.
IMAGE ?= ghcr.io/rulefleet/manager:$(VERSION)
BASE ?= scratch
# The architecture of the image; empty means that of the system that Docker runs on.
ARCH ?=

.PHONY: image
image: ## Build the image IMAGE (ghcr.io/rulefleet/manager:VERSION) from a program built here, on BASE (scratch), for ARCH (that of Docker's system).
	@.ci/step image .ci/image $(IMAGE) $(VERSION) $(BASE) $(ARCH)

.PHONY: sbom
sbom: build $(TOOLS)/sbom ## List the modules in bin/rulefleet-manager and their licences as CycloneDX: bin/rulefleet-manager.cdx.json.
	@$(TOOLS)/sbom write $(VERSION) bin/rulefleet-manager >bin/rulefleet-manager.cdx.json
	@echo 'the software bill of materials is in bin/rulefleet-manager.cdx.json'

.PHONY: dist
dist: helm $(TOOLS)/sbom $(TOOLS)/dist ## Make the files of release VERSION in bin/dist: the plugin for each platform, SBOMs, the chart, the krew manifest, checksums.
	@.ci/dist '$(VERSION)'

.PHONY: generate
generate: $(TOOLS)/controller-gen ## Generate code, CRDs and their reference, the webhook configuration, the lists of metrics and reasons, the pages of the plugin's commands, the chart's schema and README, and images.
	@mkdir -p bin $(CRDS) $(WEBHOOKS)
	@touch bin/.generate-started
	$(TOOLS)/controller-gen object crd paths=$(API) output:crd:dir=$(CRDS)
	@# An integer that Go's IntOrString can't hold would make every list of RulePacks fail.
	@awk '/^ *x-kubernetes-int-or-string: true$$/ { indent = $$0; sub(/x-.*/, "", indent); print indent "maximum: 2147483647"; print indent "minimum: -2147483648" } { print }' \
		$(CRDS)/rulefleet.io_rulepacks.yaml >bin/rulepacks.yaml && mv bin/rulepacks.yaml $(CRDS)/rulefleet.io_rulepacks.yaml
	$(TOOLS)/controller-gen webhook paths=./pkg/webhook output:webhook:dir=$(WEBHOOKS)
	@# Delete files that were not written again: their types no longer exist.
	@find $(CRDS) $(WEBHOOKS) -type f ! -newer bin/.generate-started -print -delete
	$(MAKE) --no-print-directory docs/reference/api.md docs/reference/metrics.md docs/reference/reasons.md docs/cli chart-docs images

# crd-ref-docs writes the kinds and types. It leaves out constants, which are added after that.
.PHONY: docs/reference/api.md
docs/reference/api.md: $(TOOLS)/crd-ref-docs $(TOOLS)/constants
	@$(TOOLS)/crd-ref-docs --log-level ERROR --renderer markdown --source-path $(API) \
		--config .ci/crd-ref-docs/config.yaml --templates-dir .ci/crd-ref-docs --output-path $@
	@$(TOOLS)/constants $(API) 'conditions.go=Conditions and reasons' 'labels.go=Labels, annotations and other names' >>$@

# The chart's schema and README come from the comments in its values.yaml.
.PHONY: chart-docs
chart-docs: $(TOOLS)/helm-docs $(TOOLS)/helm-schema
	@cd $(CHART) && out=$$($(CURDIR)/$(TOOLS)/helm-schema 2>&1) || { echo "$$out"; exit 1; }
	@$(TOOLS)/helm-docs --chart-search-root $(CHART) --log-level warning --sort-values-order file
	@# helm-docs takes " --" in a description for its own marker, and writes an empty description.
	@! grep '|  |$$' $(CHART)/README.md || { echo 'these values have no description' >&2; exit 1; }

.PHONY: docs/reference/metrics.md
docs/reference/metrics.md:
	@CGO_ENABLED=0 go run ./pkg/metrics/document >$@

.PHONY: docs/reference/reasons.md
docs/reference/reasons.md:
	@CGO_ENABLED=0 go run ./pkg/reasons/document >$@

.PHONY: docs/cli
docs/cli:
	@CGO_ENABLED=0 go run ./pkg/plugin/document $@

.PHONY: images
images: $(TOOLS)/diagram ## Draw the images that have a text source in docs/images.
	@$(TOOLS)/diagram docs/images/flow.txt >docs/images/flow.svg

.PHONY: screenshot
screenshot: $(TOOLS)/terminal ## Run the demo, and draw its output from a crash to the notification, and the dashboard: docs/images/{demo,dashboard}.svg.
	@mkdir -p bin
	ONCE=1 DASHBOARD=docs/images/dashboard.svg $(MAKE) --no-print-directory demo >bin/demo.txt
	@$(TOOLS)/terminal 'make demo' 'rulefleet.io/for=5s' <bin/demo.txt >bin/demo.svg
	@mv bin/demo.svg docs/images/demo.svg

.PHONY: controlplane
controlplane: ## Build the control planes that tests run against into bin/k8s.
	@.ci/step controlplane e2e/controlplane/build.sh

.PHONY: helm
helm: ## Build the command helm into bin/tools.
	@mkdir -p $(TOOLS)
	@CGO_ENABLED=0 go build -ldflags '-s -w' -o $(TOOLS)/helm helm.sh/helm/v3/cmd/helm

.PHONY: promtool
promtool: ## Build promtool, which tests check rules with, into bin/prometheus.
	@.ci/step promtool e2e/prometheus/build.sh

.PHONY: pipeline
pipeline: promtool ## Build the programs of the alerting pipeline (kube-state-metrics, prometheus-operator, Alertmanager) into bin/pipeline.
	@.ci/step pipeline e2e/build-pipeline.sh

.PHONY: demo
demo: controlplane build $(if $(filter lite,$(DEMO)),,pipeline) ## Run a hub and spokes on this machine, with Rulefleet at work (DEMO=lite: no alert fires).
	@# With the settings of 'make build', the demo uses code that is already compiled.
	CGO_ENABLED=0 go run ./e2e/demo

##@ Test

# The race detector needs a C compiler. Without one, the tests run without the race detector.
RACE := $(shell command -v "$$(go env CC)" >/dev/null && echo -race)
# By default, a program with the race detector sleeps for 1 s before it exits.
export GORACE := atexit_sleep_ms=50

# The go command links a test program that is kept here only if what it is made of has changed.
TEST_PROGRAMS := bin/tests
# Tests on API servers wait most of the time, so packages and tests run in parallel.
# Writing debugging information takes almost half of the time of linking a program, and stack traces don't need it.
GO_TEST = go test -ldflags=-s -count=1 -timeout 20m -parallel 8
RACE_TEST = $(GO_TEST) $(RACE) -o $(TEST_PROGRAMS)/race/
PLAIN_TEST = env CGO_ENABLED=0 $(GO_TEST) -o $(TEST_PROGRAMS)/plain/
PACKAGES = go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vE '/(e2e|cmd/kubectl-rulefleet)$$'
# The race detector makes tests several times slower. These packages start no goroutines, and have no state that several
# goroutines use.
SEQUENTIAL := /(api/v1alpha1|charts|e2e/demo/dashboard|pkg/(interval|manifest|plugin(/(advice|ask|cluster|document|env|exit|join|output|why))?|reasons|rule/(compat|coverage|parameter|placeholder|templating)|spoke/(kubeconfig|renewal)|testing/(oracle|promtool|schema)))$$
TEST_SEQUENTIAL = $(PLAIN_TEST) -skip '$(MEASURED)' $$($(PACKAGES) | grep -E '$(SEQUENTIAL)')
# The go command starts them in this order: the longest comes first.
UNITS = ./pkg/spoke $$($(PACKAGES) | grep -vE '$(SEQUENTIAL)')
TEST_UNITS = $(RACE_TEST) -p $$(($$(getconf _NPROCESSORS_ONLN) + 1)) -skip '$(MEASURED)|$(MANY)' $(UNITS)
# Only the managers that the end-to-end tests start have the race detector. In the test program itself, it would take
# more than half of the CPU time.
E2E_TEST = env E2E_RACE=$(RACE) $(PLAIN_TEST)
# Tests of faults and of contested writes that measure the latency of a healthy spoke. They wait most of the time.
FAULTS := ^TestFault|^TestWars$$|^TestWarOfTwins$$
# Tests that measure time or memory run one after the other, without the race detector. The time of TestSlowLinks is that of
# its links.
MEASURED := AreBounded|^TestIsolation
HOSTILE := ^TestHostileSpokesAreBounded$$
MEASURING = $$(grep -lrE --include='*_test.go' 'func Test([A-Za-z0-9_]*AreBounded|Isolation)' cmd pkg | xargs -n 1 dirname | sort -u | sed 's|^|./|')
# Tests with many objects or hostile answers run without the race detector, which would cost almost a minute of CPU
# time for each; so does one with a limit of time for each megabyte. Other tests of the same code run with it. Most
# of the random schedules that use one goroutine at a time (pkg/testing/model) run without it, too.
MANY := ^TestMeterIsLinear$$|^TestHostileAnswers$$|^TestDenseAnswersAtOnce$$|^TestOneRuleOn1000Spokes$$|^Test1000RulesOnAFlappingSpoke$$
MANY := $(MANY)|^TestKubeStateMetrics$$|^TestEachSelectorHasItsTurn$$|^TestAnswersThatAreTooLarge$$
MANY := $(MANY)|^TestLanesOfHangingNamespaces$$|^TestFlapsOfANamespace$$|^TestFlapsOfManyNamespaces$$|^TestValidatorForgets$$|^TestCostOfPolls$$
WITH_MANY := ./pkg/spoke ./pkg/spoke/queue ./pkg/controller/evaluate ./pkg/controller/status ./pkg/rule/validation
TEST_MANY = $(PLAIN_TEST) -run '$(MANY)' $(WITH_MANY)
SCHEDULES := ./pkg/controller/generate ./pkg/controller/distribute ./pkg/controller/status
TEST_SCHEDULES = env GOGC=800 $(PLAIN_TEST) -run '^TestExplore$$' $(SCHEDULES)
# Without the race detector, these tests use the code that 'make build' compiled.
MEASURE = $(PLAIN_TEST) -p 1 -parallel 1 -run '$(MEASURED)'

.PHONY: test
test: programs test-programs test-integrations test-plugin ## Run the tests of all packages, the main end-to-end paths and one fault of each class. Run it for each change.
	@.ci/step 'tests (units)' $(TEST_UNITS) -short
	@.ci/beside 'tests (schedules)' .ci/idle $(TEST_SCHEDULES) -short -- 'tests (many)' $(TEST_MANY) -short
	@.ci/step 'tests that measure' $(MEASURE) $(MEASURING)
	@# The end-to-end tests wait a part of the time.
	@.ci/beside 'tests (sequential)' $(TEST_SEQUENTIAL) -p 1 -short -- 'tests (end to end)' $(E2E_TEST) -parallel 5 -short -skip '$(MEASURED)' ./e2e

.PHONY: test-all
test-all: programs test-programs test-integrations test-plugin ## Run all tests.
	@.ci/step 'tests (units)' $(TEST_UNITS)
	@# While .ci/run builds a node image, the tests with narrow limits of time and memory wait.
	@$(MAKE) --no-print-directory test-e2e
	@# Tests of hostile spokes and many objects wait half of the time. They bear what runs only while the CPU is idle.
	@.ci/beside 'tests in idle time' .ci/idle $(MAKE) --no-print-directory test-idle -- 'tests of hostile spokes and many objects' $(MAKE) --no-print-directory test-waiting
	@$(MAKE) --no-print-directory test-faults
	@.ci/step 'tests that measure' $(MEASURE) -skip '$(HOSTILE)' $(MEASURING) ./e2e

.PHONY: test-idle
test-idle: # what test-all runs while the CPU is idle: a fixed number of inputs, and not for a fixed time
	@.ci/step 'tests (sequential)' $(TEST_SEQUENTIAL)
	@.ci/step 'tests (schedules)' $(TEST_SCHEDULES)
	@$(MAKE) --no-print-directory fuzz FUZZTIME=5000x

.PHONY: test-waiting
test-waiting: # what test-all runs beside that
	@.ci/step 'tests of hostile spokes' $(MEASURE) -run '$(HOSTILE)' ./e2e
	@.ci/step 'tests (many)' $(TEST_MANY)

.PHONY: programs
programs: controlplane build pipeline note-race # the programs that tests start
	@go -C e2e/certmanager mod download # a test of the chart installs its CustomResourceDefinitions

.PHONY: test-programs
test-programs: # compiles and links the tests of Go: on an empty cache, this takes all cores for minutes
	@.ci/test-programs take $(TEST_PROGRAMS)
	@.ci/step 'test programs' $(RACE_TEST) -c $(UNITS)
	@.ci/step 'test programs without the race detector' $(PLAIN_TEST) -c $$($(PACKAGES) | grep -E '$(SEQUENTIAL)') $(SCHEDULES) $(WITH_MANY) \
		$(MEASURING) ./e2e ./cmd/kubectl-rulefleet
	@.ci/test-programs keep $(TEST_PROGRAMS)

.PHONY: test-pure
test-pure: note-race ## Run the tests of pkg/rule and its subpackages, which need no API server.
	@.ci/step 'tests (pure)' go test $(RACE) -skip '$(MEASURED)' ./pkg/rule/...

.PHONY: test-units
test-units: programs test-programs ## Run the tests of all packages but the end-to-end tests.
	@# Tests with many objects have limits of time. The others that need no race detector run while the CPU is idle.
	@.ci/beside 'tests (schedules)' .ci/idle $(TEST_SCHEDULES) -- 'tests (sequential)' .ci/idle $(TEST_SEQUENTIAL) -- 'tests (many)' $(TEST_MANY)
	@.ci/step 'tests (units)' $(TEST_UNITS)

.PHONY: test-e2e
test-e2e: programs ## Run the end-to-end tests: the manager on real API servers.
	@# Tests that wait almost all of their time run beside these five. With the fault suite beside them, the cores would
	@# always be busy, and limits of time would be exceeded.
	@.ci/step 'tests (end to end)' $(E2E_TEST) -parallel 5 -skip '$(FAULTS)|^TestExplore$$|$(MEASURED)' ./e2e

.PHONY: test-faults
test-faults: programs ## Break spokes and the hub in every known way, have others undo what is written, and print what followed.
	@rm -f bin/faults.txt
	@code=0; .ci/step 'tests (faults)' $(E2E_TEST) -run '$(FAULTS)' ./e2e || code=$$?; cat bin/faults.txt || true; exit $$code

.PHONY: test-measured
test-measured: programs ## Run the tests that measure time or memory, which run alone.
	@.ci/step 'tests that measure' $(MEASURE) $(MEASURING) ./e2e

.PHONY: bench-quick
bench-quick: controlplane ## Count the requests and the bytes of memory that a rule costs, and fail if they are more than they were.
	@.ci/step bench-quick env BENCH=quick $(PLAIN_TEST) -run '^TestBenchQuick$$' ./e2e

ROUNDS ?= 5
# The control planes of benchmarks use all cores, unlike those of tests.
BENCHMARK = env CGO_ENABLED=0 GOMAXPROCS=$$(getconf _NPROCESSORS_ONLN)

.PHONY: bench
bench: controlplane ## Measure times, memory and requests, beside a raw loop that does the same writes (ROUNDS=5: medians of so many).
	@.ci/step bench $(BENCHMARK) BENCH=full ROUNDS=$(ROUNDS) go test -count=1 -timeout 0 -v -run '^TestBench$$' ./e2e

SPOKES ?= 500
DEPLOYMENTS ?= 100

.PHONY: bench-fleet
bench-fleet: controlplane ## Measure a manager with a real hub and many simulated spokes (SPOKES=500, DEPLOYMENTS=100: in each, and then as many again).
	@.ci/step bench-fleet $(BENCHMARK) BENCH=fleet SPOKES=$(SPOKES) DEPLOYMENTS=$(DEPLOYMENTS) go test -count=1 -timeout 100m -v -run '^TestBenchFleet$$' ./e2e

TIME ?= 2m

# The revision of this repository from which 'make explore' and 'make e2e-upgrade' upgrade.
BEFORE ?=
BEFORE_MANAGER := $(CURDIR)/bin/rulefleet-manager-before

.PHONY: build-before
build-before:
	@.ci/step 'build: $(BEFORE)' bash -c 'set -eo pipefail; dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; git archive $(BEFORE) | tar -x -C $$dir; CGO_ENABLED=0 go build -C $$dir -buildvcs=false -o $(BEFORE_MANAGER) ./cmd/manager'

.PHONY: explore
explore: programs $(if $(BEFORE),build-before) ## Change and break a fleet of processes at random for TIME (2m), and compare it with what must hold (SEED=N repeats the choices of a run; BEFORE=REVISION upgrades from there).
	@.ci/step 'exploring' env SEED=$(or $(SEED),0) TIME=$(TIME) BEFORE=$(if $(BEFORE),$(BEFORE_MANAGER)) $(PLAIN_TEST) -timeout 0 -v -run '^TestExplore$$' ./e2e

CHECKS ?= 2000

.PHONY: explore-memory
explore-memory: ## Run CHECKS (2000) random schedules of operations and faults in memory (SEED=N repeats those of a failure).
	@# With GOGC=800, the garbage collector takes little of the time.
	@.ci/step 'exploring in memory' env CGO_ENABLED=0 GOGC=800 SEED=$(or $(SEED),0) go test -count=1 -timeout 0 -v -run '^TestExplore$$' $(SCHEDULES) ./pkg/controller/evaluate ./pkg/spoke -rapid.checks $(CHECKS)

.PHONY: explore-mutations
explore-mutations: ## Check that random schedules in memory find each of the mutations in pkg/testing/model/mutations_test.go.
	@.ci/step 'exploring mutations' env CGO_ENABLED=0 MUTATIONS=1 go test -count=1 -timeout 0 -v -run '^TestMutations$$' ./pkg/testing/model

.PHONY: test-plugin
test-plugin: controlplane ## Test the kubectl plugin as a program: completion, and its output on a terminal.
	@# With the race detector, each start of the plugin would take seconds.
	@.ci/step 'tests of the plugin' $(PLAIN_TEST) ./cmd/kubectl-rulefleet

.PHONY: test-integrations
test-integrations: ## Test how Argo CD, kstatus and Grafana read what Rulefleet makes.
	@.ci/step 'tests of integrations' env CGO_ENABLED=0 go -C e2e/integrations test ./...

# The tests on kind clusters need Docker. If kind cannot pull its node image, set E2E_NODE_IMAGE to another image.
MONITORING_IMAGE := rulefleet.test/monitoring:e2e
E2E := E2E_IMAGE=$(IMAGE) E2E_MONITORING_IMAGE=$(MONITORING_IMAGE) e2e/kind.sh

.PHONY: e2e
e2e: e2e-build ## Create a hub and spokes by kind, run the end-to-end tests there, and remove them (KEEP=1: don't).
	@$(E2E) all

.PHONY: e2e-build
e2e-build: controlplane promtool plugin image
	@.ci/step 'e2e: build' $(PLAIN_TEST) -c ./e2e
	@.ci/step 'e2e: image of a Prometheus' e2e/monitoring-image.sh $(MONITORING_IMAGE)

.PHONY: e2e-start
e2e-start: e2e-build ## Create those clusters, load the image, and install and join with the kubectl plugin.
	@$(E2E) start

.PHONY: e2e-test
e2e-test: e2e-build ## Run the end-to-end tests on those clusters; the last uninstalls the chart.
	@$(E2E) test

.PHONY: e2e-logs
e2e-logs: ## Collect the logs, events and objects of those clusters into a folder.
	@$(E2E) logs

.PHONY: e2e-stop
e2e-stop: ## Remove those clusters.
	@$(E2E) stop

.PHONY: e2e-upgrade
e2e-upgrade: plugin image ## Upgrade from the chart of the revision BEFORE on kind clusters of its own, with templates that have its keys, and remove them.
	@.ci/step 'e2e: upgrade from $(BEFORE)' e2e/upgrade.sh $(IMAGE) $(BEFORE)

# Builds the node image on machines that cannot reach a registry.
KIND_NODE_BUILDER ?= ../shared/kind-node/build-node-image.sh

.PHONY: node-image
node-image: ## Build an image of kind's nodes by KIND_NODE_BUILDER, in a docker daemon of its own.
	@.ci/step 'node image' env WORK=$$RULEFLEET_CACHE/kind-node $(KIND_NODE_BUILDER)

FUZZTIME ?= 10s

.PHONY: fuzz
fuzz: ## Fuzz each target of pkg/evaluator, pkg/rule/... and pkg/spoke/kubeconfig for FUZZTIME (10s).
	@# 'go test -fuzz' would link the program of a package anew for each of its targets.
	@for package in $$(go list ./pkg/evaluator ./pkg/rule/... ./pkg/spoke/kubeconfig); do \
		dir=$$(go list -f '{{.Dir}}' $$package); \
		grep -qs '^func Fuzz' $$dir/*_test.go || continue; \
		program=$(CURDIR)/$(TEST_PROGRAMS)/fuzz/$${package//\//-}; \
		go test -c -ldflags=-s -fuzz . -o "$$program" $$package; \
		targets=$$(cd $$dir && "$$program" -test.list '^Fuzz'); \
		for target in $$targets; do \
			(cd $$dir && $(CURDIR)/.ci/step "fuzzing: $$target" "$$program" -test.run '^$$' -test.fuzz "^$$target\$$" \
				-test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 100x -test.fuzzcachedir "$$(go env GOCACHE)/fuzz/$$package"); \
		done; \
	done
	@.ci/test-programs keep $(TEST_PROGRAMS)

.PHONY: note-race
note-race:
	@[[ -n "$(RACE)" ]] || echo "NOTE: no C compiler here, so the tests run without the race detector; install gcc and libc6-dev to have it"

##@ Verify

.PHONY: verify
verify: verify-files verify-scripts verify-workflows verify-modules verify-licences verify-vulnerabilities verify-generated verify-docs lint verify-lint ## Check all that can be checked without running it.

.PHONY: verify-files
verify-files: ## Check that no binary or other large file is in git.
	@.ci/step 'large files' bash -c '! git ls-files -z | xargs -0 -r stat --format="%s %n" | awk "\$$1 > 300000 { print; found = 1 } END { exit !found }"'

.PHONY: verify-generated
verify-generated: $(TOOLS)/controller-gen $(TOOLS)/crd-ref-docs $(TOOLS)/constants $(TOOLS)/helm-docs $(TOOLS)/helm-schema $(TOOLS)/diagram ## Check that what is generated is current.
	@.ci/step 'generated files' .ci/unchanged api $(CRDS) $(WEBHOOKS) docs/reference/api.md docs/reference/metrics.md docs/reference/reasons.md docs/cli docs/images $(CHART)/README.md $(CHART)/values.schema.json -- $(MAKE) --no-print-directory generate

# The files with texts for people: docs, messages in Go files, CRDs, and the comments and texts of the chart.
PROSE := '*.md' Makefile docs/examples 'api/*.go' 'cmd/*.go' 'pkg/*.go' 'e2e/demo/*.go' $(CHART)/values.yaml $(CHART)/templates \
	$(CHART)/files ':!pkg/testing' ':!*_test.go'

.PHONY: verify-docs
verify-docs: $(TOOLS)/prose $(TOOLS)/links ## Check that links resolve, that no page is too long, and that no text has a phrase that .ci/prose.txt refuses.
	@.ci/step 'tests of doc-tools' env CGO_ENABLED=0 go -C .ci/doc-tools test ./...
	@.ci/step links $(TOOLS)/links .
	@.ci/step prose bash -c "git ls-files -z -- $(PROSE) | xargs -0 $(TOOLS)/prose .ci/prose.txt"

.PHONY: verify-modules
verify-modules: ## Check that every go.mod and go.sum is tidy.
	@for module in $(MODULES); do .ci/step "go mod tidy: $$module" go -C "$$module" mod tidy -diff; done

.PHONY: verify-licences
verify-licences: build plugin $(TOOLS)/sbom ## Check that .ci/licences*.txt allow the licences of all modules in the manager and in the plugin.
	@.ci/step 'tests of supply-tools' env CGO_ENABLED=0 go -C .ci/supply-tools test ./...
	@.ci/step licences $(TOOLS)/sbom check .ci/licences.txt bin/rulefleet-manager
	@.ci/step 'licences of the plugin' $(TOOLS)/sbom check <(cat .ci/licences.txt .ci/licences-plugin.txt) bin/kubectl-rulefleet

.PHONY: verify-vulnerabilities
verify-vulnerabilities: $(TOOLS)/vulnerabilities ## Look for known vulnerabilities that the code of the manager and of the plugin reaches, if their database can be reached.
	@.ci/step vulnerabilities env CGO_ENABLED=0 $(TOOLS)/vulnerabilities $(if $(REQUIRE_VULNERABILITIES),-require) ./cmd/...

.PHONY: verify-scripts
verify-scripts: ## Check the syntax of shell scripts.
	@.ci/step 'shell scripts' .ci/shell-syntax

.PHONY: verify-workflows
verify-workflows: $(TOOLS)/actionlint ## Check the workflows of GitHub Actions.
	@.ci/step workflows $(TOOLS)/actionlint -shellcheck= -pyflakes=

.PHONY: verify-lint
verify-lint: ## Test our own linter, apiconventions.
	@.ci/step 'tests of apiconventions' env CGO_ENABLED=0 go -C .ci/tools test ./lint/apiconventions

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## Run the linters, go vet among them, and check the format.
	@.ci/step lint env CGO_ENABLED=0 $(TOOLS)/golangci-lint run ./...
	@cd e2e/integrations && $(CURDIR)/.ci/step 'lint: e2e/integrations' env CGO_ENABLED=0 $(CURDIR)/$(TOOLS)/golangci-lint run ./...

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## Format the Go files.
	$(TOOLS)/golangci-lint fmt

##@ Clean

.PHONY: clean
clean: ## Remove bin.
	rm -rf bin

.PHONY: clean-cache
clean-cache: ## Remove what is kept for later builds, for every checkout on this machine.
	@[[ ! $$RULEFLEET_CACHE -ef / && ! $$RULEFLEET_CACHE -ef $$HOME && ! $$RULEFLEET_CACHE -ef . ]] || { echo "RULEFLEET_CACHE is no folder of its own"; exit 1; }
	rm -rf "$${RULEFLEET_CACHE:?}"

# Tools, at the versions in .ci/tools/go.mod.

$(TOOLS)/controller-gen: .ci/tool $(TOOL_SOURCES)
	@.ci/step 'tool controller-gen' .ci/tool controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen

$(TOOLS)/crd-ref-docs: .ci/tool $(TOOL_SOURCES)
	@.ci/step 'tool crd-ref-docs' .ci/tool crd-ref-docs github.com/elastic/crd-ref-docs

$(TOOLS)/constants: .ci/tool $(TOOL_SOURCES)
	@.ci/step 'tool constants' .ci/tool constants ./constants

$(TOOLS)/golangci-lint: .ci/tool $(TOOL_SOURCES)
	@.ci/step 'tool golangci-lint' .ci/tool golangci-lint ./lint

$(TOOLS)/helm-docs: .ci/tool $(CHART_TOOL_SOURCES)
	@.ci/step 'tool helm-docs' .ci/tool helm-docs github.com/norwoodj/helm-docs/cmd/helm-docs chart-tools

$(TOOLS)/helm-schema: .ci/tool $(CHART_TOOL_SOURCES)
	@.ci/step 'tool helm-schema' .ci/tool helm-schema github.com/losisin/helm-values-schema-json/v2 chart-tools

$(TOOLS)/sbom: .ci/tool $(SUPPLY_TOOL_SOURCES)
	@.ci/step 'tool sbom' .ci/tool sbom ./sbom supply-tools

$(TOOLS)/dist: .ci/tool $(SUPPLY_TOOL_SOURCES)
	@.ci/step 'tool dist' .ci/tool dist ./dist supply-tools

$(TOOLS)/vulnerabilities: .ci/tool $(SUPPLY_TOOL_SOURCES)
	@.ci/step 'tool vulnerabilities' .ci/tool vulnerabilities ./vulnerabilities supply-tools

$(TOOLS)/actionlint: .ci/tool $(SUPPLY_TOOL_SOURCES)
	@.ci/step 'tool actionlint' .ci/tool actionlint github.com/rhysd/actionlint/cmd/actionlint supply-tools

$(TOOLS)/prose: .ci/tool $(DOC_TOOL_SOURCES)
	@.ci/step 'tool prose' .ci/tool prose ./prose doc-tools

$(TOOLS)/links: .ci/tool $(DOC_TOOL_SOURCES)
	@.ci/step 'tool links' .ci/tool links ./links doc-tools

$(TOOLS)/diagram: .ci/tool $(DOC_TOOL_SOURCES)
	@.ci/step 'tool diagram' .ci/tool diagram ./diagram doc-tools

$(TOOLS)/terminal: .ci/tool $(DOC_TOOL_SOURCES)
	@.ci/step 'tool terminal' .ci/tool terminal ./terminal doc-tools
