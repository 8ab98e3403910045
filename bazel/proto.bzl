"""cc_proto: C++ messages by the system's protoc. cc_grpc: messages and gRPC services, which may use google/api and google/rpc."""

load("@googleapis//:defs.bzl", "ROOT")
load("//bazel:cc.bzl", "cc_library")

def cc_proto(name, srcs, imports = [], deps = [], **kwargs):
    """`imports`: the proto files that `srcs` import besides each other; `deps`: the libraries of their messages."""
    stems = [s[:-len(".proto")] for s in srcs]
    hdrs = [s + ".pb.h" for s in stems]
    ccs = [s + ".pb.cc" for s in stems]
    native.genrule(
        name = name + "_gen",
        srcs = srcs + imports,
        outs = hdrs + ccs,
        cmd = "/usr/bin/protoc -I. --cpp_out=$(BINDIR) " + " ".join(["$(location %s)" % s for s in srcs]),
    )
    cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        copts = ["-w"],
        deps = deps + ["//third_party:protobuf"],
        **kwargs
    )

def cc_grpc(name, srcs, imports, deps, **kwargs):
    """`imports`: the proto files that `srcs` import from this tree; `deps`: the libraries of their messages."""
    stems = [s[:-len(".proto")] for s in srcs]
    hdrs = [s + end for s in stems for end in [".pb.h", ".grpc.pb.h"]]
    ccs = [s + end for s in stems for end in [".pb.cc", ".grpc.pb.cc"]]
    native.genrule(
        name = name + "_gen",
        srcs = srcs + imports,
        outs = hdrs + ccs,
        cmd = "/usr/bin/protoc -I. -I" + ROOT + " --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin " +
              "--cpp_out=$(BINDIR) --grpc_out=$(BINDIR) " + " ".join(["$(location %s)" % s for s in srcs]),
    )
    cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        copts = ["-w"],
        deps = deps + ["//third_party:googleapis", "//third_party:grpc"],
        **kwargs
    )

_GOOGLEAPIS = [
    "google/api/annotations",
    "google/api/client",
    "google/api/field_behavior",
    "google/api/http",
    "google/api/launch_stage",
    "google/api/resource",
    "google/rpc/code",
    "google/rpc/error_details",
    "google/rpc/status",
]

def googleapis(name, **kwargs):
    """Google's common messages, from the wheel googleapis-common-protos."""
    hdrs = [s + ".pb.h" for s in _GOOGLEAPIS]
    ccs = [s + ".pb.cc" for s in _GOOGLEAPIS]
    native.genrule(
        name = name + "_gen",
        outs = hdrs + ccs,
        cmd = "/usr/bin/protoc -I" + ROOT + " --cpp_out=$(RULEDIR) " +
              " ".join([ROOT + "/" + s + ".proto" for s in _GOOGLEAPIS]),
    )
    cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        includes = ["."],
        copts = ["-w"],
        deps = ["//third_party:protobuf"],
        **kwargs
    )
