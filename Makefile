# `make install` is for users. `make demo` and `make test` set everything up on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml contrib_algos/*/pyproject.toml))
EXTRAS := tests/repository/test_docs.py tests/docs tests/examples/test_examples.py plugins/rlsdk-datasets/tests plugins/rlsdk-lab/tests plugins/rlsdk-interchange/tests \
	plugins/rlsdk-testing/tests/test_scaffold.py  # tests of them need packages that need newer ones
TEXTS := README.md CONTRIBUTING.md CHANGELOG.md docs examples plugins contrib_algos rlsdk benchmarks
CONDA := $(or $(CONDA_EXE),conda)
FORGE := --override-channels --channel conda-forge
IN_IMAGE = --user "$$(id -u):$$(id -g)" --volume "$(CURDIR)/dist/image:/home/rlsdk/work"
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile -q
# else each of the processes that tests start would compile all sources again, and pytest all tests
export PYTHONDONTWRITEBYTECODE =
SOURCES := pyproject.toml $(addsuffix /pyproject.toml,$(PLUGINS)) constraints.txt plugins/rlsdk-kernels/hatch_build.py $(wildcard plugins/rlsdk-kernels/src/rlsdk_kernels/compiled/*.[ch])

.PHONY: install demo test test-rest test-repository test-all test-clauses test-gpu test-slow test-site test-without-kernels test-oldest test-newest lint format docs bench image test-image test-conda wheels release zoo clean

# without isolation, as each package would install hatchling anew otherwise
$(VENV)/.demo: $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(PIP) editables hatchling torch
	$(PIP) --no-build-isolation -e ".[demo]" $(addprefix -e ,$(PLUGINS))
	touch $@

$(VENV)/.all: $(VENV)/.demo
	$(PIP) --no-build-isolation -e ".[all]"
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) --no-build-isolation -e ".[dev]"
	touch $@

$(VENV)/.wheels: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) attrs build hatchling packaging
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) --no-build-isolation -e ".[benchmarks,mujoco]"
	touch $@

ifneq ($(filter-out $(CURDIR)/$(VENV),$(VIRTUAL_ENV) $(CONDA_PREFIX)),)
# without constraints.txt: it would change the versions, such as that of torch, in an environment that others use
install:  ## everything that users need, in the active environment; in .venv if none is active
	python -m pip install ".[all]" $(addprefix ./,$(PLUGINS))
else
install: $(VENV)/.all
	@echo "rlsdk is in $(VENV). Start with: $(BIN)/rlsdk run ppo --env CartPole-v1 --steps 10000 --out runs/first"
endif

demo: $(VENV)/.demo  ## install, train TQC on Pendulum-v1, show how it learnt, what it does and what to try next
	rm -rf demo
	$(BIN)/rlsdk run tqc --env Pendulum-v1 --steps 8000 --seed 1 --set learning_rate=2e-3 --set 'policy_kwargs.net_arch=[64,64]' --eval-every 500 --out demo
	$(BIN)/rlsdk eval demo/final.rlsdk --episodes 20
	SDL_VIDEODRIVER=dummy $(BIN)/rlsdk record demo/final.rlsdk --out demo/agent.gif
	$(BIN)/python examples/show_run.py demo

test: $(VENV)/.dev  ## the fast tests; PATHS=rlsdk/buffers runs those of that folder
	$(PYTEST) -m "not slow and not full" $(or $(PATHS),--ignore tests/repository)

test-rest: $(VENV)/.dev  ## the tests that take seconds, and the other rows of tables
	$(PYTEST) -m "full and not slow" --ignore tests/repository

test-repository: $(VENV)/.dev  ## pages, words, public names and the shape of the code
	$(PYTEST) tests/repository

test-all: lint test test-rest  ## everything that a change must pass

test-clauses: $(VENV)/.dev  ## of the contract, the long clauses, for every algorithm
	$(PYTEST) -m slow $(wildcard plugins/*/tests/test_contract.py contrib_algos/*/tests/test_contract.py)

test-gpu: $(VENV)/.dev  ## tests that need a GPU; all others hide it
	RLSDK_TEST_GPU=1 $(BIN)/python -m pytest -n 4 -q tests/kernels/test_gpu.py tests/peers/test_known_defects.py

test-slow: $(VENV)/.dev  ## learning tests over several seeds, and other long ones
	$(BIN)/python -m pytest -m slow -n 2 -q

test-without-kernels: $(VENV)/.dev  ## all tests but slow ones in plain torch; tests of the kernels themselves are skipped
	RLSDK_KERNELS=off $(PYTEST)

test-oldest: $(VENV)-oldest/.done  ## the suite on the oldest versions the metadata accept (a large download)
	$(VENV)-oldest/bin/python -m pytest -n 2 --dist loadfile -q tests plugins contrib_algos $(addprefix --ignore ,$(EXTRAS))

test-newest: $(SOURCES)  ## the suite on the newest versions that are published, pre-releases too
	$(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --pre --upgrade -e ".[dev]" $(addprefix -e ,$(PLUGINS))
	$(VENV)-newest/bin/python -m pytest -n 2 --dist loadfile -q

$(VENV)-oldest/.done: $(SOURCES) constraints-oldest.txt
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet -c constraints-oldest.txt -e . \
		$(addprefix -e ,$(PLUGINS)) "gymnasium[classic-control,mujoco]" build hatchling pytest-xdist
	touch $@

lint: $(VENV)/.dev  ## format, lint, types, import directions, spelling, and the tests of the repository
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/codespell $(TEXTS)
	$(PYTEST) tests/repository

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.dev  ## the documentation site, in docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

test-site: $(VENV)/.dev  ## the site in a browser: widths, pictures, results, search; skipped without one
	$(BIN)/python -m pytest -q -m "slow or not slow" tests/docs/test_site.py

wheels: $(VENV)/.wheels  ## a wheel of every package, and an index of them, in dist
	$(BIN)/python -m publishing.wheels dist

release: $(VENV)/.wheels  ## check and build what TAG names, such as TAG=rlsdk-tqc-v0.2.0
	rm -rf dist
	$(BIN)/python -m publishing.release "$$TAG" dist

zoo: $(VENV)/.dev  ## train, evaluate and write the agents of rlsdk-zoo (hours)
	$(BIN)/python -m rlsdk_zoo.make
	$(BIN)/python -m rlsdk_zoo.page plugins/rlsdk-zoo/README.md

image:  ## a docker image for CPUs; TORCH_CPU_INDEX names the package index with torch for CPUs
	docker build --build-arg TORCH_CPU_INDEX="$$TORCH_CPU_INDEX" --tag rlsdk .

test-image: image  ## build the image, and run the commands of docs/guides/docker.md
	mkdir -p dist/image
	docker run --rm rlsdk list
	docker run --rm $(IN_IMAGE) rlsdk run tqc --env Pendulum-v1 --steps 300 --out runs/first
	docker run --rm $(IN_IMAGE) rlsdk eval runs/first --episodes 1

test-conda:  ## build conda packages of PPO and of what it needs, install them, and train; CONDA_EXE names conda
	$(CONDA) create --yes --name rlsdk-build $(FORGE) conda-build
	for name in kernels sb3 ppo; do mkdir -p conda/rlsdk-$$name \
		&& $(CONDA) run --name rlsdk-build python -m publishing.conda rlsdk-$$name > conda/rlsdk-$$name/meta.yaml || exit 1; done
	$(CONDA) run --name rlsdk-build conda build $(FORGE) --output-folder dist/conda conda conda/rlsdk-kernels conda/rlsdk-sb3 conda/rlsdk-ppo
	$(CONDA) create --yes --name rlsdk-user $(FORGE) --channel "file://$(CURDIR)/dist/conda" rlsdk-ppo
	$(CONDA) run --name rlsdk-user rlsdk run ppo --env CartPole-v1 --steps 1000 --out dist/conda-run

bench: $(VENV)/.bench  ## ours against the peer, interleaved; AT_LEAST=0.7 fails below that share of the recorded ratios
	$(BIN)/python -m benchmarks $(addprefix --at-least ,$(AT_LEAST))

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest demo dist runs docs/_build
