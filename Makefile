# Everything runs from a fresh clone: each target builds the virtual environment it needs first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SERVE ?= 1
PORT ?= 8000

.PHONY: demo serve test check bench lock schema format clean

$(VENV)/.installed: requirements.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

demo: $(VENV)/.installed
	SERVE=$(SERVE) $(BIN)/python manage.py demo $(if $(filter 0,$(SERVE)),--no-serve) --port $(PORT)

serve: $(VENV)/.installed
	$(BIN)/python manage.py migrate --verbosity 0
	$(BIN)/python manage.py serve --port $(PORT)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy apps gymweb scripts examples
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python scripts/check_schema.py

schema: $(VENV)/.installed
	$(BIN)/python scripts/check_schema.py --write

bench: $(VENV)/.installed
	$(BIN)/python scripts/bench.py

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:
	$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet pip-tools
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links -o requirements.txt requirements.in
	$(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links -o requirements-dev.txt requirements-dev.in
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) var static-root
