# Two commands are enough on a fresh machine (Python 3.11 or later with venv, and make): make demo, make test.
# Override: PYTHON=python3.12 (interpreter), VENV=folder (environment), WORKERS=4 (test processes).

SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
UV ?= uv
BIN := $(VENV)/bin
CODE := coco_opt solvers experiments tests docs notebooks

# Only what the lock pins may be imported. Bytecode is kept: without it each process compiles every module again.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help env demo test check tests test-slow mutants faults evidence format docs notebooks bench lock clean

help: ## Print this list
	@echo "usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

# The stamps make an interrupted installation start again, and a changed lock or pyproject.toml reinstall. As pip does
# for packages, modules are compiled to bytecode at once: a third of a second of every start, where Python may not.
$(VENV)/.locked: requirements.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "coco-opt needs Python 3.11 or later: set PYTHON=python3.11" >&2; exit 1; }
	@echo "1 of 4: creating the environment $(VENV) (161 packages, 2.0 GB; one to three minutes in all, once)"
	@"$(PYTHON)" -m venv "$(VENV)"
	@echo "2 of 4: downloading and installing the pinned packages"
	@set -o pipefail; PYTHONUNBUFFERED=1 "$(BIN)/python" -m pip install --progress-bar off --no-input --only-binary :all: \
		--require-hashes -r requirements.txt | awk '/^Collecting/ && ++n % 10 == 0 { print "        " n " packages found" } \
		/^Installing/ { print "        installing all of them" } { fflush() }'
	@touch "$@"

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	@echo "3 of 4: installing coco-opt from this folder"
	@"$(BIN)/python" -m pip install --quiet --no-input --no-deps --no-build-isolation -e .
	@echo "4 of 4: translating it to bytecode"
	@"$(BIN)/python" -m compileall -q coco_opt solvers experiments
	@touch "$@"

env: $(VENV)/.installed ## Create or update the environment only

demo: env ## Release made data with seeded noise, verify it, print the errors and where the report lies
	@"$(BIN)/coco-opt" demo

test: check tests ## Linters, types, layers, budgets of lines and every test but the slow ones

check: env ## Linters, types, layers and budgets of lines only
	@"$(BIN)/ruff" check $(CODE)
	@"$(BIN)/ruff" format --check $(CODE)
	@"$(BIN)/mypy"
	@"$(BIN)/mypy" docs/every_name.py
	@"$(BIN)/lint-imports" --no-logo --no-cache
	@"$(BIN)/python" -m tests.lines

tests: env
	@"$(BIN)/python" -m pytest -m "not slow" -n $(WORKERS)

# pytest's exit status 5 means that no test carries the marker.
test-slow: env ## The statistical tests that take minutes
	@"$(BIN)/python" -m pytest -m slow -n $(WORKERS) || { status=$$?; [ $$status -eq 5 ] && echo "no test is marked slow" || exit $$status; }

mutants: env ## Plant faults in the package one by one; each must be noticed by the test named for it
	@"$(BIN)/python" -m tests.mutation --workers $(WORKERS)

faults: env ## Stop releases of every kind at every operation and take them up again (an hour)
	@COCO_OPT_FAULTS=all "$(BIN)/python" -m pytest -n $(WORKERS) -m slow -rP tests/releases/test_faults.py

evidence: env ## Run the tests behind every promise of SECURITY.md, one promise after the other (an hour)
	@"$(BIN)/python" -m tests.evidence --run

format: env ## Rewrite the code in the project's format
	@"$(BIN)/ruff" check --fix $(CODE)
	@"$(BIN)/ruff" format $(CODE)

docs: env ## Build the documentation; open docs/_build/index.html
	@"$(BIN)/python" -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "docs/_build/index.html"

notebooks: env ## Execute the notebooks in place
	@"$(BIN)/jupyter" execute --inplace notebooks/*.ipynb

bench: env ## Kernels and certified solves beside their peers
	@"$(BIN)/coco-opt" bench

lock: ## Pin requirements.txt again from pyproject.toml (needs uv)
	@"$(UV)" pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-annotate --no-emit-index-url --custom-compile-command "make lock" --quiet --output-file requirements.txt

clean: ## Remove caches and build products (never the environment, releases/ or private/)
	@rm -rf build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
