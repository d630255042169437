#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Installs Python if the machine has none, then runs `python3 -m kit "$@"`.
set -eu
if ! command -v python3 >/dev/null; then
	case " $* " in *' --help '*)
		echo "python3 (3.11 or newer) is missing: \`make deps\` installs it as root" >&2
		exit 1
	esac
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "deps: python3 (3.11 or newer) is missing: install it" >&2
		exit 1
	fi
	echo "deps: installing python3" >&2
	export DEBIAN_FRONTEND=noninteractive
	install='apt-get install -qq -y --no-install-recommends python3'
	{ $install || { apt-get update -qq && $install; }; } >/dev/null || {
		echo "deps: apt-get could not install python3" >&2
		exit 1
	}
fi
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
	echo "deps: $(python3 --version) is too old: 3.11 or newer is needed" >&2
	exit 1
fi
cd "$(dirname "$0")/.."
# UTF-8 in any locale: the pages contain arrows
exec python3 -X utf8 -m kit "$@"
