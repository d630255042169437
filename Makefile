# SPDX-License-Identifier: GPL-2.0-only
# `make VERB NAME=value` runs `python3 -m kit VERB --name value` (kit/cli.py).
.DEFAULT_GOAL := help
.NOTPARALLEL:
VERBS := run test soak differ clients mutants shell bench hardware check mail tree export tables deps
.PHONY: help clean $(VERBS)

# often exported for kernel builds
ifneq ($(filter environment,$(origin ARCH) $(origin BASE)),)
$(error ARCH= or BASE= is exported: use `make VERB ARCH=...`, or unset it)
endif

help:    # lists all verbs; `python3 -m kit VERB --help` shows the options of one
	@sh kit/start.sh --help

$(VERBS):
	@sh kit/start.sh $@

clean:    # deletes build/ and keeps linux/
	@rm -rf build
	@git -C linux worktree prune 2>/dev/null || true
