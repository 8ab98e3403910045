"""trial.py PACKAGE SECONDS: the checks of tools/packaging/trial, made in a bare root: everything in the wheel starts, what needs a
GPU says so, and no library is loaded but the wheel's, torch's, NVIDIA's, and glibc with libstdc++. Only for that root: it changes
what is installed. SECONDS since 1970: when pip began."""
import base64
import fcntl
import glob
import hashlib
import importlib
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from importlib import metadata

PACKAGE, INSTALL_BEGAN = sys.argv[1], float(sys.argv[2])
launch, needs = (importlib.import_module(f"{PACKAGE}.{module}") for module in ("launch", "needs"))
OF_THE_MACHINE = re.compile(r"/(usr/)?lib(64)?/(x86_64-linux-gnu/)?(ld-linux-x86-64|lib(c|m|dl|pthread|rt|util|"
                            r"resolv|stdc\+\+|gcc_s))\.so\.\d+")
SITE = os.path.dirname(launch.FOLDER)
COMMANDS = os.path.dirname(sys.executable)
SMALL = ["--training.steps=3", "--training.mixed_precision_param=float32", "--training.global_batch_size=4",
         "--training.local_batch_size=2", "--training.seq_len=64", "--validation.enable=false",
         "--checkpoint.enable_checkpoint=false"]
LIMIT_SECONDS = 300  # of one program, on a machine that is busy
started, passed, failed = time.monotonic(), 0, 0


def check(name, wrong):
    """`wrong`: what is not as it should be, or nothing."""
    global passed, failed
    passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"[{time.monotonic() - started:5.1f} s] {'FAILED' if wrong else 'passed'}: {name}", flush=True)
    if wrong:
        print(wrong, flush=True)


def call(*command, **options):
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             timeout=LIMIT_SECONDS, **options)
    except subprocess.TimeoutExpired as late:
        return f"none within {LIMIT_SECONDS} seconds", (late.output or b"").decode(errors="replace")
    return run.returncode, run.stdout.decode(errors="replace")


def unlike(answer, code, words):
    """Why the answer of `call` is not this exit code with all of the words; nothing if it is."""
    missing = [word for word in words if word not in answer[1]]
    if answer[0] == code and not missing:
        return ""
    return f"exit code {answer[0]}, expected {code}; missing words: {missing}; the output's end:\n{answer[1][-3000:]}"


def says(name, code, words, *command, **options):
    check(name, unlike(call(*command, **options), code, words))


