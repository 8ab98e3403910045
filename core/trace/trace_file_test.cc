#include "core/trace/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <vector>

#include "core/trace/testing/program_test_util.h"
#include "core/trace/verify.h"

namespace legoai::graph {
namespace {

using ::testing::HasSubstr;

std::vector<Constant> EveryConstant() {
  return {std::monostate(),
          true,
          int64_t{2},
          2.0,
          -0.0,
          std::numeric_limits<double>::infinity(),
          std::string("mean"),
          std::vector<int64_t>{1, -1},
          std::vector<double>{0.5},
          std::vector<bool>{true, false},
          DeviceConstant()};
}

Trace Everything() {
  Program b;
  const auto x = b.External("x", 16), y = b.Inner(16);
  b.Op("aten::add_.Tensor", {x, y}, {x}, 1, 3).Record(1, 2).ResizeStorage(x, 0).Free(y);
  Trace trace = b.trace();
  trace.modules.push_back("layers.0");
  trace.instructions[0].module = 1;
  trace.instructions[0].phase = Phase::kRecompute;
  trace.instructions[0].action = 4;
  trace.instructions[0].microbatch = 2;
  trace.storages[0].category = Category::kShardedParameter;
  trace.storages.push_back({3, StorageKind::kConstant, Category::kOther, "?2", std::string("\0\1\2", 3)});
  const uint32_t first_constant = trace.constants.size();  // behind those of the event and the resize
  for (const Constant& constant : EveryConstant()) {
    trace.arguments.push_back({Argument::Kind::kConstant, static_cast<uint32_t>(trace.constants.size())});
    trace.constants.push_back(constant);
  }
  trace.lists = {{0, -1}, {}, {-2, 1}};
  for (auto kind : {Argument::Kind::kList, Argument::Kind::kOptionalList}) trace.arguments.push_back({kind, 2});
  trace.arguments.push_back({Argument::Kind::kUndefined, 0});
  trace.arguments.push_back({Argument::Kind::kWrappedNumber, first_constant + 3});
  Instruction last;
  last.first_argument = trace.arguments.size() - 15;
  last.argument_count = 15;
  trace.instructions.push_back(last);
  trace.outputs["loss"] = 1;
  trace.groups = {{mesh::Dim::kDpShard, {0, 2, 2}}};
  trace.warnings = {"a warning"};
  return trace;
}

TEST(TraceFileTest, RoundTrip) {
  const Trace trace = Everything();
  const std::string path = testing::TempDir() + "/trace_file_test.trace";
  ASSERT_TRUE(WriteTrace(trace, path, "1.2").ok());
  const auto read = ReadTrace(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Dump(true), trace.Dump(true));
  EXPECT_THAT(Differences(trace, *read), testing::IsEmpty());
  EXPECT_EQ(ToProto(*read, "1.2").SerializeAsString(), ToProto(trace, "1.2").SerializeAsString());
  ASSERT_EQ(read->constants.size(), trace.constants.size());
  const size_t negative_zero = trace.constants.size() - EveryConstant().size() + 4;
  EXPECT_EQ(read->constants[negative_zero].index(), trace.constants[negative_zero].index());
  EXPECT_TRUE(std::signbit(std::get<double>(read->constants[negative_zero])));
  EXPECT_EQ(read->storages[2].contents, trace.storages[2].contents);
  EXPECT_EQ(read->groups[0].ranks, trace.groups[0].ranks);
  EXPECT_EQ(read->warnings, trace.warnings);
}

TEST(TraceFileTest, RefusesGroupsThatAreNone) {
  const v1::Trace good = ToProto(Everything(), "1.2");
  const auto refused = [&](auto damage) {
    v1::Trace proto = good;
    damage(proto.mutable_groups(0));
    return !FromProto(proto).ok();
  };
  EXPECT_FALSE(refused([](v1::TraceGroup*) {}));
  EXPECT_TRUE(refused([](v1::TraceGroup* group) { group->set_name("xp"); }));
  EXPECT_TRUE(refused([](v1::TraceGroup* group) { group->set_size(0); }));
  EXPECT_TRUE(refused([](v1::TraceGroup* group) { group->set_stride(0); }));
  EXPECT_TRUE(refused([](v1::TraceGroup* group) { group->set_first(-1); }));
  EXPECT_TRUE(refused([](v1::TraceGroup* group) { group->set_size(int64_t{1} << 40); }));
}

TEST(TraceFileTest, UnknownVersionIsRefused) {
  v1::Trace proto = ToProto(Everything());
  proto.set_version(kTraceVersion + 1);
  EXPECT_THAT(FromProto(proto).status().message(), HasSubstr("version 3; this build reads version 2"));
}

// Whatever number is put into whatever column: a Trace comes out that can be printed and verified, or an error.
TEST(TraceFileTest, BrokenIndicesAreRefused) {
  const v1::Trace good = ToProto(Everything());
  const auto* descriptor = v1::Trace::descriptor();
  int refused = 0;
  for (int f = 0; f < descriptor->field_count(); ++f) {
    const auto* field = descriptor->field(f);
    if (!field->is_repeated() || field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_UINT32) continue;
    for (int i = 0; i < good.GetReflection()->FieldSize(good, field); ++i) {
      for (const uint32_t value : {0u, 1u, 3u, 9u, 0x10000u, 0x7ffffffu}) {
        v1::Trace bad = good;
        bad.GetReflection()->SetRepeatedUInt32(&bad, field, i, value);
        const auto trace = FromProto(bad);
        refused += !trace.ok();
        if (!trace.ok()) continue;
        trace->Dump(true);
        Races(*trace);
        BadReads(*trace);
      }
    }
  }
  EXPECT_GT(refused, 30);
}

TEST(TraceFileTest, FilesThatAreNoTraces) {
  EXPECT_EQ(ReadTrace(testing::TempDir() + "/none.trace").status().code(), absl::StatusCode::kNotFound);
  const std::string path = testing::TempDir() + "/text.trace";
  std::ofstream(path) << "hello, this is no trace";
  EXPECT_EQ(ReadTrace(path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteTrace(Everything(), "/no_such_folder/x.trace").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace legoai::graph
