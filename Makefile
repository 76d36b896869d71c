# `make` alone prints the targets. Needs make and Python 3.11 or newer; PYTHON=python3.12 picks one.

PYTHON =
PY = .venv/bin/python
T =
M = $(if $(T),,not release and not clock)
N = auto
E = quick
U =
L =
PYTEST = pytest

.DEFAULT_GOAL = help
.NOTPARALLEL:
.PHONY: help run test check lint types demo bench bench-check lock audit dist clean

help: ## print the targets
	@echo 'Targets:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile

run: .venv/.installed ## start the service with a database of its own; Ctrl-C stops both
	@$(PY) -m cms serve

# Tests are compiled once, also where PYTHONDONTWRITEBYTECODE is set, and so are the hundreds of processes that they
# start: to compile everything in each worker takes longer than to collect the tests.
test: .venv/.installed ## run the tests; T=tests/unit runs a part, E=full tries all examples, POSTGRES_BIN=/its/bin on another PostgreSQL
	@PYTHONDONTWRITEBYTECODE= $(PY) -m $(PYTEST) --numprocesses $(N) --dist loadfile --no-loadscope-reorder -m '$(M)' --hypothesis-profile $(E) $(T)

check: lint types ## what CI runs: lint, types, and all tests, those with real processes too; what fails runs again, alone
	@$(MAKE) --no-print-directory test M='not clock' E=full PYTEST=tests.retry_failures
	@$(MAKE) --no-print-directory test M=clock N=1 E=full PYTEST=tests.retry_failures

lint: .venv/.installed ## look for mistakes and unformatted code
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check

types: .venv/.installed ## check the types
	@$(PY) -m mypy

demo: .venv/.installed ## fill the running service with countries and cities
	@$(PY) -m cms demo

bench: .venv/.installed ## measure the service beside its floor; L=1 also measures 10,000,000 rows
	@$(PY) -m bench $(if $(L),--large)

bench-check: .venv/.installed ## compare the ratios of now with the recorded ones; fails below 0.85 of one
	@$(PY) -m bench --check

lock: .venv/.locked ## renew the lock file and the list of licences after a change in setup.cfg; U=1 also takes newer versions
	@UV_CUSTOM_COMPILE_COMMAND='make lock' $(PY) -m uv pip compile setup.cfg --extra dev --universal \
	  --python-version 3.11 --generate-hashes --quiet $(if $(U),--upgrade) --output-file requirements.lock
	@$(MAKE) --no-print-directory .venv/.installed
	@list=$$($(PY) -m piplicenses) && text=$$(sed '/^|/,$$d' docs/licences.md) && \
	  printf '%s\n\n%s\n' "$$text" "$$list" >docs/licences.md

# pip-audit ends with 1 for vulnerabilities and for its own errors, and with 0 where the service knows no package.
audit: .venv/.installed ## look for known vulnerabilities of the locked packages
	@report=$$($(PY) -m pip_audit --requirement requirements.lock --require-hashes --disable-pip \
	  --progress-spinner off 2>&1); status=$$?; \
	case $$report in \
	  *'known vulnerabilit'*) ;; \
	  *ConnectionError*|*ConnectTimeout*|*ReadTimeout*|*ServiceError*) status=0; \
	    report="NOT AUDITED: the service cannot be reached. $$(printf '%s\n' "$$report" | tail -n 1)" ;; \
	esac; \
	printf '%s\n' "$$report" | awk '/could not be audited/ { unknown++; next } { print } \
	  END { if (unknown) print "NOT AUDITED: " unknown " packages that the service does not know." }'; \
	exit $$status

# Setuptools writes into an sdist the times, modes and owners of the checkout; its wheels take the modes from there.
dist: .venv/.installed ## build the sdist and the wheel with GNU tar; the same commit gives the same bytes
	@export SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} && umask 022 && rm -rf build/sdist && \
	$(PY) -m build --no-isolation --sdist --outdir build/sdist && \
	name=$$(basename build/sdist/*.tar.gz .tar.gz) && mkdir -p dist && \
	tar -xzf build/sdist/$$name.tar.gz -C build/sdist && chmod -R u=rwX,go=rX build/sdist/$$name && \
	tar -c --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mtime=@$$SOURCE_DATE_EPOCH \
	  -C build/sdist $$name | gzip -n >dist/$$name.tar.gz && \
	$(PY) -m build --no-isolation --wheel --outdir dist build/sdist/$$name

clean: ## remove what can be made again: .venv, caches, builds; never data
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find cms tests bench sql -type d -name __pycache__ -prune -exec rm -rf {} +

# Stamps stand for the whole folder, so that a change of the dependencies installs them. A .venv without
# a working pip is one that was interrupted, or whose Python is gone: it is made anew.
.venv/.locked: requirements.lock
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
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	@touch .venv/.locked

# Setuptools warns of every editable installation. Without an index nothing comes in that is not locked.
.venv/.installed: .venv/.locked setup.cfg pyproject.toml
	@PYTHONWARNINGS=ignore $(PY) -m pip --isolated install --quiet --disable-pip-version-check --no-index \
	  --no-build-isolation --editable '.[dev]' || { \
	  echo 'requirements.lock does not have what setup.cfg requires: `make lock` renews it.' >&2; exit 1; \
	}
	@touch .venv/.installed
