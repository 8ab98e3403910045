"""precompiled_header: a header that gcc has read once, for all files of one kind (bazel/BUILD)."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _flags(ctx, toolchain, compilation):
    """As Bazel gives them to a file of the same kind: gcc takes no header that was read under other ones."""
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
        quote_include_directories = depset([".", ctx.bin_dir.path], transitive = [compilation.quote_includes]),
        system_include_directories = compilation.system_includes,
        include_directories = compilation.includes,
        preprocessor_defines = compilation.defines,
        use_pic = True,
    )
    return cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    )

def _impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    compilation = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in ctx.attr.deps]).compilation_context

    # Included as FILE, gcc takes FILE.gch that stands beside it, or FILE where it does not suit.
    header = ctx.actions.declare_file("as/%s.h" % ctx.label.name)
    compiled = ctx.actions.declare_file("as/%s.h.gch" % ctx.label.name)
    ctx.actions.write(header, '#include "%s/%s.h"\n' % (ctx.label.package, ctx.label.name))
    headers = depset([header] + ctx.files.hdrs)
    ctx.actions.run(
        executable = toolchain.compiler_executable,
        arguments = _flags(ctx, toolchain, compilation) + ["-x", "c++-header", header.path, "-o", compiled.path],
        inputs = depset(transitive = [headers, compilation.headers, toolchain.all_files]),
        outputs = [compiled],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % ctx.label.name,
        execution_requirements = {"no-sandbox": "1"},
        env = {"PATH": "/bin:/usr/bin"},
    )
    own = cc_common.create_compilation_context(headers = depset([compiled], transitive = [headers]))
    return [
        DefaultInfo(files = depset([header, compiled])),
        cc_common.merge_cc_infos(
            direct_cc_infos = [CcInfo(compilation_context = own)],
            cc_infos = [d[CcInfo] for d in ctx.attr.deps],
        ),
    ]

precompiled_header = rule(
    implementation = _impl,
    attrs = {
        "hdrs": attr.label_list(allow_files = [".h"], mandatory = True, doc = "NAME.h, and what it includes here."),
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
