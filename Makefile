# `make demo` and `make test` work on a fresh machine with Python 3.11 or later, make and a C compiler.
PYTHON ?=
BIN := .venv/bin
PACKAGES := -p assay -p assay_pytest -p assay_cli -p assay_embedder -p assay_judge -p assay_orchestrator
EXAMPLE ?= examples/product-manual
KILLS ?= 500
MESSAGES ?= 100000
SEED ?= 1
BASE ?=
ONLY ?=
MINUTES ?= 240
# Targets that the gate (.ci/run) leaves out, shortest first.
NIGHTLY := test-alerts test-deploy test-aimock test-clients test-nightly test-browser test-frameworks bench error-rates fuzz images chaos compat mutants

# Without byte code, every process that a test starts would compile its imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-services test-postgres test-tools test-nightly test-unit test-browser test-frameworks test-aimock test-clients test-deploy test-alerts nightly error-rates check chaos compat fuzz images mutants protos protos-image docs bench dist lock sbom clean
.DELETE_ON_ERROR:

demo: .venv/run.stamp          ## run an evaluation on a real example
	@echo "assay run $(EXAMPLE)/assay.yaml"
	@$(BIN)/assay run $(EXAMPLE)/assay.yaml

test: .venv/dev.stamp          ## run the tests that finish within minutes; the last lines name the tests left out and the targets that run them
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

test-services: .venv/dev.stamp  ## run the other tests over SQLite: services in several processes, and the command end to end
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder -m services

test-postgres: .venv/dev.stamp  ## run the tests that need PostgreSQL, as used by a shared installation
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder -m 'postgres and not aimock and not chaos' tests/chaos tests/e2e tests/integration

test-tools: .venv/dev.stamp    ## run the tests of the scripts in tools/, and of how tests are run
	$(BIN)/python -m pytest -n 4 -m tools tests/tools

test-nightly: .venv/dev.stamp   ## run the most expensive tests, and the Hypothesis tests with eight times as many examples
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --hypothesis-profile nightly -m '(nightly or hypothesis) and not postgres' tests/e2e tests/integration tests/unit

test-unit: .venv/dev.stamp     ## run only the unit tests
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder tests/unit

test-browser: .venv/dev.stamp  ## run the tests that drive Chromium; needs chromium and chromedriver on PATH
	$(BIN)/python -m pytest -m browser tests/browser

test-frameworks: .venv-frameworks/frameworks.stamp .venv-floors/floors.stamp  ## run the tests against the newest and the oldest supported agent frameworks, in separate environments
	.venv-frameworks/bin/python -m pytest -m frameworks -rs tests/frameworks
	.venv-floors/bin/python -m pytest -m frameworks -rs tests/frameworks

test-aimock: .venv/dev.stamp .aimock/node_modules  ## run the providers' adapters against @copilotkit/aimock, which npm installs into .aimock
	ASSAY_AIMOCK=.aimock/node_modules/@copilotkit/aimock $(BIN)/python -m pytest -m aimock -rs tests/integration

test-clients: .venv/dev.stamp .venv-protos/protos.stamp  ## build the TypeScript package with npm, and test it against an orchestrator
	cd clients/typescript && npm ci --silent --no-fund --no-audit && npm run --silent build
	$(BIN)/python -m pytest -m clients tests/clients

test-deploy: .venv-deploy/deploy.stamp  ## render the manifests of deploy/ with kubectl or kustomize, and check them against the Kubernetes API
	.venv-deploy/bin/python tools/check_manifests.py

test-alerts: .venv/dev.stamp   ## check the alert rules, their cases and the dashboard's queries with promtool, from Debian's package prometheus
	$(BIN)/python -m pytest -m alerts tests/alerts

check: .venv/dev.stamp .venv-protos/protos.stamp docs  ## lint, types, import contracts, protos with their promise and stubs, pages and their links
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy -n 2 $(PACKAGES)
	$(BIN)/mypy -n 2 --explicit-package-bases tests benchmarks tools
	@for code in examples/*/agent.py examples/*/keyword_model.py; do $(BIN)/mypy $$code || exit 1; done
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf breaking --against protos/image.binpb
	@rm -rf .venv-protos/checked && tools/generate-stubs .venv-protos/checked && cd .venv-protos/checked && for folder in $$(find assay -name v1); do \
	  diff -r -x __pycache__ -x __init__.py $$folder ../../library/$$folder || { echo "the stubs in library/$$folder do not match the protos: run 'make protos'"; exit 1; }; done

