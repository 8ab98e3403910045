#!/usr/bin/env python3
"""Packs a wheel of contents.py from what Bazel has built.
    pack.py targets WHEEL              what Bazel must have built
    pack.py pack WHEEL TEXT FOLDER     writes the wheel into FOLDER; TEXT is the example's text
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import libraries
import wheel
from contents import LIMIT_MIB, PLATFORM, PYTHON, TEXT, WHEELS

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "../.."))


def die(why):
    sys.exit(f"packing failed: {why}")


def output_of(label):
    """Path in Bazel's output tree."""
    return label[2:].replace(":", "/")


def built(label):
    path = os.path.join(ROOT, "bazel-bin", output_of(label))
    if not os.path.exists(path):
        die(f"{path} is missing: bazel build {label}")
    return path


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def torch_version():
    return re.search(r"^torch==(\S+)", read("tools/deps.lock"), re.MULTILINE).group(1)


def prepare(label, folder):
    """A copy without debug information, which finds the package's own libraries, wherever it is unpacked."""
    copy = os.path.join(folder, os.path.basename(output_of(label)))
    shutil.copyfile(built(label), copy)
    # An RPATH holds for the libraries that libraries need, too; a RUNPATH would not.
    for command in (["strip", copy], ["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib", copy]):
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            die(f"{' '.join(command)}: {run.stderr.strip()}")
    return copy


def files_below(top):
    """Path below `top` -> path."""
    found = {}
    for there, _, names in os.walk(top):
        found |= {os.path.relpath(os.path.join(there, name), top): os.path.join(there, name) for name in names}
    return found


def data_of(label, contents):
    """Path in the runfiles -> file, of what a test reads; programs of the package are not meant."""
    found = files_below(built(label) + ".runfiles/legoai")
    own, programs = output_of(label), {output_of(one) for one in contents.programs}
    if any(name.startswith("_solib") for name in found):
        die(f"{label} is linked with shared libraries of ours: say linkstatic = True in its BUILD file")
    return {name: path for name, path in found.items() if name != own and name not in programs}


def in_wheels():
    """name -> path of the libraries that come with torch and NVIDIA's wheels."""
    return {os.path.basename(path): path for pattern in ("torch/lib/*.so*", "nvidia/*/lib/*.so*")
            for path in glob.glob(os.path.join(ROOT, ".deps", pattern))}


def check_versions(files):
    """What the files ask of glibc must not be newer than the wheel's name says; gives what they ask of libstdc++."""
    glibc = tuple(map(int, PLATFORM.split("_")[1:3]))
    for path in files:
        if libraries.newest_version(path, "GLIBC") > glibc:
            die(f"{path} needs a newer glibc than {PLATFORM} says")
    return glibc, max(libraries.newest_version(path, "GLIBCXX") for path in files)


def dotted(version):
    return ".".join(map(str, version))


def needs_of(contents, files):
    glibc, glibcxx = check_versions(files)
    values = {
        "PACKAGE": contents.name, "TORCH": torch_version(), "GLIBC": dotted(glibc), "GLIBCXX": dotted(glibcxx),
        "COMMANDS": contents.commands, "TESTS": [os.path.basename(output_of(label)) for label in contents.tests],
        "PROGRAMS": {output_of(label): "bin/" + os.path.basename(output_of(label)) for label in contents.programs},
    }
    return '"""What the programs need, and what they are; written when they were packed."""\n' + "".join(
        f"{name} = {value!r}\n" for name, value in values.items())


def add_python(bundle, contents):
    for name in contents.modules:
        bundle.add_file(f"{contents.name}/{name}.py", os.path.join(HERE, "launcher", f"{name}.py"))
    modules = [path for pattern in contents.check for path in glob.glob(os.path.join(ROOT, pattern))
               if not path.endswith("_test.py")]
    if modules:
        bundle.add(f"{contents.name}/check/__init__.py", "")
    for path in modules:
        bundle.add_file(f"{contents.name}/check/{os.path.basename(path)}", path)


def add_data(bundle, contents, text):
    for place, path in contents.files.items():
        bundle.add_file(f"{contents.name}/{place}", os.path.join(ROOT, path))
    for place, folder in contents.folders.items():
        found = files_below(os.path.join(ROOT, folder))
        if not found:
            die(f"{folder} is missing: run tools/build_web")
        for name, path in found.items():
            bundle.add_file(f"{contents.name}/{place}/{name}", path)
    bundle.add_file(f"{contents.name}/{TEXT}", text)
    data = {}
    for label in contents.tests:
        data |= data_of(label, contents)
    for place, path in data.items():
        bundle.add_file(f"{contents.name}/tests/data/{place}", path, os.access(path, os.X_OK))


def add_binaries(bundle, contents, folder):
    """Gives the paths of the libraries that were added."""
    programs = [prepare(label, folder) for label in contents.programs]
    tests = [prepare(label, folder) for label in contents.tests]
    for plugin in (path for path in programs if path.endswith(".so")):
        lost = libraries.unresolved(plugin, in_wheels())
        if lost:
            die(f"{os.path.basename(plugin)} would not load: nothing it is linked with has {', '.join(lost)}")
    carried = libraries.collect(programs + tests, in_wheels())
    for place, paths in (("bin", programs), ("tests", tests)):
        for path in paths:
            bundle.add_file(f"{contents.name}/{place}/{os.path.basename(path)}", path, True)
    for name, path in carried.items():
        bundle.add_file(f"{contents.name}/lib/{name}", path)
    bundle.add(f"{contents.name}/needs.py", needs_of(contents, programs + tests + list(carried.values())))
    return list(carried.values())


def add_licences(bundle, contents, carried):
    found = libraries.licences(carried, contents.packages)
    found |= {place: os.path.join(ROOT, path) for place, path in contents.licences.items()}
    for place, path in found.items():
        bundle.add_file(f"{bundle.dist_info}/licenses/{place}", path)


def pack(contents, text, folder):
    bundle = wheel.Wheel(contents.name, read("VERSION").strip(), f"py3-none-{PLATFORM}")
    with tempfile.TemporaryDirectory() as scratch:
        carried = add_binaries(bundle, contents, scratch)
    add_python(bundle, contents)
    add_data(bundle, contents, text)
    add_licences(bundle, contents, carried)
    commands = {name: f"{contents.name}.{module}:main" for name, module in contents.commands.items()}
    bundle.describe(contents.summary, [f"torch=={torch_version()}"], PYTHON, commands)
    path = bundle.write(folder)
    size = os.path.getsize(path) / 2**20
    if size >= LIMIT_MIB:
        os.remove(path)
        largest = sorted(bundle.files, key=lambda name: -len(bundle.files[name][0]))[:5]
        die(f"the wheel has {size:.1f} MiB, and less than {LIMIT_MIB} are allowed; the largest are {', '.join(largest)}")
    print(f"{len(carried)} libraries of the distribution; {size:.1f} MiB", file=sys.stderr)
    print(path)


def main(arguments):
    action, names = arguments[:1], arguments[1:]
    if not names or names[0] not in WHEELS:
        sys.exit(__doc__)
    contents = WHEELS[names[0]]
    if action == ["targets"] and len(names) == 1:
        print("\n".join(contents.targets))
    elif action == ["pack"] and len(names) == 3:
        try:
            pack(contents, *names[1:])
        except (libraries.Missing, OSError) as error:
            die(error)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
