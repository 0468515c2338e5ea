# make setup | setup-sims | demo | test | check | test-slow | wheel | pins | clean
PYTHON ?= 3.11
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
READY := $(VENV)/.ready
SIMS := $(VENV)/.sims

.PHONY: setup setup-sims demo test test-slow check wheel pins clean

setup: $(READY)

setup-sims: $(SIMS)
	@$(BIN)/safestitch doctor

demo: $(READY)
	@$(BIN)/safestitch demo --out runs/demo

test: $(SIMS)
	@$(BIN)/python -m pytest -q

test-slow: $(SIMS)
	@$(BIN)/python -m pytest -q -m slow

check: $(SIMS)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright

# The environment is remade only when what it is made from has changed.
$(READY): pyproject.toml requirements.txt | $(UV)
	@echo "making $(VENV) with Python $(PYTHON)"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV) \
	  || { echo "Python $(PYTHON) is not to be had here: trying python3"; $(UV) venv --quiet --allow-existing --python python3 $(VENV); }
	@VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --requirement requirements.txt --editable ".[logs,tensorboard]"
	@touch $@

# The simulators and DSRL's reader, every version pinned: their own pins are of 2023 and cannot be met here, hence --no-deps.
$(SIMS): requirements-sims.txt $(READY)
	@echo "adding the simulators to $(VENV)"
	@VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --no-deps --requirement requirements-sims.txt
	@touch $@

# uv itself, where the machine has none: in a private environment, never system-wide.
.tools/bin/uv:
	@echo "installing uv into .tools"
	@python3 -m venv .tools || { echo "python3 cannot make a virtual environment: install your system's python3-venv, or uv, and try again"; exit 1; }
	@.tools/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.7

# Build the wheel, install it into an empty environment, and use it.
wheel: | $(UV)
	@rm -rf dist .wheel-test && $(UV) build --quiet --wheel
	@$(UV) venv --quiet --python $(PYTHON) .wheel-test
	@VIRTUAL_ENV=.wheel-test $(UV) pip install --quiet --constraint requirements.txt dist/*.whl
	@.wheel-test/bin/safestitch doctor && rm -rf .wheel-test

# Exact versions for every Python we support, without the address of any index.
pins: | $(UV)
	@$(UV) pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header \
	  --extra logs --extra tensorboard --group dev pyproject.toml --output-file requirements.txt
	@$(UV) pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header --constraint requirements.txt \
	  --extra bullet --extra mujoco --group formats pyproject.toml --output-file requirements-sims.txt
	@printf '%s\n' "bullet-safety-gym==1.4.0 ; python_full_version < '3.12'" "safety-gymnasium==1.0.0 ; python_full_version < '3.12'" "dsrl==0.1.0" >> requirements-sims.txt

clean:
	@rm -rf $(VENV) .tools dist .wheel-test
