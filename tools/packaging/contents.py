"""What goes into each wheel. legoai_gpu is legoai with the tests of the CUDA path and the check of a machine with a GPU: one file
to copy to a machine that has a card and Python's torch, and nothing else."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Contents:
    name: str  # of the Python package, and of the wheel
    summary: str
    # Labels of programs and plugins: they lie side by side in bin/, since they look for each other there.
    programs: list
    commands: dict  # console command -> module of the launcher whose main() it calls
    modules: list  # files of the launcher, without .py
    files: dict  # place in the package -> file of the tree
    folders: dict  # the same of whole folders
    packages: list  # of the distribution, whose licences go along beside those of the libraries: what is compiled in, and the text
    licences: dict  # place below licenses/ -> file of the tree, of what no package has
    tests: list = dataclasses.field(default_factory=list)  # labels, linked statically but for what the wheel carries and torch
    check: list = dataclasses.field(default_factory=list)  # patterns of modules that find each other in one folder

    @property
    def targets(self):
        """What Bazel must have built."""
        return self.programs + self.tests


PLATFORM = "manylinux_2_36_x86_64"
PYTHON = ">=3.9"
LIMIT_MIB = 60
TEXT = "runs/text/king_james.txt"  # where the example job looks for it
_COMMANDS = ["lego", "lego-sim", "lego-measure", "legoai-trainer", "legoai-generate", "legoai-server", "legoai-agent"]
_PAGE = "dashboards/web"

LEGOAI = Contents(
    name="legoai",
    summary="Ranks recipes for training large models by simulating the code that trains, and trains with the winner",
    programs=["//server/cli:lego", "//simulator/estimate:lego-sim", "//simulator/measure:lego-measure",
              "//worker/train:legoai-trainer", "//worker/generate:legoai-generate", "//server/main:legoai-server", "//worker/agent:legoai-agent",
              "//worker/comm/cuda:liblegoai_cuda.so"],
    commands={name: "launch" for name in _COMMANDS},
    modules=["__init__", "__main__", "launch"],
    files={"examples/job.toml": "examples/job.toml",
           "examples/tiny-llama/config.json": "examples/tiny-llama/config.json"},
    folders={"web": f"{_PAGE}/dist"},
    packages=["bible-kjv-text", "nlohmann-json3-dev"],
    licences={f"{name}/LICENSE": f"{_PAGE}/node_modules/{name}/LICENSE" for name in ("preact", "uplot")},
)

GPU = dataclasses.replace(
    LEGOAI,
    name="legoai_gpu",
    summary="LegoAI with the tests of its CUDA path, to run beside torch on a machine with a GPU",
    commands=LEGOAI.commands | {"legoai-gpu-tests": "run_tests", "legoai-gpu-check": "run_check"},
    modules=LEGOAI.modules + ["run_tests", "run_check"],
    packages=LEGOAI.packages + ["libgtest-dev"],
    tests=["//tests/gpu:gpu_tests"],
    check=["tools/gpu/check*.py", "tools/gpu/eager*.py"],
)

WHEELS = {contents.name: contents for contents in (LEGOAI, GPU)}
