# Every target installs what it misses (scripts/bootstrap), says what it does, and can be run again.
#   make demo      compile a Torch transformer block for two GPUs into out/, each register assignment proved
#   make test      lint, types, import arrows, and the quick tests
#   make test-all  the long tests too, with llc's machine verifier
#   make train-smoke  train a small model from scratch and measure it, in minutes
#   make lint      ruff, pyright, import-linter
#   make docs      the pages and the API as a site in out/site
#   make venv      this project in .venv, without the front ends
#   make llvm      an llc of LLVM 22 or newer by apt-get; without one, the LLVM 24 in Triton's package is used
#   make doctor    what is found, what is missing, and the command that mends it
#   make clean     remove out/ and caches; .venv stays (make distclean removes it too)
SHELL := /bin/sh
PY := .venv/bin/python
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 8 ] && n=8; echo $$n)
# Tests start hundreds of Python processes: each reads the byte code that the first one wrote.
PYTEST := PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n $(JOBS)

.PHONY: help tools demo test test-all train-smoke lint docs doctor clean distclean llvm venv venv-dev
help:
	@sed -n '1,12s/^#  *//p' Makefile

tools:
	@scripts/bootstrap tools

llvm:
	@scripts/bootstrap llvm

venv:
	@scripts/bootstrap venv

venv-dev:
	@scripts/bootstrap venv dev

demo: tools
	@scripts/bootstrap venv torch
	@$(PY) examples/demo.py --out out

lint: venv-dev
	@echo "lint: ruff check, ruff format"
	@$(PY) -m ruff check -q .
	@$(PY) -m ruff format -q --check .
	@echo "lint: import arrows"
	@PYTHONPATH=model .venv/bin/lint-imports --no-cache
	@echo "lint: pyright (strict)"
	@.venv/bin/pyright -p pyproject.toml --pythonpath $(PY)

test: tools lint
	$(PYTEST) -m "not long"

# llc's machine verifier is a second opinion on everything that is compiled.
test-all: export VERILOCC_VERIFY := 1
test-all: tools lint
	$(PYTEST)

train-smoke: tools venv-dev
	$(PY) -m pytest -p no:cacheprovider tests/model/test_training.py

docs:
	@scripts/bootstrap venv docs
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict
	@echo "docs: out/site/index.html"

doctor: venv
	@.venv/bin/verilocc doctor

clean:
	rm -rf out .pytest_cache .ruff_cache .hypothesis build dist examples/node_client/node_modules
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
