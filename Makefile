# Everything starts here: `make help`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DATA := $(wildcard ../shared/data)
ifneq ($(DATA),)
export SACCADE_DATA ?= $(abspath $(DATA))
endif
JOBS ?= 2
CHROMIUM := $(firstword $(wildcard /usr/bin/chromium /usr/bin/google-chrome))

.PHONY: help demo test check install browser results row-named results-quick soak bench-corpus bench-prepare bench-peers settings schema wheel clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

install: $(VENV)/.installed ## the virtual environment with everything in it

# pip would compile on one core, and thousands of files that nobody imports as well.
$(VENV)/.installed: pyproject.toml requirements/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c requirements/constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c requirements/constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -qq -j $(JOBS) -x '/(tests|testing|models)/' $(VENV)/lib || true
	touch $@

demo: install ## three models learn to read dates, in under five minutes; then a table and pictures
	$(BIN)/saccade demo --out runs/demo

test: install browser ## all tests
	$(BIN)/python -m pytest -n $(JOBS)

check: install ## style, types, and that imports go one way
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_house.py

browser: ## a Chromium for the tests of pages, where Debian can give one; without it they are skipped
ifeq ($(CHROMIUM),)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1 \
	  || echo "no Chromium could be installed: the tests of pages will be skipped" >&2; fi
endif

OUT ?= runs/results
results: row-named install ## choose, train and score a row of docs/results: make results ROW=multi30k; several side by side: ROW="ptb ewt"
	$(BIN)/python -m $(if $(word 2,$(ROW)),bench.together,bench.results) $(ROW) --jobs $(JOBS) --out $(OUT)

row-named:
	@$(if $(strip $(ROW)),true,echo "make results: ROW names what to train, as in make results ROW=ptb. There are:" $(basename $(notdir $(wildcard bench/rows/*.yaml))) >&2; exit 2)

results-quick: install ## a small slice of the results on a CPU, in minutes, into runs/results
	$(BIN)/python -m bench.results quick --jobs $(JOBS) --out $(OUT) --device cpu

soak: install ## kill and resume trainings fifty times
	$(BIN)/python -m bench.soak_resume --kills 50

bench-prepare: install ## text to stored tokens, in MB a second (SACCADE_DATA)
	$(BIN)/python -m bench.prepare $(SACCADE_DATA)

PEERS ?= peers
bench-peers: install ## training speed on a CPU beside other toolkits, installed into PEERS first
	$(BIN)/python -m bench.peers.install --peers-folder $(PEERS)
	$(BIN)/python -m bench.peers.cpu --peers-folder $(PEERS)

bench-corpus: install ## prepare five million generated pairs
	$(BIN)/python -m bench.large_corpus --pairs 5000000

settings: install ## write the tables of settings in docs/recipes.md and of sizes in docs/presets.md
	$(BIN)/python -m tests.docs.test_documentation
	$(BIN)/python -m tests.docs.test_presets

schema: install ## write the recipe schema that ships with the package
	$(BIN)/python -m saccade.cli.schema > saccade/recipes/schema.json.new && mv saccade/recipes/schema.json.new saccade/recipes/schema.json

wheel: install ## build the wheel
	$(BIN)/python -m build --wheel --outdir dist .

clean: ## remove what was made, the virtual environment included
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
