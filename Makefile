# Every target works on a fresh machine: scripts/install-deps.sh installs what is missing.

.DEFAULT_GOAL := build
.PHONY: help deps build release install uninstall package demo test lint bench device
.PHONY: bench-guard
.PHONY: libextol python wheel crates long-test crash fuzz soak kill-rounds shake clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what is missing
	@scripts/install-deps.sh

# Where `make install` puts things; scripts/install.sh has the others.
PREFIX ?= /usr/local
export PREFIX DESTDIR SBINDIR UNITDIR ZSHDIR
# What is built and installed: quick, which compiles in a minute or two, or release.
PROFILE ?= quick
TARGET := $(or $(CARGO_TARGET_DIR),target)
BUILT := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/extol

build: ## build target/quick/extol (the default)
	cargo build --profile $(PROFILE) -p extol-cli

release: ## build target/release/extol, optimised as one: takes some minutes
	@$(MAKE) --no-print-directory build PROFILE=release

install: ## install what was built, with manual pages (PREFIX=/usr/local DESTDIR= PROFILE=quick)
	EXTOL=$(BUILT) scripts/install.sh install

uninstall: ## remove what install has put there
	scripts/install.sh uninstall

package: deps ## build the Debian package (PROFILE=release)
	@scripts/package.sh $(if $(filter command line,$(origin PROFILE)),$(PROFILE),release)

libextol: deps ## build the library for C into target/libextol (PROFILE=quick)
	@PROFILE=$(PROFILE) scripts/libextol.sh

python: deps ## install the Python package into target/python, and test it (PROFILE=quick)
	@scripts/python-test.sh $(PROFILE)

wheel: ## build a Python package for other machines, in target/wheels (PROFILE=release)
	@scripts/python-wheel.sh $(if $(filter command line,$(origin PROFILE)),$(PROFILE),release)

crates: ## pack the crates of the Rust library as for crates.io, and build each from its package
	@scripts/crates.sh --full

demo: ## make, mount, fill and check a volume
	@scripts/demo.sh

test: ## formatting, lints, documentation, all tests
	@scripts/test.sh

lint: ## the rules of writing, formatting and lints
	scripts/lint.py
	scripts/check-docs.sh
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench: release ## compare with Linux and fuse2fs (root)
	cargo build --release -p extol-bench
	PATH="$$PATH:/usr/sbin:/sbin" target/release/extol-bench metadata \
		--target mount --target noop --target kernel --target fuse2fs

bench-guard: deps ## loads that show a regression, beside fuse2fs (AGAINST=PROGRAM or COMMIT; root)
	@scripts/bench-guard.sh $(AGAINST)

device: ## the tests of mounts without io_uring, through /dev/fuse (root)
	@scripts/device.sh

long-test: ## the long variants of the tests, for a night
	@scripts/long-tests.sh

crash: deps ## cut the power at every write, for an hour (MINUTES=60)
	@EXTOL_CRASH_MINUTES=$(or $(MINUTES),60) scripts/crash.sh

fuzz: deps ## fuzz every target for ten minutes (SECONDS=600)
	@scripts/fuzz.sh --seconds $(or $(SECONDS),600)

soak: deps ## stress a mount for an hour, memory and threads watched (SECONDS=3600)
	@scripts/soak.sh $(or $(SECONDS),3600)

kill-rounds: deps ## kill mounts under load, 500 times (ROUNDS=500)
	@scripts/kill.sh $(or $(ROUNDS),500)

shake: deps ## hold threads up at their locks, another choice of places for each seed (MINUTES=30)
	@scripts/shake.sh $(or $(MINUTES),30)

clean: ## remove what was built and the demo image
	cargo clean
	rm -rf demo.img demo-mnt
