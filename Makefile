# SPDX-License-Identifier: GPL-2.0-only
# The front door: each verb is one line, the programs are in scripts/.
# Variables given to make (ARCH=, TEST=, TOPIC=, LINUX= ...) reach them through the environment.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run bench test check shell mail tree export setup deps clean

help:    ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: setup    ## the main job: base and patched kernels pin a guest's memory side by side, with a table of seconds
	@scripts/run

bench: setup    ## the same, recorded: bench/TOPIC.json and plots [TOPIC=padata-vfio] [SWEEP=1]
	@scripts/bench $(TOPIC)

test: setup    ## debug kernels booted; kselftests, KUnit suites and upstream's tests in them [TEST=pattern ARCH=...]
	@scripts/test

check: setup    ## everything static: applies, round trip, each patch builds, checkpatch, docs, mail [CHECK=...]
	@scripts/check

shell: setup    ## the patched kernel, booted, with a shell [ARCH=x86_64|arm64|powerpc]
	@scripts/shell $(or $(ARCH),x86_64)

mail: setup    ## the series as mail, into an mbox; SEND=1 sends it [TOPIC=... TO=...]
	@scripts/mail

tree: deps    ## linux/ made from series/ (refuses to lose work there) [LINUX=/path/to/a/v7.3.y/tree]
	@scripts/base
	@scripts/tree

export:    ## series/ written from the commits in linux/
	@scripts/export

deps:    ## the Debian packages that are missing, installed (as root) or named [ARCH=...]
	@scripts/deps $(ARCH)

# What the other verbs stand on: a linux/ with work of its own in it is used as it is
setup: deps
	@scripts/base
	@scripts/tree --keep

clean:    ## build/ deleted; linux/ stays
	@git -C linux worktree list --porcelain 2>/dev/null | sed -n 's/^worktree //p' | grep "^$(CURDIR)/build/" | xargs -r rm -rf
	@rm -rf build
	@git -C linux worktree prune 2>/dev/null || true
