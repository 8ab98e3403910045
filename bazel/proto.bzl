"""cc_proto: C++ messages by the system's protoc."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def cc_proto(name, srcs, **kwargs):
    stems = [s[:-len(".proto")] for s in srcs]
    hdrs = [s + ".pb.h" for s in stems]
    ccs = [s + ".pb.cc" for s in stems]
    native.genrule(
        name = name + "_gen",
        srcs = srcs,
        outs = hdrs + ccs,
        cmd = "/usr/bin/protoc -I. --cpp_out=$(BINDIR) " + " ".join(["$(location %s)" % s for s in srcs]),
    )
    cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        copts = ["-w"],
        tags = ["torch_free"],
        deps = ["//third_party:protobuf"],
        **kwargs
    )
