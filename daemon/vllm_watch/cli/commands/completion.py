# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch completion``: the script by which a shell completes command lines of vllm-watch."""

from __future__ import annotations

from typing import Literal, get_args

import click

from click.shell_completion import get_completion_class

from vllm_watch.daemon.support.standard_streams import write_output


Shell = Literal["bash", "zsh", "fish"]

_PROGRAM = "vllm-watch"
_VARIABLE = "_VLLM_WATCH_COMPLETE"
"""By which the script asks the program: click derives the same name from the program's."""

_LOADED_NOW = "$zsh_eval_context[-1] == loadautofunc"
_CALLED = f"$funcstack[1] == _{_PROGRAM}"
"""
How zsh's script knows that it is a function of zsh's folders, and is to complete something.

Click's way is right only for the first call: the second one would complete nothing.
"""


@click.command("completion")
@click.argument("shell", type=click.Choice(get_args(Shell)))
@click.pass_context
def command(context: click.Context, shell: Shell) -> None:
    """
    Print the script with which a shell completes commands.

    It completes options, their values and file names, too.
    The Debian package and install.sh put it where each shell finds it. To try it in bash: eval "$(vllm-watch completion
    bash)"; in zsh, after compinit, likewise; in fish: vllm-watch completion fish | source.
    """
    known = get_completion_class(shell)(context.find_root().command, {}, _PROGRAM, _VARIABLE)
    write_output(known.source().replace(_LOADED_NOW, _CALLED))
