"""The targets of this tree: folder, unit, and cc_library, cc_test and cc_binary for what is none. All are compiled with the
headers that most files include read once."""

# Every target has it.
_STATUS = "//proto:status"
_GTEST = "//third_party:gtest_main"

# Folders whose targets link torch unless they say `torch = False`; those of all others do not unless they say `torch = True`
# (tools/check_arrows asks what they reach).
_TORCH = [
    "simulator/capture",
    "simulator/estimate",
    "simulator/measure",
    "tests/bench",
    "tests/gpu",
    "tests/integration",
    "tests/scenarios",
    "tests/service",
    "worker/comm/cuda",
    "worker/graph",
    "worker/graph/fake",
    "worker/model",
    "worker/parallel",
    "worker/train",
]

def _links_torch(torch):
    return native.package_name() in _TORCH if torch == None else torch

def _kind(srcs, torch):
    """The header of bazel/precompiled that suits these files; None where none does."""
    files = [s for s in srcs if s.endswith(".cc")]
    tests = [s for s in files if s.endswith("_test.cc")]
    if not files or tests and len(tests) < len(files):  # .bazelrc optimizes tests otherwise: two headers, or none
        return None
    return ("torch" if torch else "plain") + ("_test" if tests else "")

def _compile(rule, name, srcs, torch = None, tags = [], copts = [], deps = [], **kwargs):
    torch = _links_torch(torch)
    if native.package_name() != "proto" or name not in ("status", "status_test"):
        deps = deps + [_STATUS]
    kind = _kind(srcs, torch)
    if kind:
        copts = copts + select({
            "//bazel/precompiled:off": [],
            "//conditions:default": ["-include", "bazel/precompiled/as/%s.h" % kind, "-Winvalid-pch"],
        })
        deps = deps + select({
            "//bazel/precompiled:off": [],
            "//conditions:default": ["//bazel/precompiled:" + kind],
        })
    tags = tags + ([] if torch else ["torch_free"])
    rule(name = name, srcs = srcs, tags = tags, copts = copts, deps = deps, **kwargs)

def unit(name, deps = [], test_deps = [], test = {}, torch = None, **kwargs):
    """What NAME.h and NAME.cc say, or one of them, with NAME_test.cc where there is one.

    In testing/ they are for tests only. The test has the unit, its deps, gtest and test_deps; `test` has its other attributes.
    """
    place = "testing/" + name if native.glob(["testing/%s.h" % name]) else name
    if place != name:
        kwargs["testonly"] = True
    cc_library(
        name = name,
        srcs = native.glob([place + ".cc"]),
        hdrs = native.glob([place + ".h"]),
        deps = deps,
        torch = torch,
        **kwargs
    )
    if native.glob([name + "_test.cc"]):
        cc_test(name = name + "_test", deps = [":" + name] + deps + test_deps, **dict({"torch": torch}, **test))

def folder(
        deps,
        apart = [],
        generated = [],
        testing_deps = [],
        testing_data = [],
        test_deps = [],
        tests = {},
        torch = None,
        **kwargs):
    """All of a folder: its sources are one library of its name, those in testing/ are `:testing`, each NAME_test.cc is a test.

    Programs (main.cc, NAME_main.cc) and files in `apart` have targets of their own; `generated` are more sources. Tests have the
    library, `:testing`, deps, test_deps and gtest; tests[NAME] has the other attributes of one, and deps that only it has.
    """
    name = native.package_name().split("/")[-1]
    helpers = native.glob(["testing/*.h", "testing/*.cc"], exclude = apart)
    sources = native.glob(["*.h", "*.cc"], exclude = ["main.cc", "*_main.cc", "*_test.cc"] + apart)
    for library, files, library_deps, more in [
        (name, sources + generated, deps, kwargs),
        ("testing", helpers, [":" + name] + testing_deps, {"testonly": True, "data": testing_data}),
    ]:
        if files:
            cc_library(
                name = library,
                srcs = [f for f in files if f.endswith(".cc")],
                hdrs = [f for f in files if f.endswith(".h")],
                deps = library_deps,
                torch = torch,
                **more
            )
    own = [":" + name] + ([":testing"] if helpers else [])
    for test in [f[:-len(".cc")] for f in native.glob(["*_test.cc"], exclude = apart)]:
        attributes = dict({"torch": torch}, **tests.get(test, {}))
        cc_test(name = test, deps = own + deps + test_deps + attributes.pop("deps", []), **attributes)

def cc_library(name, srcs = [], **kwargs):
    _compile(native.cc_library, name, srcs, **kwargs)

def cc_binary(name, srcs = None, **kwargs):
    _compile(native.cc_binary, name, srcs or [name + ".cc"], **kwargs)

def cc_test(name, srcs = None, deps = [], **kwargs):
    once = {label: None for label in deps + [_GTEST]}.keys()  # what both the test and its library need
    _compile(native.cc_test, name, srcs or [name + ".cc"], deps = once, **kwargs)
