# Two commands: `make demo` and `make test`. Both set up .venv first, once.
PYTHON ?= python3
BIN := .venv/bin
CONSTRAINTS ?= constraints.txt

.PHONY: demo test lint types docs setup clean

demo: .venv/.dev
	$(BIN)/ancl demo

test: .venv/.dev lint types
	$(BIN)/python -m pytest -q -n 2 -rs
	for script in learner own_loop outside_network from_python; do \
		$(BIN)/python examples/$$script.py || exit 1; done
	$(BIN)/ancl demo --quick --runs .venv/smoke --quiet

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell src docs examples benchmarks README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md scripts
	$(BIN)/lint-imports --config .importlinter

types: .venv/.dev
	$(BIN)/mypy

# The site needs neither torch nor ancl: docstrings are read, not imported.
docs: .venv-docs/.done
	.venv-docs/bin/zensical build --clean --strict

.venv-docs/.done: scripts/docs-requirements.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

setup: .venv/.dev

.venv/.dev: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; set PYTHON=") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-docs site build dist .mypy_cache .ruff_cache .pytest_cache
