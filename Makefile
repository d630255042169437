# SPDX-License-Identifier: GPL-2.0-only
# The front door: each verb is one line, the programs are in kit/.
# Variables given to make (ARCH=, TEST=, TOPIC=, LINUX= ...) reach them through the environment.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run bench test soak differ check shell mail tree tables export deps clean

# who builds kernels may have these exported for something else
ifneq ($(filter environment,$(origin ARCH) $(origin BASE)),)
$(error ARCH= or BASE= is exported: say `make VERB ARCH=...`, or unset it)
endif

help:    ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run:    ## the main job: base and patched side by side [LINUX=own tree BASE=commit TOPIC= RUNS=]
	@sh kit/start.sh run

test:    ## kernels booted, tests in them [TEST= ARCH= FLAVOUR= CPUS= IOMMU= FULL=1 LINUX= BASE=]
	@sh kit/start.sh test

soak:    ## all topics' workloads at once, kills, hotplug [MINUTES=20 ARCH= FLAVOUR=kcsan SEED=]
	@sh kit/start.sh soak

differ:    ## random calls told the same by base and patched kernel? [CALLS=12500 IOMMU= SEED=]
	@sh kit/start.sh differ

shell:    ## a shell in the patched kernel [ARCH= FLAVOUR= TREE=base IOMMU= SHARE=/path GDB=1 LINUX=]
	@sh kit/start.sh shell

bench:    ## a topic measured and recorded: series/TOPIC/bench.json, picture, tables [TOPIC= PART= RUNS=]
	@sh kit/start.sh bench

check:    ## everything static: applies, round trip, each patch compiles, mail [CHECK=names FULL=1]
	@sh kit/start.sh check

mail:    ## a topic as mail, into an mbox; SEND=1 sends it [TOPIC= PATCH= TO= LINUX=tree with the tag]
	@sh kit/start.sh mail

tree:    ## linux/ made from series/ (refuses to lose work there) [LINUX=/path/to/a/v7.3.y/tree]
	@sh kit/start.sh tree

export:    ## series/ written from the commits in linux/
	@sh kit/start.sh export

tables:    ## the pages' tables written from series/*/bench.json
	@sh kit/start.sh tables

deps:    ## the Debian packages that are missing, installed (as root) or named [ARCH=]
	@sh kit/start.sh deps

clean:    ## build/ deleted; linux/ stays
	@rm -rf build
	@git -C linux worktree prune 2>/dev/null || true
