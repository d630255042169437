# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's checkpatch.pl."""
from kit.common import BUILD, output


def findings(path, tree, *ignored):
    """Its lines about a patch, by the rules of the tree. Whether new files are in MAINTAINERS is
    what `make check` looks after. linux/ has no commit that a Fixes: could name."""
    types = ','.join(['FILE_PATH_CHANGES', 'UNKNOWN_COMMIT_ID', *ignored])
    done = output(['perl', 'scripts/checkpatch.pl', '--strict', '--show-types', '--color=never',
                   '--no-summary', '--terse', f'--ignore={types}', path],
                  cwd=tree, env={'HOME': BUILD}, check=False)
    failed = [f'{path.name}: {done.stderr.strip()}'] if done.returncode else []
    return done.stdout.splitlines() or failed
