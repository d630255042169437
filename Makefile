# SPDX-License-Identifier: GPL-2.0-only
# The front door: `make VERB NAME=value` is `python3 -m kit VERB --name value` (kit/cli.py).
.DEFAULT_GOAL := help
.NOTPARALLEL:
VERBS := run test soak differ mutants shell bench check mail tree export tables deps
.PHONY: help clean $(VERBS)

# who builds kernels may have these exported for something else
ifneq ($(filter environment,$(origin ARCH) $(origin BASE)),)
$(error ARCH= or BASE= is exported: say `make VERB ARCH=...`, or unset it)
endif

help:    # all verbs; `python3 -m kit VERB --help` shows the options of one
	@sh kit/start.sh --help

$(VERBS):
	@sh kit/start.sh $@

clean:    # deletes build/; linux/ stays
	@rm -rf build
	@git -C linux worktree prune 2>/dev/null || true
