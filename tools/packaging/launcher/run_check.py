"""Runs the check of a machine with a GPU (check/), with the programs and tests of this package."""
import os
import shlex
import sys
import tempfile

from . import launch, needs, run_tests

COMMAND = "legoai-gpu-check"


def _lay_out(folder):
    """Programs and tests side by side, under the names of their commands."""
    for name, module in needs.COMMANDS.items():
        if module == "launch":
            os.symlink(launch.program(name), os.path.join(folder, name))
    path = os.path.join(folder, run_tests.COMMAND)
    command = f"import sys; sys.path.insert(0, {os.path.dirname(launch.FOLDER)!r}); import {needs.PACKAGE}.run_tests as tests; " \
        "sys.exit(tests.main())"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(command)} \"$@\"\n")
    os.chmod(path, 0o755)


def main(arguments=None):
    """Exit code: that of the check."""
    try:
        surroundings = launch.environment()
    except launch.Unfit as error:
        launch.fail(error)
    os.environ.update(surroundings)
    from .check import check  # finds its own modules beside itself
    with tempfile.TemporaryDirectory(prefix="legoai-programs-") as folder:
        _lay_out(folder)
        os.environ["LEGOAI_BIN"] = folder
        return check.main(arguments)
