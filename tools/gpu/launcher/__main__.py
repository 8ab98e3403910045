"""python3 -m PACKAGE PROGRAM ARGUMENT...: for where the commands are not on the PATH. Without a program: the package's folder."""
import sys

from . import launch, needs, run_check, run_tests

MODULES = {module.COMMAND: module for module in (run_tests, run_check)}

if len(sys.argv) == 1:
    print(launch.FOLDER)
elif sys.argv[1] in MODULES:
    sys.exit(MODULES[sys.argv[1]].main(sys.argv[2:]))
elif sys.argv[1] in needs.COMMANDS:
    launch.run(sys.argv[1], sys.argv[2:])
else:
    launch.fail(f"program = {sys.argv[1]}: is none of {', '.join([*needs.COMMANDS, *MODULES])}")
