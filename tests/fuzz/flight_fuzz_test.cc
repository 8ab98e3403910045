// Flight records: rings, our JSON and PyTorch's, PyTorch's pickles. What is accepted is text that can cross a wire, is written
// and read as the same, and is merged and analyzed like any other.
#include <gtest/gtest.h>

#include "core/flight/flight_analysis.h"
#include "core/flight/flight_files.h"
#include "core/flight/flight_ring.h"
#include "proto/text.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

// PyTorch's format has no place for them.
v1::FlightDump WithoutBytes(v1::FlightDump dump) {
  for (v1::FlightEntry& entry : *dump.mutable_entries()) entry.clear_bytes();
  return dump;
}

absl::Status Check(const absl::StatusOr<v1::FlightDump>& dump) {
  if (!dump.ok()) return dump.status();
  v1::FlightDump sent;
  EXPECT_TRUE(sent.ParseFromString(dump->SerializeAsString())) << "cannot be sent";
  const auto again = comm::FlightDumpFromJson(comm::FlightDumpToJson(*dump));
  EXPECT_TRUE(again.ok()) << again.status();
  if (again.ok()) {
    EXPECT_EQ(WithoutBytes(*again).DebugString(), WithoutBytes(*dump).DebugString());
  }
  const auto merged = comm::MergeFlightDumps({*dump});
  const auto analysis = comm::AnalyzeFlight({*dump}, merged.world_size);
  EXPECT_FALSE(analysis.verdict().empty());
  return absl::OkStatus();
}

absl::Status ParseRing(const std::string& bytes) {
  const auto ring = comm::ReadFlightRing(WriteInput("rank-0", bytes), "read");
  if (!ring.ok()) return ring.status();
  return Check(comm::ReadFlightFile(WriteInput("rank-0", bytes)));
}

absl::Status ParseDump(const std::string& bytes) { return Check(comm::ReadFlightFile(WriteInput("dump_rank_0", bytes))); }

const std::vector<std::string> kWords = JsonWords(
    "rank|world_size|pg_config|entries|process_group|ranks|[0, 1]|desc|peer|is_p2p|state|completed|condition|input_sizes|"
    "input_dtypes|profiling_name|gloo:send 0->1",
    "[[-1]]");

TEST(Fuzz, FlightRing) { Fuzz({"flight_ring", {"LEGOFR1", ":", ";", ",", "0", "all_reduce", "send", "\xff"}, ParseRing}); }
TEST(Fuzz, FlightJson) { Fuzz({"flight_json", kWords, ParseDump}); }

TEST(Fuzz, FlightPickle) {
  Fuzz({"flight_pickle",
        Words("\x80\x02|.|N|]|}|)|(|t|a|e|s|u|q\x01|h\x01|r\x01|j\x01|\x85|\x86|\x87|\x88|\x89|K\x7f|M\xff\xff|J\xff\xff\xff\xff|"
              "G\x7f\xf0|\x8a\x08\xff|X\x04|X\xff\xff\xff\x7f|version|entries|pg_config|ranks|rank|\xff"),
        ParseDump});
}

}  // namespace
}  // namespace legoai::fuzz
