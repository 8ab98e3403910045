// Trace files of a step, plain and compressed. What is accepted reads as the same after it was written by what writes such files,
// and so does the compressed file; more text than is allowed is refused, however small it was made.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/trace/trace_text.h"
#include "proto/errors.h"
#include "server/cli/whatif/trace_reader.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

using cli::StepTraceFile;
using cli::TracedStage;
using cli::TraceSlice;
using graph::Quoted;

constexpr int64_t kMostText = 4 << 20;
// Microseconds are floating-point numbers in the file: of times above three days not every nanosecond is one of them.
constexpr int64_t kExactNanoseconds = int64_t{1} << 48;

// Nobody writes times below zero, and everybody may send them.
std::string Microseconds(int64_t nanoseconds) {
  if (nanoseconds < 0) return absl::StrFormat("%.17g", (static_cast<double>(nanoseconds) + 0.1) / 1000);
  std::string text;
  graph::AppendMicroseconds(nanoseconds, &text);
  return text;
}

std::string EventOf(const TraceSlice& slice, int64_t process, int64_t thread) {
  return absl::StrCat(
      R"({"ph":"X","name":)", Quoted(slice.name), R"(,"cat":)", Quoted(slice.category), R"(,"pid":)", process, R"(,"tid":)",
      thread, R"(,"ts":)", Microseconds(slice.begin_ns), R"(,"dur":)", Microseconds(slice.end_ns - slice.begin_ns),
      R"(,"args":{"phase":)", Quoted(slice.phase), R"(,"module":)", Quoted(slice.module), R"(,"group":)", Quoted(slice.group),
      R"(,"ranks":)", slice.ranks, R"(,"shapes":)", Quoted(absl::StrCat("int64[2] ", slice.dtype, "[2,3]")), R"(,"flops":)",
      absl::StrFormat("%.17g", slice.flops), R"(,"bytes":)", absl::StrFormat("%.17g", slice.bytes), "}}");
}

std::string Named(const char* what, int64_t process, int64_t thread, const std::string& name) {
  return absl::StrCat(R"({"ph":"M","name":")", what, R"(","pid":)", process, R"(,"tid":)", thread, R"(,"args":{"name":)",
                      Quoted(name), "}}");
}

// A process for each stage, a track for each of its slices.
std::string Written(const StepTraceFile& file) {
  std::vector<std::string> events;
  int64_t process = 0, thread = 0;
  for (const auto& [number, stage] : file.stages) {
    ++process;
    events.push_back(Named("process_name", process, 0, absl::StrCat("stage ", number, " (rank ", stage.rank, ")")));
    for (const TraceSlice& slice : stage.slices) {
      events.push_back(Named("thread_name", process, ++thread, slice.stream));
      events.push_back(EventOf(slice, process, thread));
    }
    for (const auto& [counter, bytes] : stage.peak_bytes)
      events.push_back(absl::StrCat(R"({"ph":"C","name":)", Quoted(counter), R"(,"pid":)", process, R"(,"args":{"bytes":)", bytes,
                                    "}}"));
  }
  std::vector<std::string> about;
  for (const auto& [name, value] : file.about) about.push_back(absl::StrCat(Quoted(name), ":", Quoted(value)));
  return absl::StrCat("{\"traceEvents\":[\n", absl::StrJoin(events, ",\n"), "\n],\"otherData\":{", absl::StrJoin(about, ","),
                      "}}");
}

void ExpectSameTime(int64_t time, int64_t expected) {
  if (std::llabs(expected) < kExactNanoseconds) {
    EXPECT_EQ(time, expected);
  } else {
    EXPECT_NEAR(static_cast<double>(time), static_cast<double>(expected), 1e-14 * std::fabs(static_cast<double>(expected)));
  }
}

void ExpectSame(const TraceSlice& slice, const TraceSlice& expected) {
  ExpectSameTime(slice.begin_ns, expected.begin_ns);
  ExpectSameTime(slice.end_ns - slice.begin_ns, expected.end_ns - expected.begin_ns);
  const auto texts = [](const TraceSlice& of) {
    return std::vector<std::string>{of.name, of.category, of.stream, of.phase, of.module, of.group, of.dtype};
  };
  EXPECT_EQ(texts(slice), texts(expected));
  EXPECT_EQ(slice.ranks, expected.ranks);
  EXPECT_EQ(slice.flops, expected.flops);
  EXPECT_EQ(slice.bytes, expected.bytes);
}

void ExpectSame(const absl::StatusOr<StepTraceFile>& read, const StepTraceFile& expected) {
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->about, expected.about);
  ASSERT_EQ(read->stages.size(), expected.stages.size());
  for (const auto& [number, stage] : expected.stages) {
    const auto found = read->stages.find(number);
    ASSERT_TRUE(found != read->stages.end()) << number;
    EXPECT_EQ(found->second.rank, stage.rank);
    EXPECT_EQ(found->second.peak_bytes, stage.peak_bytes);
    ASSERT_EQ(found->second.slices.size(), stage.slices.size());
    for (size_t i = 0; i < stage.slices.size(); ++i) ExpectSame(found->second.slices[i], stage.slices[i]);
  }
}

std::string WriteTrace(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  auto file = graph::TraceFile::Create("trace", path);
  EXPECT_TRUE(file.ok()) << file.status();
  (*file)->Append(text);
  EXPECT_TRUE((*file)->Close().ok());
  return path;
}

absl::Status Parse(const std::string& bytes) {
  const auto file = cli::ReadStepTrace("TRACE", WriteInput("trace", bytes), kMostText);
  if (!file.ok()) {
    EXPECT_TRUE(GetFieldViolation(file.status())) << file.status();
    return file.status();
  }
  EXPECT_FALSE(file->stages.empty() || file->About("made_by").empty());
  for (const auto& [number, stage] : file->stages) {
    for (const TraceSlice& slice : stage.slices) EXPECT_LE(slice.begin_ns, slice.end_ns) << slice.name;
  }
  const std::string text = Written(*file);
  const auto size = static_cast<int64_t>(text.size());
  for (const char* name : {"again.json", "again.json.gz"}) {
    const std::string path = WriteTrace(name, text);
    ExpectSame(cli::ReadStepTrace("TRACE", path, size), *file);
    EXPECT_FALSE(cli::ReadStepTrace("TRACE", path, size - 1).ok()) << "more text than is allowed";
  }
  return absl::OkStatus();
}

TEST(Fuzz, StepTrace) {
  Fuzz({"step_trace",
        JsonWords("traceEvents|otherData|made_by|ph|X|M|C|name|cat|compute|communication|wait|span|pid|tid|ts|dur|args|phase|"
                  "module|shapes|flops|bytes|group|ranks|process_name|thread_name|stage 1 (rank 4)|memory|memory: input",
                  "stage |(rank |bfloat16[2]|-1e15|3e13|0.0001|\x1f\x8b\x08|\xff"),
        Parse});
}

}  // namespace
}  // namespace legoai::fuzz