nightly:                       ## run every long target in turn, continue after a failure, and name the targets that failed
	@failed=; for target in $(NIGHTLY); do echo "make $$target"; $(MAKE) $$target || failed="$$failed $$target"; done; \
	  [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

error-rates: .venv/dev.stamp   ## measure how often verdicts, intervals and plans are wrong, and write the figures into docs/statistics.md; 20 minutes on two cores
	$(BIN)/python -m benchmarks.error_rates --json benchmarks/results/error_rates.json
	$(BIN)/python -m benchmarks.error_rates.tables

chaos: .venv/dev.stamp         ## kill processes at every stage, then KILLS more at random; see docs/chaos.md
	$(BIN)/python -m pytest -m "chaos or not chaos" tests/chaos
	$(BIN)/python -m tests.chaos.random_kills --kills $(KILLS) --seed $(SEED) --json benchmarks/results/chaos.json

compat: .venv/dev.stamp        ## run this version beside BASE, by default the newest release; see docs/upgrading.md
	$(BIN)/python -m tests.compat --base '$(BASE)'

mutants: .venv/dev.stamp       ## mutation testing: change the code in one place at a time and see whether tests fail, for at most MINUTES; see docs/mutants.md
	@mkdir -p .mutants && rm -rf .mutants/mutants/tests
	@for name in * .ci .dockerignore library/assay* cli/assay_cli services/*/assay_*; do ln -sfn "$(CURDIR)/$$name" .mutants/; done
	cd .mutants && { PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)" timeout --foreground --signal=INT $(MINUTES)m \
	  ../$(BIN)/mutmut run $(if $(ONLY),'$(ONLY)') || [ $$? = 124 ]; }
	@cd .mutants && ../$(BIN)/mutmut export-cicd-stats && ../$(BIN)/mutmut results | grep ': survived$$' || echo "no mutant survived"

fuzz: .venv/dev.stamp          ## send MESSAGES random messages to every method of every service; see docs/errors.md
	$(BIN)/python -m tests.fuzz --messages $(MESSAGES) --seed $(SEED) --json benchmarks/results/fuzz.json

images:                        ## build the environments of the images in .venv-images, as the Dockerfiles do, and start each service from its environment
	@for image in orchestrator judge embedder; do \
	  rm -rf .venv-images/$$image && BUILD_ENVIRONMENT=.venv-images/build tools/image-environment dependencies $$image .venv-images/$$image \
	    && BUILD_ENVIRONMENT=.venv-images/build tools/image-environment complete $$image .venv-images/$$image \
	    && .venv-images/$$image/bin/python -m assay_$$image --version || exit 1; \
	done
	@du -sh .venv-images/orchestrator .venv-images/embedder .venv-images/judge

sbom: images                   ## write a bill of materials for each image into sbom/
	mkdir -p sbom
	@for image in orchestrator embedder judge; do cp .venv-images/$$image/sbom.cdx.json sbom/assay-$$image.cdx.json; done

protos: .venv-protos/protos.stamp  ## regenerate the checked-in stubs
	tools/generate-stubs library

protos-image: .venv/dev.stamp  ## renew protos/image.binpb, the promised contracts; part of a release, see CONTRIBUTING.md
	@[ ! -e protos/image.binpb ] || $(BIN)/buf breaking --against protos/image.binpb
	$(BIN)/buf build --exclude-source-info -o protos/image.binpb

docs: .venv-docs/docs.stamp    ## build the documentation site into .site/html; fails on broken links and other warnings
	.venv-docs/bin/python -m tools.site
	@echo "site: .site/html/index.html"

bench: .venv/dev.stamp         ## measure throughput; see benchmarks/README.md
	$(BIN)/python -m benchmarks.throughput

dist: .venv/dev.stamp          ## build the wheel, the source distribution and the archive of the protos of a release into dist/
	$(BIN)/python -m hatchling build -d dist
	tar -czf dist/assay-protos-$$($(BIN)/python -m hatchling version).tar.gz --sort=name --owner=0 --group=0 --numeric-owner protos docs/api.md docs/errors.md docs/filters.md

lock: .venv-lock/lock.stamp    ## rewrite the lists in requirements/; UPGRADE=1 takes the newest versions
	.venv-lock/bin/python tools/lock.py $(if $(UPGRADE),--upgrade)

clean:                         ## remove everything that these targets create
	rm -rf dist .site .venv .venv-docs .venv-frameworks .venv-floors .venv-protos .venv-lock .venv-deploy .venv-images .aimock .mutants sbom clients/typescript/node_modules clients/typescript/dist clients/typescript/src/gen

.aimock/node_modules:
	npm install --silent --no-fund --no-audit --prefix .aimock @copilotkit/aimock@1.43.0

.venv/run.stamp: pyproject.toml requirements/run.txt requirements/build.txt tools/install tools/install-locked
	@tools/install .venv run "$(PYTHON)"

.venv/dev.stamp: pyproject.toml requirements/dev.txt requirements/build.txt tools/install tools/install-locked
	@tools/install .venv dev "$(PYTHON)"

.venv-frameworks/frameworks.stamp: pyproject.toml requirements/frameworks.txt requirements/build.txt tools/install tools/install-locked
	@tools/install .venv-frameworks frameworks "$(PYTHON)"

.venv-floors/floors.stamp: pyproject.toml requirements/floors.txt requirements/build.txt tools/install tools/install-locked
	@tools/install .venv-floors floors "$(PYTHON)"

.venv-docs/docs.stamp: pyproject.toml requirements/docs.txt requirements/build.txt tools/install tools/install-locked
	@tools/install .venv-docs docs "$(PYTHON)"

.venv-protos/protos.stamp: requirements/protos.txt tools/install tools/install-locked
	@tools/install .venv-protos protos "$(PYTHON)"

.venv-deploy/deploy.stamp: requirements/deploy.txt tools/install tools/install-locked
	@tools/install .venv-deploy deploy "$(PYTHON)"

.venv-lock/lock.stamp: requirements/lock.txt tools/install tools/install-locked
	@tools/install .venv-lock lock "$(PYTHON)"
