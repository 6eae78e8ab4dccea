# Everything runs from a fresh clone: each target builds the virtual environment it needs first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --retries 10 --timeout 60
SERVE ?= 1
PORT ?= 8000
# Without this, the theme prints a notice about its successor at each build.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
SEED ?= $(shell date +%s)
EXAMPLES ?= 50
# Tests start hundreds of processes: without its bytecode each would spend a second on compiling GymWeb.
unexport PYTHONDONTWRITEBYTECODE
export PYTEST_ADDOPTS ?= --durations 25
# What is installed is remembered by the content of the locks, since a checkout changes times but not contents.
LOCK := $(shell cat requirements.txt | cksum | cut -d ' ' -f 1)
LOCK_DEV := $(shell cat requirements.txt requirements-dev.txt | cksum | cut -d ' ' -f 1)
INSTALLED := $(VENV)/.installed-$(LOCK)
INSTALLED_DEV := $(VENV)/.installed-dev-$(LOCK_DEV)
TEMPLATES := $(shell find templates -name '*.html')
INSTALLED_FRONTEND := frontend/node_modules/.installed-$(shell cksum < frontend/package-lock.json | cut -d ' ' -f 1)
HAS_NODE := $(shell node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null && command -v npm)

.DEFAULT_GOAL := help
.PHONY: help demo serve screenshots test test-slow test-faults sandbox-escapes environments fuzz test-containers test-vllm test-agents test-nemo test-tracking test-trainers test-receivers check docs docs-serve bench test-scale transfers vllm trainers agents trace-receivers vllm-demo closed-loop tiny-policy lock vendor schema wheels sbom format clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1 \t\2/p' Makefile | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'GymWeb needs Python 3.11 or newer: install it, or name it: make PYTHON=python3.12'; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo 'Could not create a virtual environment. On Debian and Ubuntu: apt-get install python3-venv'; exit 1; }

$(INSTALLED): | $(BIN)/python
	$(PIP) install --quiet -r requirements.txt
	$(PIP) install --quiet --no-deps --editable clients/python
	@rm -f $(VENV)/.installed-* && touch $@

$(INSTALLED_DEV): $(INSTALLED)
	$(PIP) install --quiet -r requirements-dev.txt
	@rm -f $(VENV)/.installed-dev-* && touch $@

$(INSTALLED_FRONTEND):
	cd frontend && npm ci --ignore-scripts --no-audit --no-fund --fetch-retries=5 --loglevel=error
	@touch $@

demo: $(INSTALLED) ## a collection from tasks to files, then the dashboard; SERVE=0 ends after the summary
	SERVE=$(SERVE) $(BIN)/python manage.py demo $(if $(filter 0,$(SERVE)),--no-serve) --port $(PORT)

serve: $(INSTALLED) ## web and worker in one process
	$(BIN)/python manage.py migrate --verbosity 0
	$(BIN)/python manage.py serve --port $(PORT)

screenshots: $(INSTALLED_DEV) ## the pictures of docs/use/tour.md and docs/use/environments/, from attempts without a model, with Chromium
	$(BIN)/python -m scripts.take_screenshots
	$(BIN)/python -m scripts.picture_environments

test: $(INSTALLED_DEV) ## the tests that take a few seconds at most each
	$(BIN)/python -m pytest -n 2 -m "not slow"

# Tests of one file share a server and what earlier ones stored: they run in order, in one process. A third process works
# while others wait for browsers. By default, the files with one test would come last, and these take the longest.
test-slow: $(INSTALLED_DEV) ## browsers, whole processes, every route and role, generated requests
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m slow --ignore=tests/containers --ignore=tests/faults --ignore=tests/vllm --ignore=tests/trainers --ignore=tests/agent_sdks --ignore=tests/nemo_gym/real --ignore=tests/trace_receivers --ignore=tests/tracking

# Most of their time is waiting. What measures a rate runs by itself, since a busy machine uses less of it.
test-faults: $(INSTALLED_DEV) ## real processes on PostgreSQL and Redis, killed, stopped and starved; FAULTS=full runs the full size
	$(BIN)/python -m pytest -n 3 -v -rP tests/faults --ignore=tests/faults/test_throttling_models.py
	$(BIN)/python -m pytest -n 3 -v -rP tests/faults/test_throttling_models.py

fuzz: $(INSTALLED_DEV) ## the API against its own schema, with boundary values and another seed; SEED=1 EXAMPLES=100 choose
	FUZZ_SEED=$(SEED) FUZZ_EXAMPLES=$(EXAMPLES) FUZZ_PHASES=examples,coverage,fuzzing $(BIN)/python -m pytest -q -rP tests/fuzz

