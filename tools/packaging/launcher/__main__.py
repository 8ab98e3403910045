"""python3 -m PACKAGE COMMAND ARGUMENT...: for where the commands are not on the PATH. Without a command: the package's folder."""
import importlib
import sys

from . import launch, needs

if len(sys.argv) == 1:
    print(launch.FOLDER)
elif sys.argv[1] not in needs.COMMANDS:
    launch.fail(f"command = {sys.argv[1]}: is none of {', '.join(needs.COMMANDS)}")
elif needs.COMMANDS[sys.argv[1]] == "launch":
    launch.run(sys.argv[1], sys.argv[2:])
else:
    module = importlib.import_module("." + needs.COMMANDS[sys.argv[1]], __package__)
    sys.exit(module.main(sys.argv[2:]))
