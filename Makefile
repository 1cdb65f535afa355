# `make` lists the targets. Every target installs what it needs; you only need Python and make.

PYTHON ?= python3
VENV   ?= .venv
# Extra arguments for the command that a target runs, e.g. make test ARGS="-k collect -x"
ARGS   ?=
# Where to get torch, e.g. https://download.pytorch.org/whl/cpu for the small CPU build on Linux; by default pip's index
TORCH_INDEX ?=

BIN   := $(VENV)/bin
# A stamp file marks a complete setup: packages for training the Game Boy, for everything else, and Procgen.
TRAIN_STAMP := $(VENV)/.envfleet-can-train
STAMP := $(VENV)/.envfleet-is-set-up
PROCGEN_STAMP := $(VENV)/.envfleet-has-procgen
# No byte-compilation at install: most installed modules are never imported.
PIP   := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-compile --constraint constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup train train-20k train-parallel train-pure-rl compare rom demo settings-page test digests lint format bench bench-dqn bench-meta bench-ppo bench-sac bench-slow learning proof clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  ARGS="..." is passed to the command of a target; PYTHON=python3.12 chooses the Python for .venv.'

setup: $(STAMP)  ## create the virtual environment (.venv) and install everything, with the versions in constraints.txt

# torch comes first, so that packages that depend on it find the pinned version.
$(TRAIN_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than Python 3.11"; \
		  echo "hint: name a newer one, e.g. make setup PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || { echo "creating the virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing the packages for training, as pinned in constraints.txt (once; some minutes on a slow connection)"
	@$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$$(grep '^torch==' constraints.txt)"
	@$(PIP) editables hatchling
	@$(PIP) --no-build-isolation --editable ".[gameboy,video]"
	@touch $@

$(STAMP): $(TRAIN_STAMP) $(PROCGEN_STAMP)
	@echo "installing the packages for tests, checks and benchmarks (once)"
	@$(PIP) --no-build-isolation --editable ".[atari,box2d,dev,gameboy,mujoco,ray,sb3,video,wildfire]"
	@touch $@

# The Procgen library, pinned by hash and without its outdated dependencies (docs/procgen.md). It does not exist for every
# Python and system; code that needs it then says so.
$(PROCGEN_STAMP): $(TRAIN_STAMP) procgen.txt
	@if $(BIN)/python -m pip --disable-pip-version-check install -qq --no-deps --require-hashes --only-binary :all: \
		-r procgen.txt; then touch $@; \
	else echo "the Procgen library was not installed (see above; docs/procgen.md lists the systems that have it);"; \
		echo "everything else works without it, and the next make tries again"; fi

# The Game Boy. Variables on the command line win over those of a target; unset ones come from the preset.
# TRAIN_OUTPUT_DIR is the parent folder of the runs. Random play, as a baseline, gets TRAIN_STEPS steps, or 20000 if the
# preset sets the steps.
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

train: $(TRAIN_STAMP)  ## train PPO to finish the Game Boy adventure (minutes): summary, plot, evaluation, video
	@$(BIN)/envfleet train ppo $(GAMEBOY_FLAGS) $(ARGS)
	@$(BIN)/envfleet plot $(GAMEBOY_RUN)
	@$(BIN)/envfleet evaluate $(GAMEBOY_RUN) --episodes 50
	@$(BIN)/envfleet evaluate $(GAMEBOY_RUN) --episodes 1 --video $(GAMEBOY_RUN)/videos/agent.mp4

train-20k: TRAIN_STEPS = 20000
train-20k: TRAIN_ENVS = 2
train-20k: TRAIN_EPISODE_LENGTH = 750
train-20k: TRAIN_UPDATE_EPOCHS = 6
train-20k: TRAIN_BATCH_SIZE = 128
train-20k: $(TRAIN_STAMP)  ## train on the Game Boy for 20,000 steps in 2 environments; e.g. TRAIN_STEPS=50000 for more
	@$(BIN)/envfleet train ppo --eval-every 0 --learning-rate-schedule constant --verbose $(GAMEBOY_FLAGS) $(ARGS)

train-parallel: TRAIN_STEPS = 5000
train-parallel: TRAIN_ENVS = 2
train-parallel: TRAIN_EPISODE_LENGTH = 500
train-parallel: TRAIN_UPDATE_EPOCHS = 4
train-parallel: TRAIN_BATCH_SIZE = 128
train-parallel: $(TRAIN_STAMP) $(if $(DURATION),$(PROCGEN_STAMP))  ## train on the Game Boy for 5,000 steps in 2 worker processes; DURATION=1: an hour of CoinRun instead
	@$(BIN)/envfleet train ppo $(if $(DURATION),$(COINRUN_FLAGS) --output-dir $(GAMEBOY_RUN),\
		--eval-every 0 --verbose --backend processes --workers 2 $(GAMEBOY_FLAGS)) $(ARGS)

# DURATION is in hours and may be a fraction: 0.017 is a minute.
COINRUN_FLAGS = --config config/ppo_parallel.yaml --env procgen/coinrun --preset procgen-nature \
	--duration $(or $(DURATION),0.017) --seed $(TRAIN_SEED) --eval-every 0
TIMED = $(TRAIN_OUTPUT_DIR)/compare__$(STARTED)

compare: $(TRAIN_STAMP) $(PROCGEN_STAMP)  ## train on CoinRun for a minute in one process, then with workers, and compare the two; DURATION=1: an hour each
	@$(BIN)/envfleet train ppo $(COINRUN_FLAGS) --backend sequential --output-dir $(TIMED)/sequential $(ARGS)
	@$(BIN)/envfleet train ppo $(COINRUN_FLAGS) --backend processes --output-dir $(TIMED)/parallel $(ARGS)
	@$(BIN)/envfleet compare --sequential $(TIMED)/sequential --parallel $(TIMED)/parallel --output-dir $(TIMED)

train-pure-rl: TRAIN_STEPS = 20000
train-pure-rl: TRAIN_ENVS = 1
train-pure-rl: TRAIN_EPISODE_LENGTH = 500
train-pure-rl: TRAIN_UPDATE_EPOCHS = 4
train-pure-rl: TRAIN_BATCH_SIZE = 128
train-pure-rl: $(TRAIN_STAMP)  ## train on the Game Boy for 20,000 steps in 1 environment; set the TRAIN_ variables as you like
	@$(BIN)/envfleet train ppo --eval-every 0 --verbose $(GAMEBOY_FLAGS) $(ARGS)

rom:  ## build the Game Boy ROM from its source, byte for byte the same (needs sdcc)
	@$(PYTHON) rom/build.py $(ARGS)

demo: $(STAMP)  ## measure every backend with wildfires for a minute; recommends settings for this machine (bench-demo.png)
	@$(BIN)/envfleet bench demo $(ARGS)

settings-page: $(STAMP)  ## write docs/settings.md from the settings classes
	@$(BIN)/python -m envfleet.cli.settings_page docs/settings.md

# Number of test processes; 0 runs all tests in one. More than cores pay: many tests wait for processes to start.
TEST_PROCESSES ?= 3

# Keep bytecode, whatever the shell says: tests and benchmarks start many processes, and without it each compiles what
# it imports (torch: 2 s more, a plain worker: 0.4 s more).
test proof learning bench bench-dqn bench-meta bench-ppo bench-sac bench-slow: export PYTHONDONTWRITEBYTECODE :=

test: $(STAMP)  ## run the test suite
	@$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal $(ARGS)

digests: $(STAMP)  ## update the pinned results of the fixed short runs, after an intended change
	@$(BIN)/python -m tests.digests

lint: $(STAMP)  ## run ruff, mypy and import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP)  ## format the code with ruff and apply its fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP)  ## run the fleet benchmarks and print their table (run nothing else meanwhile)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-ppo: $(STAMP)  ## benchmark PPO against Stable-Baselines3 and a plain loop; writes docs/benchmarks/ppo.json
	@$(BIN)/python -m benchmarks.peers.install stable-baselines3
	@$(BIN)/python -m benchmarks.ppo --output docs/benchmarks/ppo.json $(ARGS)

bench-slow: $(STAMP)  ## benchmark backend=auto with slow simulators; writes docs/benchmarks-slow.md
	@$(BIN)/python -m benchmarks.peers.install gymnasium
	@$(BIN)/python -m benchmarks.slow $(ARGS)

bench-sac: $(STAMP)  ## benchmark SAC against Stable-Baselines3 and SBX; writes docs/benchmarks/sac.json
	@$(BIN)/python -m benchmarks.peers.install stable-baselines3 sbx
	@$(BIN)/python -m benchmarks.sac --output docs/benchmarks/sac.json $(ARGS)

bench-meta: $(STAMP)  ## benchmark the collection of trials (meta-RL); writes docs/benchmarks/meta.json
	@$(BIN)/python -m benchmarks.meta --output docs/benchmarks/meta.json $(ARGS)

bench-dqn: $(STAMP)  ## benchmark DQN; writes docs/benchmarks/dqn.json
	@$(BIN)/python -m benchmarks.peers.install stable-baselines3
	@$(BIN)/python -m benchmarks.dqn --output docs/benchmarks/dqn.json $(ARGS)

learning: $(STAMP)  ## train the longer runs and write their curves to docs/learning; LEARNING_DIR=folder keeps and resumes them
	@$(BIN)/python -m benchmarks.peers.install stable-baselines3
	@$(BIN)/python -m benchmarks.learning halfcheetah lunarlander lunarlander-dqn coinrun \
		bandit bandit-100 pointrobotsparse pointrobotsparse-markov tabular-mdp pendulum-sac cartpole-sac halfcheetah-sac \
		halfcheetah-sac-short halfcheetah-sac-efficient wind-sac halfcheetahvel-sac pointrobotsparse-sac $(ARGS)

# Tests of one file share a cluster or a reference run, so each file stays in one process.
proof: $(STAMP)  ## run the long tests: full matrices, more seeds, a soak test; writes docs/proof.txt
	@{ echo "commit $$(git rev-parse --short HEAD), $$(date -u +%Y-%m-%d)"; \
		$(BIN)/python -m pytest -m proof -q --no-header --timeout 1800 -n $(TEST_PROCESSES) --dist loadfile $(ARGS); } \
			> docs/proof.txt || \
		{ cat docs/proof.txt; exit 1; }
	@tail -n 1 docs/proof.txt

clean:  ## remove caches and builds (delete .venv by hand to start over)
	@rm -rf build dist .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
