# Two commands start everything: `make demo` and `make test`. Each makes .venv if it is missing.

PYTHON ?= python3
LIBRARIES ?= numpy torch jax
BIN := .venv/bin
PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal
comma := ,
space := $(subst ,, )
joined = $(subst $(space),$(1),$(strip $(LIBRARIES)))
READY = .venv/dev-$(call joined,-)
FAST = tests/core tests/backends/numpy tests/test_functional.py tests/test_optimizers.py tests/test_architecture.py conformance/tests/oracle

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

demo: .venv/demo ## train a float16 network seven ways on real data; the picture goes into ./demo
	$(BIN)/ampscale demo --out demo

test: $(READY) ## tests of both distributions; ARGS="-k growth" selects, LIBRARIES="numpy jax" does without torch
	AMPSCALE_TEST_LIBRARIES="$(LIBRARIES)" $(PYTEST) -m "not slow" $(ARGS)

test-fast: $(READY) ## the definitions, the NumPy backend and the oracle, without torch and JAX
	AMPSCALE_TEST_LIBRARIES=numpy $(PYTEST) -m "not slow" $(FAST) $(ARGS)

test-all: $(READY) ## tests of both distributions, the slow ones among them
	AMPSCALE_TEST_LIBRARIES="$(LIBRARIES)" $(PYTEST) $(ARGS)

test-oracles: $(READY) ## each preset beside the published object; minutes, and 8 GB of environments
	$(BIN)/python tools/oracles/compare.py

conform-matrix: $(READY) ## the suite on every implementation, each in its own environment; minutes, and 8 GB
	$(BIN)/python conformance/tests/matrix/run.py

conform-audit: $(READY) ## the suite itself: each mutant killed, each case and expectation needed
	cd conformance/tests && ../../$(BIN)/python -m mutants.audit

mutants: $(READY) .venv-mutants/ready ## a sample of mutants of the library, each against the tests that mirror its file; an hour
	$(BIN)/python tools/mutants/run.py $(ARGS)

check: $(READY) ## format, lint, types, and every vector computed again by the oracle
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=tools $(BIN)/python -m spec_vectors

fuzz: $(READY) ## ten million mutated inputs for all parsers; 20 minutes, or INPUTS=100000
	PYTHONPATH=tools $(BIN)/python -m fuzz --inputs $(or $(INPUTS),10000000) --seed $(or $(SEED),0) $(if $(ONLY),--only "$(ONLY)") --out tools/fuzz/result.json

bench: .venv/bench ## what everything costs, beside other implementations and this machine's floor; 40 minutes
	$(BIN)/python benchmarks/bench.py

.venv/demo: pyproject.toml constraints.txt
	$(call install,.[demo])

.venv/dev-%: pyproject.toml conformance/pyproject.toml constraints.txt
	$(call install,.[dev$(comma)$(call joined,$(comma))] --editable ./conformance[pytest$(comma)random])

.venv/bench: pyproject.toml constraints.txt
	$(call install,.[bench])

.venv-mutants/ready:
	$(PYTHON) -m venv .venv-mutants
	.venv-mutants/bin/python -m pip install --quiet --constraint constraints.txt cosmic-ray
	@touch $@

define install
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ampscale needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable $(1)
	@touch $@
endef

.PHONY: help demo test test-fast test-all test-oracles conform-matrix conform-audit mutants check bench fuzz