def start_loopback():
    """Ranks meet over it; a new network namespace has it down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        flags = fcntl.ioctl(one, 0x8913, struct.pack("16sh14x", b"lo", 0))  # SIOCGIFFLAGS
        up = struct.unpack("16sh14x", flags)[1] | 1  # IFF_UP
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", up))  # SIOCSIFFLAGS


def loaded(*command):
    """Answer of a program of the wheel, the programs that ran for it, and the libraries that these loaded."""
    shutil.rmtree("/tmp/loaded", ignore_errors=True)
    os.mkdir("/tmp/loaded")
    surroundings = launch.environment() | {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": "/tmp/loaded/by"}
    answer = call(launch.program(command[0]), *command[1:], env=surroundings)
    told = ""
    for path in glob.glob("/tmp/loaded/by.*"):
        with open(path, encoding="utf-8", errors="replace") as file:
            told += file.read()
    programs = {os.path.basename(path) for path in re.findall(r"initialize program: (\S+)", told)}
    return answer, programs, {os.path.normpath(path) for path in re.findall(r"calling init: (\S+)", told)}


def foreign(libraries):
    ours = tuple(f"{SITE}/{folder}/" for folder in (PACKAGE, "torch", "nvidia"))
    return sorted(path for path in libraries if not path.startswith(ours) and not OF_THE_MACHINE.fullmatch(path))


def loads_nothing_else(name, expected, *command):
    answer, programs, libraries = loaded(*command)
    wrong = "" if answer[0] == 0 else unlike(answer, 0, [])
    if not wrong and not expected <= programs:
        wrong = f"these were to run: {sorted(expected)}; these did: {sorted(programs)}"
    if not wrong and not any(path.startswith(f"{launch.FOLDER}/lib/") for path in libraries):
        wrong = f"no library of the wheel was seen: {sorted(libraries)}"
    check(name, wrong or "\n".join(foreign(libraries)))


def first_answer():
    words = ["--model", "llama3-8b", "--cluster", "h100-sxm-80:8x1", "--global-batch", "64", "--seq", "8192"]
    says("lego plan of llama3-8b on eight H100", 0, ["The fastest recipe that fits is"], "lego", "plan", *words)
    print(f"the first answer came {time.time() - INSTALL_BEGAN:.1f} s after pip had been started", flush=True)


def ours():
    """The programs of the package that run in the background."""
    found = []
    for path in glob.glob("/proc/[0-9]*/exe"):
        try:
            found.append(os.path.basename(os.readlink(path)))
        except OSError:
            pass  # it has ended
    return sorted(name for name in found if name.startswith("lego"))


def missing_from_page():
    """What of the page cannot be had, and what it names."""
    page = urllib.request.urlopen("http://127.0.0.1:7421/", timeout=LIMIT_SECONDS).read().decode()
    named = re.findall(r'(?:src|href)="(/?[^":]+)"', page)
    if "<title>" not in page or not any(name.endswith(".js") for name in named):
        return page
    missing = []
    for name in named:
        try:
            urllib.request.urlopen("http://127.0.0.1:7421/" + name.lstrip("/"), timeout=LIMIT_SECONDS).read()
        except OSError as error:
            missing.append(f"{name}: {error}")
    return "\n".join(missing)


def service_works():
    """As ./quickstart does it from a checkout."""
    says("lego up", 0, ["http://127.0.0.1:7421/", "lego up --stop"], "lego", "up")
    check("the page and what it loads", missing_from_page())
    small = [word for word in SMALL if "mixed_precision" not in word and "local_batch" not in word]
    says("lego submit of the example, shortened", 0, ["succeeded at step 3/3"], "lego", "submit", "examples/job.toml", "--watch",
         "--planning.budget_seconds=60", "--planning.constraints=training.mixed_precision_param=float32", *small)
    says("lego up --stop", 0, ["stopped", "/.local/share/legoai"], "lego", "up", "--stop")
    check("nothing is left that runs", "\n".join(ours()))


def programs_start():
    says("lego --version", 0, ["lego 0."], "lego", "--version")
    says("lego --help", 0, ["plan", "train"], "lego", "--help")
    says("lego models", 0, ["llama3-8b"], "lego", "models")
    says("lego hardware", 0, ["h100-sxm-80"], "lego", "hardware")
    says("legoai-server", 2, ["--data", "is needed"], "legoai-server")
    says("legoai-agent", 2, ["--runs", "is needed"], "legoai-agent")
    says("lego-sim", 2, ["started by lego"], "lego-sim")
    says("legoai-trainer", 2, ["started by `lego train`"], "legoai-trainer")
    says("legoai-generate", 2, ["started by lego"], "legoai-generate")
    says("lego-measure --device=cuda is refused", 1, ["device", "cuda", "no GPU can be used here"],
         "lego-measure", "--device=cuda")
    says("python3 -m", 0, ["lego 0."], "python3", "-m", PACKAGE, "lego", "--version")


def programs_work():
    plan = ["plan", "--model", "examples/tiny-llama", "--cluster", "h100-sxm-80:8x1", "--global-batch", "64", "--seq", "256"]
    loads_nothing_else("lego plan of the example's model on eight H100, and the libraries", {"lego", "lego-sim"}, "lego", *plan)
    train = ["train", "examples/job.toml", *SMALL]
    loads_nothing_else("lego train of two ranks, and the libraries", {"lego", "legoai-trainer"}, "lego", *train, "--nproc", "2")
    says("lego train --device cuda is refused", 1, ["device", "cuda", "no GPU can be used here"],
         "lego", *train, "--fresh", "--device", "cuda")


def tests_work():
    for name in needs.TESTS:
        loads_nothing_else(f"{name} tells its tests, and the libraries", {name}, f"../tests/{name}", "--gtest_list_tests")
    says("legoai-gpu-tests", 0, ["PASSED", "SKIPPED", "no GPU can be used here"], "legoai-gpu-tests")
    says("legoai-gpu-check --help", 0, ["--out", "--seconds"], "legoai-gpu-check", "--help")
    says("legoai-gpu-check misses the card, and finds programs and tests", 1,
         ["LegoAI: lego 0.", "a card: failed", "skipped: ", "no GPU can be used here", " 1 failed"],
         "legoai-gpu-check", "--out", "checked", "--only", "facts,smoke,nccl", "--seconds", "100")


def copy_of_package(folder, **changes):
    """The Python of the package beside links to the rest, with other needs."""
    os.makedirs(f"{folder}/{PACKAGE}")
    for name in os.listdir(launch.FOLDER):
        if name.endswith(".py"):
            shutil.copy(f"{launch.FOLDER}/{name}", f"{folder}/{PACKAGE}/{name}")
        elif name != "__pycache__":
            os.symlink(f"{launch.FOLDER}/{name}", f"{folder}/{PACKAGE}/{name}")
    with open(f"{folder}/{PACKAGE}/needs.py", "a", encoding="utf-8") as file:
        file.writelines(f"{name} = {value!r}\n" for name, value in changes.items())
    return folder


def unfit_machines_are_named():
    """In folders of their own, as `pip install --target` leaves them."""
    command = ["-m", PACKAGE, "lego", "--version"]
    cases = {"a glibc that is too old": ({"GLIBC": "9.1"}, ["glibc = 2.", "9.1 or newer"]),
             "a libstdc++ that is too old": ({"GLIBCXX": "9.9.9"}, ["libstdc++.so.6 = GLIBCXX_3.4.", "GLIBCXX_9.9.9"]),
             "another torch": ({"TORCH": "9.0.0"}, ["torch = 2.11.0+cu130", "linked for 9.0.0", "pip install torch==9.0.0"])}
    for number, (name, (changes, words)) in enumerate(cases.items()):
        folder = copy_of_package(f"/home/unfit{number}", **changes)
        says(f"{name} is named", 1, words, "python3", *command, env=dict(os.environ, PYTHONPATH=folder))
    folder = copy_of_package("/home/elsewhere")
    surroundings = dict(os.environ, PYTHONPATH=folder)
    says("a folder elsewhere finds torch", 2, ["started by lego"], "python3", "-m", PACKAGE, "lego-sim", env=surroundings)
    words = ["torch = missing", f"pip install torch=={needs.TORCH}"]
    says("no torch is named", 1, words, "python3", "-S", *command, env=surroundings)


def missing_library_is_seen():
    """The trial can fail: what the wheel carries is not on this machine."""
    unseen = []
    for name in ("libabsl_strings", "libgloo", "libgrpc", "libisal", "libprotobuf", "libtomlplusplus"):
        path, = glob.glob(f"{launch.FOLDER}/lib/{name}.so.*")
        os.rename(path, "/home/taken")
        answers = [call(launch.program(one), env=launch.environment()) for one in ("lego", "legoai-trainer")]
        os.rename("/home/taken", path)
        if not any(code == 127 and os.path.basename(path) in output for code, output in answers):
            unseen.append(path)
    check("a library that is taken out of the wheel is missed", "\n".join(unseen))


def digest(path):
    if not os.path.isfile(path):
        return "none"
    with open(path, "rb") as file:
        return base64.urlsafe_b64encode(hashlib.sha256(file.read()).digest()).rstrip(b"=").decode()


def commands_are_installed():
    wanted = metadata.distribution(PACKAGE.replace("_", "-"))
    wrong = "" if wanted.requires == [f"torch=={needs.TORCH}"] else f"requires: {wanted.requires}"
    check("pip sees which torch is needed", wrong)
    spoilt = [str(file) for file in wanted.files if file.hash and file.hash.value != digest(file.locate())]
    check("the files are those of the wheel's RECORD", "\n".join(spoilt))
    names = [entry.name for entry in wanted.entry_points]
    missing = [name for name in names if not os.access(f"{COMMANDS}/{name}", os.X_OK)]
    check("each console command is installed", "\n".join(missing))


os.chdir("/root")
for example in ("examples", "runs"):
    shutil.copytree(os.path.join(call("python3", "-m", PACKAGE)[1].strip(), example), example)
start_loopback()
if needs.TESTS:
    checks = [commands_are_installed, programs_start, programs_work, tests_work]
else:
    checks = [first_answer, commands_are_installed, programs_start, programs_work, service_works, unfit_machines_are_named,
              missing_library_is_seen]
for one in checks:
    one()
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
