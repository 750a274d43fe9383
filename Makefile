# The two commands of a new user are `make demo` and `make test`; each sets up .venv by itself.

PYTHON ?= python3
VENV := .venv
SOURCES := setup.py setup.cfg pyproject.toml README.md $(shell find trainer -name '*.py')

.PHONY: demo test versions crash-test chaos bench docs docs-check lint clean

demo: $(VENV)/.installed
	$(VENV)/bin/python examples/demo.py

# The installed package is what is tested, from a folder in which the source cannot be imported.
test: $(VENV)/.installed
	cd tests && UNBROKEN_INSTALLED=1 ../$(VENV)/bin/pytest --numprocesses=2

# Python 3.10 to 3.13 are to be on the PATH; ten gigabytes, and an hour or more. One of them:
# .venv/bin/nox --session 'versions(oldest)'
versions: $(VENV)/.nox
	$(VENV)/bin/nox

# The long campaigns: every power cut, every fault at every operation, every bit, kills of every
# example, with a count of the cases; then real kills and power cuts, beside TensorFlow and Keras (as
# root, with strace).
crash-test: $(VENV)/.installed
	cd tests && CAMPAIGN=1 ../$(VENV)/bin/pytest -s -rA --timeout=3000 \
		test_checkpoints_power_cuts.py test_checkpoints_damage.py test_checkpoints.py test_run_saving.py \
		test_examples_exact.py
	cd tests && ../$(VENV)/bin/python -m support.survival

# Signals and kills at random moments, 200 of each: about ten minutes.
chaos: $(VENV)/.installed
	cd tests && TF_CPP_MIN_LOG_LEVEL=3 ../$(VENV)/bin/python -m support.chaos

# Under ten minutes. `checkpoints.py slowdown` and `throughput`, and `data.py`, are run by hand.
bench: $(VENV)/.peers
	cd benchmarks && ../$(VENV)/bin/python steps.py
	cd benchmarks && ../$(VENV)/bin/python checkpoints.py stall first restore memory
	cd benchmarks && ../$(VENV)/bin/python restart.py
	cd benchmarks && ../$(VENV)/bin/python scaling.py

# The site of the documents; needs no network to be read. The pages of the reference that are made from
# code are checked by `make test`, not made anew.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict
	@echo "build/site/index.html"

# Each page in headless Chromium, wide and narrow (needs chromium and chromium-driver).
docs-check: docs
	$(VENV)/bin/python docs/check_pages.py build/site

lint: $(VENV)/.linters
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) .nox build *.egg-info

$(VENV)/.requirements: setup.cfg
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip setuptools wheel
	$(VENV)/bin/pip install --quiet '.[examples,test]'
	touch $@

$(VENV)/.installed: $(VENV)/.requirements $(SOURCES)
	rm -rf build
	$(VENV)/bin/pip install --quiet --no-deps --no-build-isolation --force-reinstall .
	touch $@

# Orbit comes with the models that use it, whose dependencies it does not need.
$(VENV)/.peers: $(VENV)/.installed
	$(VENV)/bin/pip install --quiet '.[bench]'
	$(VENV)/bin/pip install --quiet --no-deps tf-models-official
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(VENV)/bin/pip install --quiet '.[docs]'
	touch $@

$(VENV)/.linters: $(VENV)/.installed
	$(VENV)/bin/pip install --quiet '.[dev]'
	touch $@

$(VENV)/.nox: $(VENV)/.installed
	$(VENV)/bin/pip install --quiet '.[versions]'
	touch $@