# Each builds the environments it needs, and records the content that it passed with for .ci/run.
test-containers: $(INSTALLED_DEV) ## as root with Podman: the image, compose.yaml, an upgrade from the version before
	$(BIN)/python scripts/suites.py run containers

test-vllm: $(INSTALLED_DEV) ## a real vLLM server: both wires, calls, tokens, many rollouts at once, a server that is killed
	$(BIN)/python scripts/suites.py run vllm

test-agents: $(INSTALLED_DEV) ## the examples and recipes of agent packages with a scripted model: every API, streamed and not
	$(BIN)/python scripts/suites.py run agents

test-nemo: $(INSTALLED_DEV) ## NeMo Gym's servers and agents, unmodified: each reward equals that of its own agent; needs Python 3.13
	$(BIN)/python scripts/suites.py run nemo

test-tracking: $(INSTALLED_DEV) ## runs in a real MLflow server and in files of W&B, Trackio and TensorBoard; pushes to a stand-in for the Hugging Face Hub
	$(BIN)/python scripts/suites.py run tracking

test-trainers: $(INSTALLED_DEV) ## the real trainers: every TRL export loaded, two steps of each trainer, what its loss sees
	$(BIN)/python scripts/suites.py run trainers

test-receivers: $(INSTALLED_DEV) ## real Phoenix and MLflow servers store exported traces
	@$(PYTHON) scripts/build_environment.py phoenix
	@$(PYTHON) scripts/build_environment.py mlflow
	$(BIN)/python -m pytest -q -rP -m slow tests/trace_receivers

