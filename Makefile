# SPDX-License-Identifier: Apache-2.0
# The commands of a developer and of CI. `make run` and `make test` work on a fresh machine: what is
# missing is installed first (scripts/setup.sh). All outputs lie in build*/, out/ and .venv/.

# `make run` trains on this file or folder: this project's own text, unless told otherwise.
DATA ?= .
OUT ?= out/run
# The sample of the repository's own text goes on from a comment: after a new line it may be one of
# the long lists of numbers.
TRAIN ?= train --data $(DATA) --out $(OUT) --overwrite --report \
	$(if $(filter .,$(DATA)),--prompt '// The ')

# `make bench BENCH=gemm`: only what has this in its name; all if empty.
BENCH ?=

BUILD ?= build
BUILD_SANITIZE ?= build-sanitize
JOBS ?= $(shell nproc)
# Some tests wait, for example for stopped processes, so one more than cores runs at a time.
TEST_JOBS ?= $(shell expr $(JOBS) + 1)

# CMake from .venv and a compiler beside the system's, where the system's are too old.
CMAKE ?= $(shell ls .venv/bin/cmake 2>/dev/null || echo cmake)
CMAKE_ARGS ?= $(shell test "`g++ -dumpversion 2>/dev/null`" -ge 12 2>/dev/null || \
	! command -v g++-12 >/dev/null || echo -DCMAKE_C_COMPILER=gcc-12 -DCMAKE_CXX_COMPILER=g++-12)
# More CMake arguments for `make test`. .ci/run uses them to leave out tests that have run before.
TEST_ARGS ?=

.PHONY: run test package test-pytorch test-loops zoo wheel test-gpu random-modules clean-kernels \
	mutate sanitize fuzz bench bench-gpu \
	format lint known-clean clean build configure setup setup-python

build: configure
	$(CMAKE) --build $(BUILD) -j $(JOBS)

configure: setup
	@mkdir -p $(BUILD)
	@$(CMAKE) -G Ninja -S . -B $(BUILD) $(CMAKE_ARGS) $(PYTHON_ARGS) > $(BUILD)/configure.log 2>&1 \
		|| { cat $(BUILD)/configure.log; exit 1; }

setup:
	@scripts/setup.sh build

setup-python: setup
	@scripts/setup.sh python

run: configure
	$(CMAKE) --build $(BUILD) -j $(JOBS) --target coda
	$(BUILD)/tools/coda $(TRAIN)

# The judges are fetched and unpacked while the tests are compiled. The Python package's extension
# module is one target more of the same build.
test: PYTHON_ARGS = -DCODA_PYTHON=ON -DCODA_PYTHON_EXECUTABLE=$(CURDIR)/.venv/bin/python \
	$(TEST_ARGS)
test: setup-python configure
	@scripts/setup.sh judges > $(BUILD)/judges.log 2>&1 & \
		$(CMAKE) --build $(BUILD) -j $(JOBS) --target all_tests; built=$$?; \
		wait $$! || { cat $(BUILD)/judges.log >&2; exit 1; }; exit $$built
	CODA_REQUIRE_NVRTC=1 scripts/run_tests.sh $(BUILD) $(TEST_JOBS) -LE gpu

# The Python package as a wheel, installed in an environment of its own, $(BUILD)/python/venv, which
# also sees the judges.
package: PYTHON_ARGS = -DCODA_PYTHON=ON -DCODA_PYTHON_EXECUTABLE=$(CURDIR)/.venv/bin/python
package: setup-python configure
	@scripts/setup.sh judges
	$(CMAKE) --build $(BUILD) -j $(JOBS) --target _core_stub
	bash tests/python/install_wheel.sh $(CURDIR) $(abspath $(BUILD)) \
		$(abspath $(BUILD))/python/coda_cpp/_core.*.so
PACKAGE = $$(echo $(abspath $(BUILD))/python/venv/lib/python3.*/site-packages)

# The Python package's tests with the oldest and the newest PyTorch that it is for: some 20 minutes
# and 10 GB besides `make test`, which has the judges' version.
PYTORCH ?= 2.11.0 2.15.0
test-pytorch: package
	bash tests/python/with_pytorch.sh $(CURDIR) $(abspath $(BUILD)) $(PYTORCH)

# Wheels for other machines and the source distribution, in build-wheel/dist.
wheel: setup-python
	@scripts/setup.sh judges
	CMAKE=$(CMAKE) scripts/wheel.sh build-wheel $(JOBS)

# On a machine with a GPU, on which GPU_JOBS tests run side by side: they spend most of their time
# compiling kernels. Where a test also computes on the processor, it has two threads, because with
# more the threads of all tests would wait for each other. The tests run once for each target of
# kernels, in 5 to 8 minutes on 16 cores; those of a target that the GPU cannot run are skipped.
# The last run is kept in docs/results.
TARGETS ?= sm90 sm80 sm89
GPU_JOBS ?= $(JOBS)
test-gpu: configure
	$(CMAKE) --build $(BUILD) -j $(JOBS) --target on_gpu_test
	@status=0; reports=; for target in $(TARGETS); do \
		echo "tests of the target $$target"; \
		OMP_NUM_THREADS=2 CODA_GPU_TARGET=$$target \
			scripts/run_tests.sh $(BUILD) $(GPU_JOBS) -L gpu || status=1; \
		mv $(BUILD)/test_report.xml $(BUILD)/test_report_$$target.xml || exit 1; \
		reports="$$reports $$target=$(BUILD)/test_report_$$target.xml"; \
	done; python3 scripts/gpu_results.py $$reports; exit $$status

