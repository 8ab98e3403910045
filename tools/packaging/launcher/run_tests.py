"""Runs the package's tests, where each finds files and programs under the names they have in the build's output."""
import os
import subprocess
import sys
import tempfile

from . import launch, needs

COMMAND = "legoai-gpu-tests"
TESTS = os.path.join(launch.FOLDER, "tests")
DATA = os.path.join(TESTS, "data")


def _link(folder, name, target):
    place = os.path.join(folder, name)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    os.symlink(target, place)


def _lay_out(folder):
    for there, _, names in os.walk(DATA):
        for name in names:
            path = os.path.join(there, name)
            _link(folder, os.path.relpath(path, DATA), path)
    for name, place in needs.PROGRAMS.items():
        _link(folder, name, os.path.join(launch.FOLDER, place))


def main(arguments=None):
    """Exit code: that of the first test program that failed. The arguments go to each: --gtest_filter=…, --gtest_list_tests."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        surroundings = launch.environment()
    except launch.Unfit as error:
        launch.fail(error)
    code = 0
    with tempfile.TemporaryDirectory(prefix="legoai-tests-") as folder:
        _lay_out(os.path.join(folder, "files"))
        os.mkdir(os.path.join(folder, "tmp"))
        surroundings |= {"TEST_TMPDIR": os.path.join(folder, "tmp"), "LEGOAI_TRAINER": launch.program("legoai-trainer")}
        surroundings["LD_LIBRARY_PATH"] += ":" + os.path.join(launch.FOLDER, "bin")  # the plugin, asked for by its name
        for name in needs.TESTS:
            run = subprocess.run([os.path.join(TESTS, name), *arguments], cwd=os.path.join(folder, "files"), env=surroundings)
            code = code or (run.returncode if run.returncode >= 0 else 128 - run.returncode)
    return code
