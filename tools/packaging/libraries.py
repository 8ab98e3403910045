"""Finds the shared libraries of the distribution that programs need, and under which licences they are."""
import functools
import os
import re
import subprocess

# What every Linux machine has, at least as new as the programs want it (symbol versions say so).
OF_THE_MACHINE = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2",
                  "libanl.so.1", "ld-linux-x86-64.so.2", "libstdc++.so.6", "libgcc_s.so.1"}


class Missing(Exception):
    pass


def _output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout


@functools.lru_cache(maxsize=None)
def _private_headers(path):
    return _output("objdump", "-p", path)


def needed(path):
    """Names of the libraries that a program or library is linked with."""
    return re.findall(r"^\s*NEEDED\s+(\S+)", _private_headers(path), re.MULTILINE)


def newest_version(path, family):
    """The newest symbol version of a family ("GLIBC", "GLIBCXX") that the file asks for, as a tuple of numbers."""
    wanted = _private_headers(path).partition("Version References:")[2]
    versions = re.findall(rf"\b{family}_(\d[\d.]*)", wanted)
    return max((tuple(map(int, version.split("."))) for version in versions), default=(0,))


def _of_the_distribution():
    cache = _output("/sbin/ldconfig", "-p")
    return {name: path for name, path in re.findall(r"^\s*(\S+) \(libc6,x86-64.*\) => (\S+)", cache, re.MULTILINE)}


def unresolved(plugin, elsewhere):
    """Symbols that the plugin asks for and none of the libraries it is linked with has: it would link, and not load."""
    places = _of_the_distribution() | elsewhere
    had = {symbol.split("@")[0] for name in needed(plugin) for symbol in
           re.findall(r"^\S+ [A-Zuvwi] (\S+)", _output("nm", "-D", "--defined-only", places[name]), re.MULTILINE)}
    wanted = re.findall(r"^\s+U (\S+)", _output("nm", "-D", "--undefined-only", plugin), re.MULTILINE)
    return sorted({symbol.split("@")[0] for symbol in wanted} - had)


def collect(programs, elsewhere):
    """name -> path of all libraries that `programs` need, directly or not, except those of every machine and those that are
    `elsewhere`."""
    places, found, waiting = _of_the_distribution(), {}, list(programs)
    while waiting:
        user = waiting.pop()
        for name in needed(user):
            if name in OF_THE_MACHINE or name in elsewhere or name in found:
                continue
            if name not in places:
                raise Missing(f"{os.path.basename(user)} needs {name}, which neither the distribution nor torch has")
            found[name] = places[name]
            waiting.append(places[name])
    return found


def _packages_of(paths):
    # dpkg knows a file by the name it was installed under: with or without /usr where these are merged.
    names = {path: {path, os.path.realpath(path)} for path in paths}
    for some in names.values():
        some |= {"/usr" + one for one in some} | {one.removeprefix("/usr") for one in some}
    owners = {}
    for line in _output("dpkg", "-S", *sorted(set().union(*names.values()))).splitlines():
        package, _, file = line.partition(": ")
        owners[file] = package.split(":")[0]
    found = set()
    for path, some in names.items():
        mine = {owners[name] for name in some if name in owners}
        if not mine:
            raise Missing(f"{path} belongs to no package: its licence is not known")
        found |= mine
    return found


def licences(paths, packages):
    """path below licenses/ -> file: the copyright of `packages` and of each that has one of `paths`, and the common licences that
    these name."""
    found = {}
    for package in _packages_of(paths) | set(packages):
        copyright_file = f"/usr/share/doc/{package}/copyright"
        found[f"{package}/copyright"] = copyright_file
        with open(copyright_file, encoding="utf-8", errors="replace") as file:
            named = re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])", file.read())
        found |= {f"common-licenses/{name}": f"/usr/share/common-licenses/{name}" for name in named
                  if os.path.isfile(f"/usr/share/common-licenses/{name}")}
    return found