# Compiles every kernel of the tests and writes anew which of them have no defect: ten minutes,
# after a change of device code. Without it every run of the tests compiles what changed.
CLEAN := tests/gpu/clean_kernels.txt
clean-kernels: configure
	$(CMAKE) --build $(BUILD) -j $(JOBS) --target gpu_test table_test
	@rm -f $(BUILD)/clean_kernels.txt
	CODA_REQUIRE_NVRTC=1 CODA_RECORD_KERNELS=$(abspath $(BUILD))/clean_kernels.txt \
		VIRTUAL_ENV=$(CURDIR)/.venv sh -c \
		'$(BUILD)/gpu_test --gtest_brief=1 && $(BUILD)/lab/table/table_test --gtest_brief=1'
	sort -u $(BUILD)/clean_kernels.txt > $(CLEAN)

# PyTorch modules made by chance, compiled and compared with eager: 20,000 take some hours.
MODULES ?= 20000
SEED ?= 0
random-modules: package
	OMP_NUM_THREADS=1 PYTHONPATH=$(PACKAGE) .venv/bin/python tests/python/random_modules.py \
		--count $(MODULES) --seed $(SEED)

# Compiles other people's models, compares them with eager mode, and writes docs/results/models.md,
# in half an hour. `make zoo MODELS="llama bert"` runs only models with these names. PYTHON may name
# a Python of the same version that has timm and diffusers, whose models then run too.
MODELS ?=
PYTHON ?= .venv/bin/python
zoo: package
	OMP_NUM_THREADS=1 PYTHONPATH=$(PACKAGE) $(PYTHON) bench/zoo.py $(MODELS)

# Tests training loops of TRL, PEFT, Lightning and accelerate. Installs these packages into
# build/loops, an environment that also sees the packages of .venv.
test-loops: package
	$(CURDIR)/.venv/bin/python -m venv build/loops
	echo $(CURDIR)/.venv/lib/python3.*/site-packages > \
		$$(echo build/loops/lib/python3.*/site-packages)/judges.pth
	build/loops/bin/pip install -q --no-compile -r requirements-loops.txt
	OMP_NUM_THREADS=1 PYTHONPATH=$(PACKAGE):tests/python build/loops/bin/python \
		-m unittest loops_test

# Plants the bugs of tests/mutants/ and says which no test notices: hours for all of them.
# `make mutate MUTANT="trainer adamw"`: those with one of these words.
MUTANT ?=
mutate: setup
	@scripts/setup.sh judges
	python3 scripts/mutate.py --jobs $(JOBS) $(MUTANT)

sanitize: setup
	@mkdir -p $(BUILD_SANITIZE)
	@$(CMAKE) -G Ninja -S . -B $(BUILD_SANITIZE) $(CMAKE_ARGS) -DCODA_SANITIZE=ON \
		> $(BUILD_SANITIZE)/configure.log 2>&1 \
		|| { cat $(BUILD_SANITIZE)/configure.log; exit 1; }
	@scripts/setup.sh judges > $(BUILD_SANITIZE)/judges.log 2>&1 & \
		$(CMAKE) --build $(BUILD_SANITIZE) -j $(JOBS) --target all_tests; built=$$?; \
		wait $$! || { cat $(BUILD_SANITIZE)/judges.log >&2; exit 1; }; exit $$built
	scripts/run_tests.sh $(BUILD_SANITIZE) $(TEST_JOBS)

# Coverage-guided fuzzing of everything that reads a file or a network message, an hour for each
# target: `make fuzz SECONDS_OF_EACH=60 FUZZ="config npz"`. An input that fails stays in build-fuzz.
SECONDS_OF_EACH ?= 3600
FUZZ ?= config tokenizer safetensors npz program graph formula hello
fuzz: setup
	CMAKE=$(CMAKE) scripts/fuzz.sh build-fuzz $(JOBS) $(SECONDS_OF_EACH) $(FUZZ) -- $(CMAKE_ARGS)

bench: build
	@scripts/setup.sh judges
	scripts/bench.sh $(BUILD) $(BENCH)

# On a machine with a Hopper GPU: beside cuBLAS, and beside torch.compile and QuACK where PYTHON has
# them. `make bench-gpu BENCH=block`: of programs, block, small, squares, steps.
bench-gpu: configure
	$(CMAKE) --build $(BUILD) -j $(JOBS) --target gpu_programs train_step
	@scripts/bench_gpu.sh $(BUILD) $(BENCH)

format: setup
	@scripts/setup.sh lint
	scripts/format.sh

lint: configure
	@scripts/setup.sh lint
	scripts/lint.sh $(BUILD) $(JOBS)

# Which sources passed, so that a fresh clone need not look at them: after `make lint` is well.
known-clean: lint
	python3 scripts/known_clean.py $(BUILD)

clean:
	rm -rf $(BUILD) $(BUILD_SANITIZE) build-mutate build-wheel out
