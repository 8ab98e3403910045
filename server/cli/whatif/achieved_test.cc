#include "server/cli/whatif/achieved.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace legoai::cli {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TraceSlice Slice(const char* name, const char* dtype, double flops, double bytes, int64_t seconds) {
  TraceSlice slice;
  slice.name = name, slice.category = "compute", slice.stream = "compute", slice.dtype = dtype;
  slice.flops = flops, slice.bytes = bytes;
  slice.end_ns = seconds * kSecond;
  return slice;
}

StepTraceFile Predicted() {
  StepTraceFile file;
  file.about = {{"peak_flops_per_second", "float32 100, bfloat16 400"}, {"memory_bandwidth_bytes_per_second", "10"}};
  return file;
}

TraceSlice Gather() {
  TraceSlice slice = Slice("lego::all_gather_into", "float32", 0, 99, 50);
  slice.category = "communication";
  return slice;
}

// By hand: peaks of 100 and 400 FLOP/s, and 10 bytes/s.
TEST(Achieved, IsTheRooflineBesideWhatWasMeasured) {
  const TracedStage stage{0,
                          {Slice("aten::mm", "bfloat16", 800, 10, 4), Slice("aten::add", "float32", 10, 30, 9),
                           Slice("aten::mm", "bfloat16", 400, 30, 4), Slice("aten::mm", "float32", 100, 1, 2), Gather(),
                           Slice("aten::mul", "float16", 200, 0, 2), Slice("aten::empty", "", 0, 0, 1)},
                          {}};
  const std::vector<AchievedRow> rows = Achieved(Predicted(), stage);
  ASSERT_EQ(rows.size(), 4u) << "neither communication nor what computes nothing";
  EXPECT_EQ(rows[0].name, "aten::add") << "takes longest";
  EXPECT_DOUBLE_EQ(rows[0].least, 3);
  EXPECT_STREQ(rows[0].bound(), "memory bandwidth");
  EXPECT_DOUBLE_EQ(rows[0].share(), 1.0 / 3);
  EXPECT_EQ(rows[1].dtype, "bfloat16");
  EXPECT_EQ(rows[1].count, 2);
  EXPECT_DOUBLE_EQ(rows[1].flops, 1200);
  EXPECT_DOUBLE_EQ(rows[1].least, 2 + 3) << "each call has its own bound: two seconds of arithmetic, three of traffic";
  EXPECT_DOUBLE_EQ(rows[1].share(), 5.0 / 8);
  EXPECT_DOUBLE_EQ(rows[2].least, 1) << "the peak of float32";
  EXPECT_DOUBLE_EQ(rows[3].least, 2) << "of a type without a peak that of float32";
  const std::string text = AchievedText(rows, 2);
  for (const char* part : {"aten::add", "memory bandwidth", "33.3 %", "aten::mm", "62.5 %", "--rows shows more"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("aten::mul"), std::string::npos) << text;
  EXPECT_DOUBLE_EQ(AchievedTree(rows)[1]["least_seconds"], 5);
}

TEST(Achieved, WithoutPeaksThereIsNoBoundAndWithoutFactsNoRow) {
  const TracedStage stage{0, {Slice("aten::mm", "float32", 100, 1, 2)}, {}};
  for (const char* bad : {"", "nonsense", "float32", "float32 -3, , ", "float32 nan", "float32 0"}) {
    StepTraceFile predicted;
    predicted.about = {{"peak_flops_per_second", bad}, {"memory_bandwidth_bytes_per_second", bad}};
    const auto rows = Achieved(predicted, stage);
    ASSERT_EQ(rows.size(), 1u) << bad;
    EXPECT_EQ(rows[0].least, 0) << bad;
    EXPECT_STREQ(rows[0].bound(), "") << bad;
    EXPECT_TRUE(AchievedTree(rows)[0]["least_seconds"].is_null()) << bad;
  }
  EXPECT_TRUE(Achieved(Predicted(), {0, {Slice("aten::mm", "float32", 0, 0, 2)}, {}}).empty()) << "of an earlier trainer";
  EXPECT_EQ(AchievedText({}, 5), "");
}

}  // namespace
}  // namespace legoai::cli