# The checks look at code, not at rows: a database in memory keeps them off yours.
check: export GYMWEB_DATABASE_URL = sqlite://:memory:
check: $(INSTALLED_DEV) $(if $(HAS_NODE),$(INSTALLED_FRONTEND)) ## format, lint, types, import contracts, migrations, the API's schema, odd words, layout, the pages' scripts, the docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/djade --check --target-version 5.2 $(TEMPLATES)
	$(BIN)/mypy apps gymweb scripts examples clients/python
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python scripts/check_schema.py
	$(BIN)/python scripts/client_operations.py
	$(BIN)/python scripts/check_words.py
	$(BIN)/python scripts/check_layout.py
	$(BIN)/python scripts/check_assertions.py
	$(BIN)/python scripts/verifier_reference.py
	$(MKDOCS) build --strict
	$(if $(HAS_NODE),frontend/node_modules/.bin/eslint --config frontend/eslint.config.js static/js frontend,@echo 'SKIPPED by name: ESLint and the tests of static/js, which need Node 20 and npm')
	$(if $(HAS_NODE),node --experimental-vm-modules --no-warnings --test frontend/tests/*.test.js)

# A warning is an error: a broken link, a missing anchor, a page outside the navigation.
docs: $(INSTALLED_DEV) ## build the docs site in site/; fails on broken links
	$(MKDOCS) build --strict

docs-serve: $(INSTALLED_DEV) ## serve the docs on port 8002 and rebuild them on each change
	$(MKDOCS) serve --dev-addr 127.0.0.1:8002

schema: $(INSTALLED) ## write docs/openapi.yaml, and the operations that `gymweb` has its options from
	$(BIN)/python scripts/check_schema.py --write
	$(BIN)/python scripts/client_operations.py --write

wheels: $(INSTALLED) ## the wheel of the Python client and `gymweb`, in dist/
	$(PIP) wheel --quiet --no-deps --wheel-dir dist ./clients/python
	@ls dist/gymweb_client-*.whl

sbom: $(INSTALLED_DEV) ## the Python packages of the image in CycloneDX's format, in dist/
	@mkdir -p dist
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible -o dist/gymweb.cdx.json requirements.txt
	@ls dist/gymweb.cdx.json

sandbox-escapes: $(INSTALLED_DEV) ## ways out of the sandbox for code, each tried for real, and what became of it
	$(BIN)/python -m pytest -q -rP tests/gym/sandbox/test_escapes.py

environments: $(INSTALLED) ## what each built-in environment gives to who solves its tasks and to who knows nothing; fails beyond 0.99 and 0.1
	$(BIN)/python scripts/measure_environments.py

bench: $(INSTALLED) ## what a rollout costs, one JSON object a line; BENCH=engine.sqlite runs some
	$(BIN)/python scripts/bench.py $(BENCH)

# Each part is run whatever became of those before it; one that misses a budget makes the whole fail.
test-scale: $(INSTALLED) ## a million rollouts and a million tasks: queue, figures, lists, pairs, uploads, export, deletion; fails over budget
	@failed=0; run() { echo "$$@"; "$$@" || failed=1; }; \
	run $(BIN)/python scripts/bench.py engine.claim engine.claim.sqlite engine.live_loops sandbox.executions calls figures.postgres --hold; \
	run $(BIN)/python -m scripts.measure_lists; \
	run $(BIN)/python -m scripts.measure_reading; \
	run $(BIN)/python -m scripts.measure_reviewing; \
	run $(BIN)/python -m scripts.measure_endings; \
	run $(BIN)/python -m scripts.measure_failures; \
	run $(BIN)/python -m scripts.measure_exports; \
	run $(BIN)/python -m scripts.measure_pairs; \
	run $(BIN)/python -m scripts.measure_uploads speed; \
	run $(BIN)/python -m scripts.measure_uploads rows; \
	run $(BIN)/python -m scripts.measure_uploads hostile; \
	exit $$failed

transfers: $(INSTALLED_DEV) ## what a gigabyte in, 300 MB out and files made to hurt cost a real server's memory
	$(BIN)/python -m scripts.measure_transfers
	$(BIN)/python -m scripts.measure_uploads hostile

vllm: ## a real model server without a GPU, in an environment of its own; prints its folder
	@$(PYTHON) scripts/build_environment.py vllm

trainers: ## what trains on exports, without a GPU, in an environment of its own; prints its folder
	@$(PYTHON) scripts/build_environment.py trainers
	@$(PYTHON) scripts/build_environment.py verl

agents: ## the agent packages of examples/agents/ and of its recipes, in environments of their own; prints their folders
	@$(PYTHON) scripts/build_environment.py agents
	@$(PYTHON) -m scripts.agent_recipes

trace-receivers: ## Phoenix and MLflow, in environments of their own; prints their folders
	@$(PYTHON) scripts/build_environment.py phoenix
	@$(PYTHON) scripts/build_environment.py mlflow

# A model on this machine is called by its loopback address, which an installation must allow; yours stands.
vllm-demo: export GYMWEB_OUTBOUND_ALLOW ?= 127.0.0.1
vllm-demo: $(INSTALLED) ## the demo with a real model: vLLM on this machine, the tiny policy, its tokens; SERVE=0 ends after the summary
	@$(PYTHON) scripts/build_environment.py vllm
	$(BIN)/python manage.py vllm_demo $(if $(filter 0,$(SERVE)),--no-serve) --port $(PORT)

# As above: a model on this machine is called by its loopback address.
closed-loop: export GYMWEB_OUTBOUND_ALLOW ?= 127.0.0.1
closed-loop: $(INSTALLED) ## collect with a real model, export, fine-tune with TRL, serve, collect again: the reward rises; SEEDS=0 runs one
	@$(PYTHON) scripts/build_environment.py vllm
	@$(PYTHON) scripts/build_environment.py trainers
	$(BIN)/python examples/closed_loop/loop.py $(if $(SEEDS),--seeds $(SEEDS))

tiny-policy: ## train examples/tiny_policy anew, in the environment of `make vllm`
	@environment=$$($(PYTHON) scripts/build_environment.py vllm) && \
	  nice -n 19 "$$environment/bin/python" scripts/train_tiny_policy.py

format: $(INSTALLED_DEV) ## format, and mend what lint can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/djade --target-version 5.2 $(TEMPLATES)

vendor: $(INSTALLED) $(INSTALLED_FRONTEND) ## copy the foreign scripts of the pages from npm's packages to static/vendor, and list them
	$(BIN)/python scripts/vendor.py

lock: ## compile the requirements
	$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet pip-tools
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links -o requirements.txt requirements.in
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links -o requirements-dev.txt requirements-dev.in
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links \
	  --unsafe-package torchaudio --unsafe-package torchcodec --unsafe-package torchvision --unsafe-package triton \
	  -o requirements-vllm.txt requirements-vllm.in
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links \
	  --unsafe-package torchaudio --unsafe-package torchvision --unsafe-package triton \
	  -o requirements-trainers.txt requirements-trainers.in
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links \
	  --unsafe-package torchaudio --unsafe-package torchvision --unsafe-package triton \
	  -o requirements-verl.txt requirements-verl.in
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links -o requirements-agents.txt requirements-agents.in
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links -o requirements-otel.txt requirements-otel.in
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links -o requirements-phoenix.txt requirements-phoenix.in
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links -o requirements-mlflow.txt requirements-mlflow.in
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links -o requirements-tracking.txt requirements-tracking.in
	rm -rf $(VENV)-lock

clean: ## forget the virtual environment and everything in var/
	rm -rf $(VENV) var static-root site
