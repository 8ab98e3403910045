#include "server/cli/whatif/trace_comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "proto/testing/seeded_random.h"

namespace legoai::cli {
namespace {

TraceSlice Slice(const char* name, const char* category, const char* stream, const char* phase, const char* module, int64_t begin,
                 int64_t end) {
  return {name, category, stream, phase, module, "", 0, begin, end};
}

TraceSlice Collective(const char* stream, int64_t begin, int64_t end, int64_t ranks = 2) {
  TraceSlice slice = Slice("lego::all_gather_into", "communication", stream, "forward", "model.layers.0", begin, end);
  slice.group = "dp_shard";
  slice.ranks = ranks;
  return slice;
}

StepTraceFile File(const char* made_by, const char* seconds, std::vector<TraceSlice> slices) {
  StepTraceFile file;
  file.about = {{"model", "tiny"}, {"ranks", "2"}, {"made_by", made_by}, {"step_time_seconds", seconds}};
  file.stages[0] = {.slices = std::move(slices)};
  return file;
}

const TraceRow* RowOf(const TraceComparison& comparison, const std::string& stream, const std::string& module) {
  for (const TraceRow& row : comparison.rows) {
    if (row.stream == stream && row.module == module) return &row;
  }
  return nullptr;
}

constexpr int64_t kSecond = 1'000'000'000;

// The predicted step waits two seconds for a collective of four; in the measured one the operator takes twice as long and the
// collective is hidden.
TEST(CompareTraces, SaysWhereTheStepsPart) {
  const auto predicted = File("lego simulate", "6",
                              {Slice("aten::mm", "compute", "compute", "forward", "model.layers.0.mlp", 0, 2 * kSecond),
                               Slice("aten::mm", "compute", "compute", "forward", "model.layers.1.mlp", 4 * kSecond, 6 * kSecond),
                               Collective("all_gather", 0, 4 * kSecond)});
  auto measured = File("legoai-trainer", "10",
                       {Slice("aten::mm", "compute", "compute", "forward", "model.layers.0.mlp", 0, 4 * kSecond),
                        Slice("aten::mm", "compute", "compute", "forward", "model.layers.1.mlp", 4 * kSecond, 8 * kSecond),
                        Slice("aten::copy_", "compute", "compute", "forward", "", 8 * kSecond, 9 * kSecond),
                        Collective("all_gather", 0, 3 * kSecond)});
  measured.about["data_seconds"] = "1";
  measured.about["step"] = "7";
  ASSERT_OK_AND_ASSIGN(const auto comparison, CompareTraces(predicted, measured));
  EXPECT_EQ(comparison.step, "7");
  EXPECT_DOUBLE_EQ(comparison.step_time.predicted, 6);
  EXPECT_DOUBLE_EQ(comparison.step_time.measured, 10);
  EXPECT_DOUBLE_EQ(comparison.exposed.predicted, 2);
  EXPECT_DOUBLE_EQ(comparison.exposed.measured, 0);
  ASSERT_FALSE(comparison.rows.empty());
  EXPECT_EQ(comparison.rows[0].module, "model.layers.*.mlp") << "explains most";
  EXPECT_DOUBLE_EQ(comparison.rows[0].seconds.predicted, 4);
  EXPECT_DOUBLE_EQ(comparison.rows[0].seconds.measured, 8);
  EXPECT_DOUBLE_EQ(RowOf(comparison, "compute", kWaits)->seconds.predicted, 2);
  EXPECT_DOUBLE_EQ(RowOf(comparison, "compute", kIdle)->seconds.measured, 0);
  EXPECT_DOUBLE_EQ(RowOf(comparison, "host", kData)->seconds.measured, 1);
  ASSERT_EQ(comparison.collectives.size(), 1u);
  EXPECT_DOUBLE_EQ(comparison.collectives[0].seconds.predicted, 4);
  EXPECT_DOUBLE_EQ(comparison.collectives[0].exposed.predicted, 2);
  EXPECT_DOUBLE_EQ(comparison.collectives[0].exposed.measured, 0);
  EXPECT_TRUE(comparison.only_predicted.empty());
  ASSERT_EQ(comparison.only_measured.size(), 1u);
  EXPECT_EQ(comparison.only_measured[0].name, "aten::copy_");
  const std::string text = TraceComparisonText(comparison, 2);
  for (const char* part : {"tiny, stage 0 of 2 ranks, step 7", "model.layers.*.mlp", "4.000 s", "8.000 s", "2.00",
                           "--rows shows more", "lego::all_gather_into", "Only in the measured step", "aten::copy_"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const Tree tree = TraceComparisonTree(comparison);
  EXPECT_DOUBLE_EQ(tree["rows"][0]["seconds"]["measured"], 8);
  EXPECT_DOUBLE_EQ(tree["collectives"][0]["exposed_seconds"]["predicted"], 2);
}

TEST(CompareTraces, WaitsOfATrainerAreExposedAndACopyIsNoCommunication) {
  const auto predicted = File("lego simulate", "1", {});
  const auto measured = File("legoai-trainer", "5",
                             {Collective("all_gather", 0, 3 * kSecond),
                              Collective("all_gather", 3 * kSecond, 4 * kSecond, /*ranks=*/1),
                              Slice("wait", "wait", "compute", "forward", "", kSecond, 4 * kSecond),
                              Collective("compute", 4 * kSecond, 5 * kSecond)});
  ASSERT_OK_AND_ASSIGN(const auto comparison, CompareTraces(predicted, measured));
  EXPECT_DOUBLE_EQ(comparison.exposed.measured, 4) << "three seconds of waits, and its own collective";
  ASSERT_EQ(comparison.collectives.size(), 1u);
  EXPECT_EQ(comparison.collectives[0].measured_count, 2);
  EXPECT_DOUBLE_EQ(comparison.collectives[0].seconds.measured, 4);
  EXPECT_DOUBLE_EQ(comparison.collectives[0].exposed.measured, 3);
}

// Whatever runs: the compute stream's rows and what has no phase are the step, and no more is exposed than communicates.
TEST(CompareTraces, RandomTracesAddUp) {
  SeededRandom random;
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<TraceSlice> slices;
    int64_t at = 0;
    for (int i = 0; i < 40; ++i) {
      const int64_t begin = at + static_cast<int64_t>(random() % 3) * kSecond;
      at = begin + static_cast<int64_t>(random() % 4) * kSecond;
      slices.push_back(Slice("aten::mm", "compute", "compute", i % 2 == 0 ? "forward" : "backward", "model", begin, at));
      const int64_t other = static_cast<int64_t>(random() % 40) * kSecond;
      slices.push_back(Collective("all_gather", other, other + static_cast<int64_t>(random() % 9) * kSecond));
    }
    const auto file = File("lego simulate", absl::StrCat(static_cast<double>(at) / kSecond + 60).c_str(), slices);
    ASSERT_OK_AND_ASSIGN(const auto comparison, CompareTraces(file, file));
    double sum = 0;
    for (const TraceRow& row : comparison.rows) {
      EXPECT_EQ(row.seconds.difference(), 0);
      if (row.stream == "compute") sum += row.seconds.predicted;
    }
    EXPECT_NEAR(sum, comparison.step_time.predicted, 1e-6);
    for (const CollectiveRow& row : comparison.collectives) {
      EXPECT_GE(row.exposed.predicted, 0);
      EXPECT_LE(row.exposed.predicted, row.seconds.predicted + 1e-9);
    }
  }
}

TEST(CompareTraces, SaysWhereMemoryParts) {
  auto predicted = File("lego simulate", "1", {}), measured = File("legoai-trainer", "1", {});
  EXPECT_TRUE(CompareTraces(predicted, measured)->memory.empty());
  predicted.stages[0].peak_bytes = {{"memory", 9 << 20}, {"memory: activation", 3 << 20}, {"memory: workspace", 2 << 20}};
  EXPECT_TRUE(CompareTraces(predicted, measured)->memory.empty()) << "of a trainer that did not count it";
  measured.stages[0].peak_bytes = {{"memory", 12 << 20}, {"memory: activation", 8 << 20}, {"memory: buffer", 1 << 20}};
  const auto comparison = CompareTraces(predicted, measured);
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  std::vector<std::string> categories;
  for (const MemoryRow& row : comparison->memory) categories.push_back(absl::StrCat(row.category, " ", row.difference() >> 20));
  EXPECT_EQ(categories, (std::vector<std::string>{"all 3", "activation 5", "workspace -2", "buffer 1"}));
  const std::string text = TraceComparisonText(*comparison, 1);
  for (const char* part : {"activation   3.00 MiB  8.00 MiB   +5.00 MiB", "workspace    2.00 MiB         -   -2.00 MiB"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(TraceComparisonTree(*comparison)["memory"][1]["peak_bytes"]["measured"], 8 << 20);
}

TEST(CompareTraces, RefusesWhatIsNotOfOneRecipe) {
  const auto predicted = File("lego simulate", "1", {});
  const auto refusal = [&](StepTraceFile measured) {
    const auto comparison = CompareTraces(predicted, measured);
    return comparison.ok() ? "accepted" : std::string(comparison.status().message());
  };
  auto other = predicted;
  other.about["model"] = "large";
  EXPECT_NE(refusal(other).find("MEASURED = large"), std::string::npos) << refusal(other);
  other = predicted;
  other.about["ranks"] = "8";
  EXPECT_NE(refusal(other).find("ranks"), std::string::npos) << refusal(other);
  other = predicted;
  other.stages = {{3, {}}};
  EXPECT_NE(refusal(other).find("has no stage 3"), std::string::npos) << refusal(other);
  other.stages = {{0, {}}, {1, {}}};
  EXPECT_NE(refusal(other).find("one rank"), std::string::npos) << refusal(other);
}

class ReadStepTraceTest : public testing::Test {
 protected:
  std::string Write(const std::string& text) {
    const std::string path = testing::TempDir() + "/trace.json";
    std::ofstream(path) << text;
    return path;
  }
  std::string Refusal(const std::string& path, int64_t most_bytes = 1 << 20) {
    const auto read = ReadStepTrace("PREDICTED", path, most_bytes);
    return read.ok() ? "accepted" : std::string(read.status().message());
  }
};

constexpr char kEvents[] =
    R"JSON({"traceEvents":[
{"ph":"M","name":"process_name","pid":2,"args":{"name":"stage 1 (rank 4)"}},
{"ph":"M","name":"thread_name","pid":2,"tid":2002,"args":{"name":"compute"}},
{"ph":"X","name":"forward","cat":"module","pid":2,"tid":2001,"ts":0.0001,"dur":9.0001},
{"ph":"X","name":"aten::mm","cat":"compute","pid":2,"tid":2002,"ts":1.2341,"dur":2.0011,
"args":{"phase":"forward","module":"a.b","shapes":"int64[2] bfloat16[2,3] -> float32[2,2]","flops":24,"bytes":36}},
{"ph":"C","name":"memory","pid":2,"ts":0.0001,"args":{"bytes":3}},
{"ph":"C","name":"memory","pid":2,"ts":1.0001,"args":{"bytes":7}},
{"ph":"C","name":"memory","pid":2,"ts":2.0001,"args":{"bytes":2}},
{"ph":"C","name":"memory: input","pid":2,"ts":2.0001,"args":{"bytes":5}}
],"otherData":{"model":"tiny","made_by":"lego simulate"}})JSON";

TEST_F(ReadStepTraceTest, HasSlicesToTheNanosecond) {
  ASSERT_OK_AND_ASSIGN(const auto file, ReadStepTrace("PREDICTED", Write(kEvents)));
  EXPECT_EQ(file.About("model"), "tiny");
  ASSERT_EQ(file.stages.size(), 1u);
  EXPECT_EQ(file.stages.at(1).rank, 4);
  ASSERT_EQ(file.stages.at(1).slices.size(), 1u);
  const TraceSlice& slice = file.stages.at(1).slices[0];
  EXPECT_EQ(slice.stream, "compute");
  EXPECT_EQ(slice.module, "a.b");
  EXPECT_EQ(slice.begin_ns, 1234);
  EXPECT_EQ(slice.end_ns, 3235);
  EXPECT_EQ(slice.dtype, "bfloat16");
  EXPECT_EQ(slice.flops, 24);
  EXPECT_EQ(slice.bytes, 36);
  EXPECT_EQ(file.stages.at(1).peak_bytes, (std::map<std::string, int64_t>{{"memory", 7}, {"memory: input", 5}}));
}

TEST_F(ReadStepTraceTest, RefusesWhatIsNoTraceByName) {
  EXPECT_NE(Refusal(testing::TempDir() + "/none.json").find("No such file"), std::string::npos);
  for (const char* bad : {"", "no json", "[]", "{}", R"({"traceEvents":[]})", R"({"traceEvents":3,"otherData":{"made_by":"x"}})",
                          R"({"traceEvents":[{"ph":"X","name":"mm","pid":1,"tid":1,"ts":0,"dur":1}]})"})
    EXPECT_NE(Refusal(Write(bad)).find("is no trace file of a step"), std::string::npos) << bad << ": " << Refusal(Write(bad));
  EXPECT_NE(Refusal(testing::TempDir()).find("PREDICTED"), std::string::npos) << "a folder";
  EXPECT_NE(Refusal(Write(kEvents), 100).find("more than 100 B"), std::string::npos) << Refusal(Write(kEvents), 100);
  std::string left_out = kEvents;
  left_out.replace(left_out.find("\"cat\":\"compute\""), 15, "\"cat\":\"span\"");
  EXPECT_NE(Refusal(Write(left_out)).find("--full-trace"), std::string::npos) << Refusal(Write(left_out));
}

// Cut or changed anywhere, a file ends in a value or in words.
TEST_F(ReadStepTraceTest, DamagedFilesEndInWords) {
  SeededRandom random;
  for (int trial = 0; trial < 300; ++trial) {
    std::string text = kEvents;
    for (int i = 0; i < 3; ++i) text[random() % text.size()] = static_cast<char>(random() % 256);
    text.resize(text.size() - random() % 20);
    const auto read = ReadStepTrace("MEASURED", Write(text));
    EXPECT_TRUE(read.ok() || !read.status().message().empty()) << trial;
  }
}

}  // namespace
}  // namespace legoai::cli
