# `make` alone prints the targets. Needs make and Python 3.11 or newer; PYTHON=python3.12 picks one.

PYTHON =
PY = .venv/bin/python
T =
M = $(if $(T),,not release)
E = quick

.DEFAULT_GOAL = help
.NOTPARALLEL:
.PHONY: help run test check lint types demo bench clean

help: ## print the targets
	@echo 'Targets:'
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile

run: .venv/.installed ## start the service with a database of its own; Ctrl-C stops both
	@$(PY) -m cms serve

test: .venv/.installed ## run the tests; T=tests/unit runs a part, E=full tries all examples, POSTGRES_BIN=/its/bin on another PostgreSQL
	@$(PY) -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -m '$(M)' --hypothesis-profile $(E) $(T)

check: lint types ## what CI runs: lint, types, and all tests, those with real processes too
	@$(MAKE) --no-print-directory test M= E=full

lint: .venv/.installed ## look for mistakes and unformatted code
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check

types: .venv/.installed ## check the types
	@$(PY) -m mypy

demo: .venv/.installed ## fill the running service with countries and cities
	@$(PY) -m cms demo

bench: .venv/.installed ## measure the service beside its floor
	@$(PY) -m bench

clean: ## remove what can be made again: .venv, caches, builds; never data
	rm -rf .venv build dist cms.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find cms tests bench sql -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamp stands for the whole folder, so that a change of the dependencies installs them. A .venv without
# a working pip is one that was interrupted, or whose Python is gone: it is made anew.
.venv/.installed: setup.cfg pyproject.toml
	@$(PY) -m pip --version >/dev/null 2>&1 || { \
	  for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 none; do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	  done; \
	  if test "$$python" = none; then \
	    echo 'Python 3.11 or newer is needed, as python3 or with PYTHON=/its/path.' >&2; exit 1; \
	  fi; \
	  echo "Making .venv with $$("$$python" --version)."; \
	  "$$python" -m venv --clear .venv || { \
	    rm -rf .venv; \
	    echo 'On Debian and Ubuntu the package python3-venv is needed: apt-get install python3-venv' >&2; \
	    exit 1; \
	  }; \
	}
	@echo 'Installing into .venv.'
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch .venv/.installed
