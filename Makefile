# Every target works on a fresh machine: scripts/install-deps.sh installs what is missing.

.DEFAULT_GOAL := build
.PHONY: help deps build demo test lint bench long-test clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what is missing
	@scripts/install-deps.sh

build: ## build the optimised binary, target/release/extol (the default)
	cargo build --release -p extol-cli

demo: ## make, mount, fill and check a volume
	@scripts/demo.sh

test: deps ## formatting, lints, documentation, all tests
	@scripts/test.sh

lint: ## formatting and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench: build ## compare with Linux and fuse2fs (root)
	PATH="$$PATH:/usr/sbin:/sbin" target/release/extol bench metadata

long-test: ## the long variants of the tests, for a night
	@scripts/long-tests.sh

clean: ## remove what was built and the demo image
	cargo clean
	rm -rf demo.img demo-mnt
