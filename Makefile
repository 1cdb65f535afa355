# `make` lists the targets. Every target sets up what it needs: only Python and make have to be there.

PYTHON ?= python3
VENV   ?= .venv
# Passed on to the command that the target runs, e.g. make test ARGS="-k collect -x"
ARGS   ?=

BIN   := $(VENV)/bin
# A set-up is complete when its stamp is there: what training the Game Boy needs, and what everything else needs.
TRAIN_STAMP := $(VENV)/.envfleet-can-train
STAMP := $(VENV)/.envfleet-is-set-up
PROCGEN_STAMP := $(VENV)/.envfleet-has-procgen
# Modules are compiled when they are first imported: most of what is installed never is.
PIP   := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-compile --constraint constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup train train-20k train-parallel train-pure-rl compare rom demo settings-page test digests lint format bench bench-dqn bench-ppo bench-slow learning proof clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  ARGS="..." goes to the command that a target runs; PYTHON=python3.12 chooses the Python of the set-up.'

setup: $(STAMP)  ## make the virtual environment (.venv) and install everything that is pinned in constraints.txt

# torch comes first: the other packages that ask for it then find the pinned one.
$(TRAIN_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than Python 3.11"; \
		  echo "hint: name a newer one, e.g. make setup PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || { echo "making the virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing what training needs, as pinned in constraints.txt (once; some minutes on a slow connection)"
	@$(PIP) "$$(grep '^torch==' constraints.txt)" editables hatchling
	@$(PIP) --no-build-isolation --editable ".[gameboy,video]"
	@touch $@

$(STAMP): $(TRAIN_STAMP) $(PROCGEN_STAMP)
	@echo "installing what tests, checks and benchmarks need besides (once)"
	@$(PIP) --no-build-isolation --editable ".[atari,box2d,dev,gameboy,mujoco,sb3,video,wildfire]"
	@touch $@

# The library of Procgen, by its hash and without what its package asks for (docs/procgen.md). There is none for every
# Python and system: what needs it says so.
$(PROCGEN_STAMP): $(TRAIN_STAMP) procgen.txt
	@$(BIN)/python -m pip --disable-pip-version-check install -qq --no-deps --require-hashes --only-binary :all: \
		-r procgen.txt || echo "Procgen's library is not there for this Python and system; all else works without it"
	@touch $@

# The Game Boy. What is not set here or on the command line comes from the preset; TRAIN_OUTPUT_DIR is the parent
# folder of the runs. A variable on the command line wins over those of a target. Random play, to compare with, has as many steps; 20000 where the preset says how many.
TRAIN_OUTPUT_DIR ?= training_runs
TRAIN_SEED ?= 1
TRAIN_RANDOM_STEPS ?= $(or $(TRAIN_STEPS),20000)
STARTED := $(shell date +%Y-%m-%d_%H-%M-%S)
GAMEBOY_RUN = $(TRAIN_OUTPUT_DIR)/$@__$(STARTED)
GAMEBOY_FLAGS = --env envfleet/GameBoy-v0 --seed $(TRAIN_SEED) \
	$(if $(TRAIN_STEPS),--steps $(TRAIN_STEPS)) \
	$(if $(TRAIN_ENVS),--n-envs $(TRAIN_ENVS)) \
	$(if $(TRAIN_EPISODE_LENGTH),--episode-length $(TRAIN_EPISODE_LENGTH)) \
	$(if $(TRAIN_UPDATE_EPOCHS),--epochs $(TRAIN_UPDATE_EPOCHS)) \
	$(if $(TRAIN_BATCH_SIZE),--minibatch-size $(TRAIN_BATCH_SIZE)) \
	--random-steps $(TRAIN_RANDOM_STEPS) --output-dir $(GAMEBOY_RUN)

train: $(TRAIN_STAMP)  ## learn to finish the Game Boy adventure (some minutes): summary, plot, evaluation, video
	@$(BIN)/envfleet train ppo $(GAMEBOY_FLAGS) $(ARGS)
	@$(BIN)/envfleet plot $(GAMEBOY_RUN)
	@$(BIN)/envfleet evaluate $(GAMEBOY_RUN) --episodes 50
	@$(BIN)/envfleet evaluate $(GAMEBOY_RUN) --episodes 1 --video $(GAMEBOY_RUN)/videos/agent.mp4

train-20k: TRAIN_STEPS = 20000
train-20k: TRAIN_ENVS = 2
train-20k: TRAIN_EPISODE_LENGTH = 750
train-20k: TRAIN_UPDATE_EPOCHS = 6
train-20k: TRAIN_BATCH_SIZE = 128
train-20k: $(TRAIN_STAMP)  ## 20,000 steps of the Game Boy adventure in 2 environments; TRAIN_STEPS=50000 and the like
	@$(BIN)/envfleet train ppo --eval-every 0 --learning-rate-schedule constant --verbose $(GAMEBOY_FLAGS) $(ARGS)

train-parallel: TRAIN_STEPS = 5000
train-parallel: TRAIN_ENVS = 2
train-parallel: TRAIN_EPISODE_LENGTH = 500
train-parallel: TRAIN_UPDATE_EPOCHS = 4
train-parallel: TRAIN_BATCH_SIZE = 128
train-parallel: $(TRAIN_STAMP) $(if $(DURATION),$(PROCGEN_STAMP))  ## the same in two worker processes, short; with DURATION=1 an hour of CoinRun
	@$(BIN)/envfleet train ppo $(if $(DURATION),$(COINRUN_FLAGS) --output-dir $(GAMEBOY_RUN),\
		--eval-every 0 --verbose --backend processes --workers 2 $(GAMEBOY_FLAGS)) $(ARGS)

# CoinRun for some hours, which may be a fraction: 0.017 is a minute.
COINRUN_FLAGS = --config config/ppo_parallel.yaml --env procgen/coinrun --preset procgen-nature \
	--duration $(or $(DURATION),0.017) --seed $(TRAIN_SEED) --eval-every 0
TIMED = $(TRAIN_OUTPUT_DIR)/compare__$(STARTED)

compare: $(TRAIN_STAMP) $(PROCGEN_STAMP)  ## a minute of CoinRun on one core, a minute on all, and both side by side; DURATION=1 for hours
	@$(BIN)/envfleet train ppo $(COINRUN_FLAGS) --backend sequential --output-dir $(TIMED)/sequential $(ARGS)
	@$(BIN)/envfleet train ppo $(COINRUN_FLAGS) --backend processes --output-dir $(TIMED)/parallel $(ARGS)
	@$(BIN)/envfleet compare --sequential $(TIMED)/sequential --parallel $(TIMED)/parallel --output-dir $(TIMED)

train-pure-rl: TRAIN_STEPS = 20000
train-pure-rl: TRAIN_ENVS = 1
train-pure-rl: TRAIN_EPISODE_LENGTH = 500
train-pure-rl: TRAIN_UPDATE_EPOCHS = 4
train-pure-rl: TRAIN_BATCH_SIZE = 128
train-pure-rl: $(TRAIN_STAMP)  ## the same with the variables of your choice
	@$(BIN)/envfleet train ppo --eval-every 0 --verbose $(GAMEBOY_FLAGS) $(ARGS)

rom:  ## build the Game Boy adventure from its source, to the same bytes (needs sdcc)
	@$(PYTHON) rom/build.py $(ARGS)

demo: $(STAMP)  ## a minute of wildfires on every backend, and the settings that suit this machine (bench-demo.png)
	@$(BIN)/envfleet bench demo $(ARGS)

settings-page: $(STAMP)  ## write docs/settings.md from the settings of the algorithms
	@$(BIN)/python -m envfleet.cli.settings_page docs/settings.md

# The tests are divided among so many processes; TEST_PROCESSES=0 runs them in one.
TEST_PROCESSES ?= 2

test: $(STAMP)  ## run the test suite
	@$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal $(ARGS)

digests: $(STAMP)  ## pin the results of the fixed short runs anew, after a change that was meant to change them
	@$(BIN)/python -m tests.digests

lint: $(STAMP)  ## run the static checks: ruff, mypy, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP)  ## let ruff format the code and fix what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP)  ## run the benchmarks (alone on the machine) and print their table
	@$(BIN)/python -m benchmarks $(ARGS)

bench-ppo: $(STAMP)  ## the same for PPO, against Stable-Baselines3 and a plain loop; the results go to docs/benchmarks/ppo.json
	@$(BIN)/python -m benchmarks.peers.install stable-baselines3
	@$(BIN)/python -m benchmarks.ppo --output docs/benchmarks/ppo.json $(ARGS)

bench-slow: $(STAMP)  ## the same for slow simulators: does auto find the fastest way? (docs/benchmarks-slow.md)
	@$(BIN)/python -m benchmarks.peers.install gymnasium
	@$(BIN)/python -m benchmarks.slow $(ARGS)

bench-dqn: $(STAMP)  ## the same for DQN; the results go to docs/benchmarks/dqn.json
	@$(BIN)/python -m benchmarks.peers.install stable-baselines3
	@$(BIN)/python -m benchmarks.dqn --output docs/benchmarks/dqn.json $(ARGS)

learning: $(STAMP)  ## learn what takes too long for the tests; curves go to docs/learning; LEARNING_DIR=folder keeps the runs and goes on with them
	@$(BIN)/python -m benchmarks.peers.install stable-baselines3
	@$(BIN)/python -m benchmarks.learning halfcheetah lunarlander lunarlander-dqn coinrun $(ARGS)

proof: $(STAMP)  ## run what takes too long for the tests: full matrices, more seeds, a soak; the result goes to docs/proof.txt
	@{ echo "commit $$(git rev-parse --short HEAD), $$(date -u +%Y-%m-%d)"; \
		$(BIN)/python -m pytest -m proof -q --no-header --timeout 1800 $(ARGS); } > docs/proof.txt || \
		{ cat docs/proof.txt; exit 1; }
	@tail -n 1 docs/proof.txt

clean:  ## remove caches and builds (delete .venv by hand for a fresh set-up)
	@rm -rf build dist .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
