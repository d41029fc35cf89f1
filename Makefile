# Two commands start everything: `make demo` and `make test`. Each makes .venv if it is missing.

PYTHON ?= python3
BIN := .venv/bin

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

demo: .venv/demo ## train a float16 network seven ways on real data; the picture goes into ./demo
	$(BIN)/ampscale demo --out demo

test: .venv/ready ## all tests
	$(BIN)/python -m pytest -n auto --dist worksteal

test-oracles: .venv/ready ## each preset beside the published object; minutes, and 8 GB of environments
	$(BIN)/python tests/oracles/compare.py

conform-matrix: .venv/ready ## the suite on every implementation, each in its own environment; minutes, and 8 GB
	$(BIN)/python conformance/tests/matrix/run.py

conform-audit: .venv/ready ## the suite itself: each wrong implementation caught, each case and expectation needed
	cd conformance/tests && ../../$(BIN)/python -m mutants.audit

check: .venv/ready ## format, lint, types, and every vector computed anew
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=tools $(BIN)/python -m spec_vectors

bench: .venv/bench ## what everything costs, beside its rivals and this machine's floor; 40 minutes
	$(BIN)/python benchmarks/bench.py

.venv/demo: pyproject.toml constraints.txt
	$(call install,demo)

.venv/ready: pyproject.toml conformance/pyproject.toml constraints.txt
	$(call install,dev)

.venv/bench: pyproject.toml constraints.txt
	$(call install,bench)

define install
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ampscale needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(1)]' --editable './conformance[pytest,random]'
	@touch $@
endef

.PHONY: help demo test test-oracles conform-matrix conform-audit check bench
