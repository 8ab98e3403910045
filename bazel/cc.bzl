"""cc_library, cc_test and cc_binary as this tree uses them: with the headers that most files include read once."""

def _kind(srcs, tags):
    """The header of bazel/precompiled that suits these files; None where none does."""
    files = [s for s in srcs if s.endswith(".cc")]
    tests = [s for s in files if s.endswith("_test.cc")]
    if not files or tests and len(tests) < len(files):  # .bazelrc optimizes tests otherwise: two headers, or none
        return None
    return ("plain" if "torch_free" in tags else "torch") + ("_test" if tests else "")

def _compile(rule, name, srcs = [], tags = [], copts = [], deps = [], **kwargs):
    kind = _kind(srcs, tags)
    if kind:
        copts = copts + select({
            "//bazel/precompiled:off": [],
            "//conditions:default": ["-include", "bazel/precompiled/as/%s.h" % kind, "-Winvalid-pch"],
        })
        deps = deps + select({
            "//bazel/precompiled:off": [],
            "//conditions:default": ["//bazel/precompiled:" + kind],
        })
    rule(name = name, srcs = srcs, tags = tags, copts = copts, deps = deps, **kwargs)

def cc_library(name, **kwargs):
    _compile(native.cc_library, name, **kwargs)

def cc_binary(name, **kwargs):
    _compile(native.cc_binary, name, **kwargs)

def cc_test(name, **kwargs):
    _compile(native.cc_test, name, **kwargs)
