#!/usr/bin/env python3
"""Packs what a machine with a GPU needs beside Python's torch into one wheel, from what Bazel has built.
    bundle.py targets                  what Bazel must have built
    bundle.py pack TEXT FOLDER         writes the wheel into FOLDER; TEXT is the example's text
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

NAME = "legoai_gpu"
SUMMARY = "LegoAI's programs, CUDA plugin and GPU tests, to run beside torch"
PLATFORM = "manylinux_2_36_x86_64"
PYTHON = ">=3.9"
LIMIT_MIB = 60
# Programs and plugins: they lie side by side, since they look for each other there.
PROGRAMS = ["//server/cli:lego", "//simulator/capture:lego-sim", "//simulator/capture:lego-measure",
            "//worker/train:legoai-trainer", "//worker/comm/cuda:liblegoai_cuda.so"]
COMMANDS = ["lego", "lego-sim", "lego-measure", "legoai-trainer"]
# Linked statically but for what the wheel carries and torch.
TESTS = ["//tests/gpu:gpu_tests"]
# Place in the package -> file of the tree.
FILES = {
    "examples/job.toml": "examples/job.toml",
    "examples/tiny-llama/config.json": "examples/tiny-llama/config.json",
}
# Modules that find each other in one folder.
CHECK = ["tools/gpu/check*.py", "tools/gpu/eager*.py"]
TEXT = "runs/text/king_james.txt"  # where the example job looks for it
# Their licences go along beside those of the libraries: the text, and what is compiled into the programs.
PACKAGES = ["bible-kjv-text", "libgtest-dev", "nlohmann-json3-dev"]
ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))


def die(why):
    sys.exit(f"gpu_bundle failed: {why}")


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


def data_of(label):
    """Path in the runfiles -> file, of what a test reads; programs of the package are not meant."""
    top = built(label) + ".runfiles/legoai"
    own, programs = output_of(label), {output_of(one) for one in PROGRAMS}
    found = {}
    for there, _, names in os.walk(top):
        found |= {os.path.relpath(os.path.join(there, name), top): os.path.join(there, name) for name in names}
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


def needs_of(files):
    glibc, glibcxx = check_versions(files)
    values = {
        "PACKAGE": NAME, "TORCH": torch_version(), "GLIBC": dotted(glibc), "GLIBCXX": dotted(glibcxx), "COMMANDS": COMMANDS,
        "TESTS": [os.path.basename(output_of(label)) for label in TESTS],
        "PROGRAMS": {output_of(label): "bin/" + os.path.basename(output_of(label)) for label in PROGRAMS},
    }
    return '"""What the programs need, and what they are; written when they were packed."""\n' + "".join(
        f"{name} = {value!r}\n" for name, value in values.items())


def add_python(bundle):
    here = os.path.dirname(os.path.abspath(__file__))
    for path in glob.glob(os.path.join(here, "launcher", "*.py")):
        bundle.add_file(f"{NAME}/{os.path.basename(path)}", path)
    bundle.add(f"{NAME}/check/__init__.py", "")
    for path in (path for pattern in CHECK for path in glob.glob(os.path.join(ROOT, pattern))):
        if not path.endswith("_test.py"):
            bundle.add_file(f"{NAME}/check/{os.path.basename(path)}", path)


def add_data(bundle, text):
    for place, path in FILES.items():
        bundle.add_file(f"{NAME}/{place}", os.path.join(ROOT, path))
    bundle.add_file(f"{NAME}/{TEXT}", text)
    data = {}
    for label in TESTS:
        data |= data_of(label)
    for place, path in data.items():
        bundle.add_file(f"{NAME}/tests/data/{place}", path, os.access(path, os.X_OK))


def add_binaries(bundle, folder):
    """Gives the paths of the libraries that were added."""
    programs = [prepare(label, folder) for label in PROGRAMS]
    tests = [prepare(label, folder) for label in TESTS]
    for plugin in (path for path in programs if path.endswith(".so")):
        lost = libraries.unresolved(plugin, in_wheels())
        if lost:
            die(f"{os.path.basename(plugin)} would not load: nothing it is linked with has {', '.join(lost)}")
    carried = libraries.collect(programs + tests, in_wheels())
    for place, paths in (("bin", programs), ("tests", tests)):
        for path in paths:
            bundle.add_file(f"{NAME}/{place}/{os.path.basename(path)}", path, True)
    for name, path in carried.items():
        bundle.add_file(f"{NAME}/lib/{name}", path)
    bundle.add(f"{NAME}/needs.py", needs_of(programs + tests + list(carried.values())))
    return list(carried.values())


def pack(text, folder):
    version = read("VERSION").strip()
    bundle = wheel.Wheel(NAME, version, f"py3-none-{PLATFORM}")
    with tempfile.TemporaryDirectory() as scratch:
        carried = add_binaries(bundle, scratch)
    add_python(bundle)
    add_data(bundle, text)
    for place, path in libraries.licences(carried, PACKAGES).items():
        bundle.add_file(f"{bundle.dist_info}/licenses/{place}", path)
    commands = {name: f"{NAME}.launch:main" for name in COMMANDS} | {
        "legoai-gpu-tests": f"{NAME}.run_tests:main", "legoai-gpu-check": f"{NAME}.run_check:main"}
    bundle.describe(SUMMARY, [f"torch=={torch_version()}"], PYTHON, commands)
    path = bundle.write(folder)
    size = os.path.getsize(path) / 2**20
    if size >= LIMIT_MIB:
        os.remove(path)
        largest = sorted(bundle.files, key=lambda name: -len(bundle.files[name][0]))[:5]
        die(f"the wheel has {size:.1f} MiB, and less than {LIMIT_MIB} are allowed; the largest are {', '.join(largest)}")
    print(f"{len(carried)} libraries of the distribution; {size:.1f} MiB", file=sys.stderr)
    print(path)


def main(arguments):
    if arguments == ["targets"]:
        print("\n".join(PROGRAMS + TESTS))
    elif len(arguments) == 3 and arguments[0] == "pack":
        try:
            pack(*arguments[1:])
        except libraries.Missing as error:
            die(error)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
