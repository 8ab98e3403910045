"""Starts the programs of this package: finds torch and NVIDIA's wheels without importing them, says what is missing or too old,
and gives way to the program. Python is here for nothing else."""
import glob
import importlib.util
import os
import re
import sys

from . import needs

FOLDER = os.path.dirname(os.path.abspath(__file__))


class Unfit(Exception):
    """This machine or its Python lacks what the programs need; the text says what, and what to do."""


def _glibc():
    try:
        name, version = os.confstr("CS_GNU_LIBC_VERSION").split()
    except (AttributeError, OSError, ValueError):
        raise Unfit("glibc = none: the programs are made for Linux with glibc; use such a machine") from None
    return name, version


def _numbers(version):
    return tuple(int(part) for part in version.split("."))


def check_machine():
    name, version = _glibc()
    if _numbers(version) < _numbers(needs.GLIBC):
        raise Unfit(f"{name} = {version}: {needs.GLIBC} or newer is needed; use a newer distribution or container")
    import ctypes  # here, as the check above must work where even this cannot be loaded
    try:
        ctypes.CDLL("libstdc++.so.6")
    except OSError:
        raise Unfit("libstdc++.so.6 = missing: install the distribution's libstdc++6") from None
    with open("/proc/self/maps", encoding="utf-8") as maps:
        path = next(line.split()[-1] for line in maps if "libstdc++.so" in line)
    with open(path, "rb") as library:
        found = re.findall(rb"GLIBCXX_(\d[\d.]*\d)\0", library.read())
    newest = max(_numbers(version.decode()) for version in found)
    if newest < _numbers(needs.GLIBCXX):
        raise Unfit(f"libstdc++.so.6 = GLIBCXX_{'.'.join(map(str, newest))} ({path}): GLIBCXX_{needs.GLIBCXX} is needed; install"
                    " a libstdc++6 of GCC 12 or newer")


def find_torch():
    """torch's folder, of the version the programs were linked for."""
    remedy = f"install it: {os.path.basename(sys.executable)} -m pip install torch=={needs.TORCH}"
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise Unfit(f"torch = missing: {remedy}")
    folder = os.path.dirname(spec.origin)
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", file.read(), re.MULTILINE).group(1)
    except (OSError, AttributeError):
        raise Unfit(f"torch = {folder}: its version.py does not say which version it is; {remedy}") from None
    if version.split("+")[0] != needs.TORCH:
        raise Unfit(f"torch = {version} ({folder}): the programs are linked for {needs.TORCH}; {remedy}")
    return folder


def library_path():
    """torch's libraries and those of NVIDIA's wheels. This package's own are found by the programs themselves: Python, or what
    else a caller starts with this path, must not load them."""
    folders = [os.path.join(find_torch(), "lib")]
    nvidia = importlib.util.find_spec("nvidia")
    for place in (nvidia.submodule_search_locations or []) if nvidia else []:
        folders += sorted(glob.glob(os.path.join(place, "*", "lib")))
    return folders


def environment():
    """The environment in which programs of this package run. Raises Unfit."""
    check_machine()
    inherited = os.environ.get("LD_LIBRARY_PATH")
    return dict(os.environ, LD_LIBRARY_PATH=":".join(library_path() + ([inherited] if inherited else [])))


def program(name):
    return os.path.join(FOLDER, "bin", name)


def fail(error):
    sys.exit(f"{needs.PACKAGE}: {error}")


def run(name, arguments):
    """Becomes the program."""
    try:
        surroundings = environment()
    except Unfit as error:
        fail(error)
    os.execve(program(name), [name, *arguments], surroundings)


def main():
    """Of the console commands: each is called as the program it starts."""
    run(os.path.basename(sys.argv[0]), sys.argv[1:])
