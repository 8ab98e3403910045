#include "core/schedule/schedule_csv.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "core/schedule/lowering.h"
#include "proto/errors.h"

namespace legoai::parallel {
namespace {

absl::StatusOr<Schedule> Parse(const std::string& text) { return ParseScheduleCsv("csv", text); }

// What is wrong: "value: remedy".
std::string Fault(const std::string& text) {
  const auto schedule = Parse(text);
  if (schedule.ok()) return "none";
  const auto violation = GetFieldViolation(schedule.status());
  if (!violation) return schedule.status().ToString();
  EXPECT_EQ(violation->field(), "csv");
  return violation->value() + ": " + violation->remedy();
}

TEST(ScheduleCsv, ReadsPyTorchsFormat) {
  const Schedule schedule = Parse("0F0,0F1,,,0B0,,0B1\r\n, 1F0,1B0 ,1F1,1I1,,1W1\n\n").value();
  EXPECT_EQ(schedule.placement, (Placement{2, 2, false}));
  EXPECT_EQ(Print(schedule.ranks[0]), "F0 F1 B0 B1");
  EXPECT_EQ(Print(schedule.ranks[1]), "F0 B0 F1 I1 W1");
}

// Every schedule with a name, written and read again, is itself.
TEST(ScheduleCsv, ReadsWhatItWrites) {
  for (const v1::PipelineSchedule kind : {v1::GPIPE, v1::ONE_F_ONE_B, v1::INTERLEAVED_1F1B, v1::LOOPED_BFS,
                                          v1::INTERLEAVED_ZERO_BUBBLE, v1::ZBV_ZERO_BUBBLE, v1::DUALPIPE_V}) {
    for (const int64_t ranks : {2, 3, 5}) {
      const Schedule schedule = MakeSchedule(kind, ranks, Loops(kind) ? 2 * ranks : ranks, 2 * ranks + 1).value();
      const auto read = Parse(ScheduleToCsv(schedule));
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->placement, schedule.placement);
      EXPECT_EQ(read->ranks, schedule.ranks);
    }
  }
}

// Recorded by testdata/record_pytorch_schedules.py: read, they are the schedules that are made here.
TEST(ScheduleCsv, OrdersInAVAreThoseOfPyTorch) {
  struct Recorded {
    v1::PipelineSchedule kind;
    const char* name;
    int64_t ranks, microbatches;
  };
  for (const Recorded& r : {Recorded{v1::ZBV_ZERO_BUBBLE, "ZBVZeroBubble", 4, 10}, {v1::ZBV_ZERO_BUBBLE, "ZBVZeroBubble", 3, 2},
                            {v1::DUALPIPE_V, "DualPipeV", 2, 6}, {v1::DUALPIPE_V, "DualPipeV", 4, 10}}) {
    const std::string path = absl::StrCat("core/schedule/testdata/", r.name, "_", r.ranks, "_", r.microbatches, ".csv");
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto read = Parse(text);
    ASSERT_TRUE(read.ok()) << path << ": " << read.status();
    EXPECT_TRUE(read->placement.in_v);
    EXPECT_EQ(ScheduleToCsv(*MakeSchedule(r.kind, r.ranks, 2 * r.ranks, r.microbatches)), ScheduleToCsv(*read)) << path;
  }
}

// Three chunks a rank, down, up and down again; of one microbatch.
TEST(ScheduleCsv, AVMayTurnMoreThanOnce) {
  const Schedule schedule = BreadthFirst({2, 6, true}, 1, false);
  EXPECT_EQ(ScheduleToCsv(schedule), "0F0,3F0,4F0,4B0,3B0,0B0\n1F0,2F0,5F0,5B0,2B0,1B0\n");
  EXPECT_EQ(Parse(ScheduleToCsv(schedule))->placement, schedule.placement);
}

TEST(ScheduleCsv, NamesTheCellThatIsNoAction) {
  EXPECT_EQ(Fault("0F0,0B0\n1F0,1X0\n"),
            "1X0: line 2, column 2: is no action: write the chunk, F, B, I or W, and the microbatch, such as 2F0");
  for (const char* cell : {"F0", "0F", "0", "0F0x", "0F-1", "-1F0", "0f0", "99999999999F0", "0F9999999", "\"0F0\"", "0F0 0B0"}) {
    EXPECT_NE(Fault(std::string(cell) + ",0B0\n1F0,1B0\n").find("line 1, column 1: is no action"), std::string::npos) << cell;
  }
  for (const char* cell : {"0UNSHARD", "0RESHARD", "0SEND_F0", "1RECV_F0", "0SEND_B1", "0RECV_B1", "0REDUCE_GRAD",
                           "(0F1;1B0)OVERLAP_F_B"}) {
    EXPECT_NE(Fault("0F0,0B0\n1F0,," + std::string(cell)).find("line 2, column 3: "), std::string::npos) << cell;
    EXPECT_NE(Fault("0F0,0B0\n1F0,," + std::string(cell)).find("compiled format"), std::string::npos) << cell;
  }
}

TEST(ScheduleCsv, NamesWhatLiesWrong) {
  EXPECT_EQ(Fault(""), "0 lines: has a line for each rank of the pipeline: 2 to 4096");
  EXPECT_EQ(Fault("0F0,0B0\n"), "1 line: has a line for each rank of the pipeline: 2 to 4096");
  EXPECT_EQ(Fault("0F0,0B0\n,,\n1F0,1B0\n"), "line 2: has no action: each line is what a rank of the pipeline does");
  EXPECT_EQ(Fault("0F0,1F0\n,1B0,0B0\n"), "1B0: line 2, column 2: chunk 1 is of line 1, as line 1, column 2 says: a chunk lies "
                                          "on one rank");
  EXPECT_EQ(Fault("0F0,0B0\n2F0,2B0\n"), "chunk 1: is in no cell, and chunk 2 is: none is left out");
  EXPECT_EQ(Fault("0F0,2F0,2B0,0B0\n1F0,1B0\n"), "3 chunks: must be a multiple of the 2 lines: all ranks have as many");
  EXPECT_EQ(Fault("1F0,1B0\n0F0,0B0\n"),
            "chunk 0: line 2, column 1: chunks go round the lines (line 1 has 0, 2 and so on) or lie in a V (line 1 has 0, 3 and "
            "so on)");
}

TEST(ScheduleCsv, NamesWhatIsDoneTooEarlyTwiceOrNotAtAll) {
  EXPECT_EQ(Fault("0F0,0B0\n1B0,1F0\n"), "1B0: line 2, column 1: pipeline rank 1: B0 before its forward");
  EXPECT_EQ(Fault("0F0,0B0\n1F0,1W0,1I0\n"), "1W0: line 2, column 2: pipeline rank 1: W0 before the gradient of its input");
  EXPECT_EQ(Fault("0F0,,0F0,0B0\n1F0,1B0\n"), "0F0: line 1, column 3: pipeline rank 0: F0 where microbatch 1 is due");
  EXPECT_EQ(Fault("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1I1\n"),
            ": line 2: pipeline rank 1: 2 forwards and 1 backwards of chunk 1 for 2 microbatches");
  EXPECT_EQ(Fault("0F0,0B0\n1F0,1B0,1F1,1B1\n"),
            ": line 1: pipeline rank 0: 1 forwards and 1 backwards of chunk 0 for 2 microbatches");
}

TEST(ScheduleCsv, NamesTheRanksThatBlockEachOther) {
  EXPECT_EQ(Fault("0F0,,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
            "0B0 1F1: line 1, column 3; line 2, column 2: pipeline ranks wait for each other: rank 0 at B0, rank 1 at F1");
}

}  // namespace
}  // namespace legoai::parallel
