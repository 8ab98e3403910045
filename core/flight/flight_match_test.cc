#include "core/flight/flight_match.h"

#include <gtest/gtest.h>

#include <deque>

namespace legoai::comm {
namespace {

using Sizes = std::vector<int64_t>;
using Ranks = std::vector<int64_t>;

// Entries of ranks 0, 1, ... of one collective or of one message.
class Entries {
 public:
  Entries& Add(const std::string& kind, const Sizes& input, const Sizes& output, const std::string& dtype = "Float") {
    v1::FlightEntry& entry = entries_.emplace_back();
    entry.set_profiling_name("gloo:" + kind);
    for (int64_t size : input) entry.add_input_sizes(size);
    for (int64_t size : output) entry.add_output_sizes(size);
    entry.set_dtype(dtype);
    entry.set_peer(-1);
    entry.set_is_p2p(kind == "send" || kind == "recv");
    return *this;
  }
  v1::FlightEntry& Last() { return entries_.back(); }
  std::vector<FlightPart> Parts() const {
    std::vector<FlightPart> parts;
    for (size_t i = 0; i < entries_.size(); ++i) parts.push_back({static_cast<int64_t>(i), &entries_[i], true, false});
    return parts;
  }
  FlightMatch Match(int64_t group_size = 0) const {
    return MatchCollective({0, 1, 0, Parts()}, group_size > 0 ? group_size : static_cast<int64_t>(entries_.size()));
  }

 private:
  std::deque<v1::FlightEntry> entries_;
};

TEST(FlightKind, IsWithoutBackendAndRanks) {
  EXPECT_EQ(FlightKind("gloo:all_gather"), "all_gather");
  EXPECT_EQ(FlightKind("nccl:send 1->2"), "send");
  EXPECT_EQ(FlightKind("barrier"), "barrier");
  EXPECT_EQ(FlightKind(""), "");
}

TEST(MatchCollective, AlikeIsFullyMatched) {
  Entries entries;
  for (int i = 0; i < 3; ++i) entries.Add("all_gather", {4, 8}, {12, 8});
  EXPECT_EQ(entries.Match().verdict, kFullyMatched);
  EXPECT_TRUE(entries.Match().culprits.empty());
}

TEST(MatchCollective, AnotherType) {
  Entries entries;
  entries.Add("all_gather", {4}, {12}).Add("all_gather", {4}, {12}).Add("all_reduce", {4}, {4});
  const FlightMatch match = entries.Match();
  EXPECT_EQ(match.verdict, kTypeMismatch);
  EXPECT_EQ(match.culprits, Ranks({2}));
  EXPECT_EQ(match.text, "rank 2 is in all_reduce, the others all_gather");
}

TEST(MatchCollective, OneAgainstOneBlamesBoth) {
  Entries entries;
  entries.Add("all_gather", {4}, {8}).Add("broadcast", {4}, {4});
  EXPECT_EQ(entries.Match().culprits, Ranks({0, 1}));
  EXPECT_EQ(entries.Match().text, "rank 0 is in all_gather, rank 1 is in broadcast");
}

TEST(MatchCollective, OtherSizes) {
  Entries entries;
  entries.Add("all_reduce", {4, 2}, {4, 2}).Add("all_reduce", {5, 2}, {5, 2}).Add("all_reduce", {4, 2}, {4, 2});
  const FlightMatch match = entries.Match();
  EXPECT_EQ(match.verdict, kSizeMismatch);
  EXPECT_EQ(match.culprits, Ranks({1}));
  EXPECT_EQ(match.text, "rank 1 has [5,2] -> [5,2], the others [4,2] -> [4,2]");
}

TEST(MatchCollective, SizesThatDoNotFitEachOtherBlameTheirRankEvenOneAgainstOne) {
  Entries gather, scatter, reduce;
  gather.Add("all_gather", {4}, {8}).Add("all_gather", {4}, {9});
  EXPECT_EQ(gather.Match().verdict, kSizeMismatch);
  EXPECT_EQ(gather.Match().culprits, Ranks({1}));
  EXPECT_EQ(gather.Match().text, "rank 1 has [4] -> [9], which no all_gather over 2 ranks has");
  scatter.Add("reduce_scatter", {9}, {4}).Add("reduce_scatter", {8}, {4});
  EXPECT_EQ(scatter.Match().culprits, Ranks({0}));
  reduce.Add("all_reduce", {9}, {4}).Add("all_reduce", {9}, {9});
  EXPECT_EQ(reduce.Match().culprits, Ranks({0}));
}

TEST(MatchCollective, FurtherTensorsCountToo) {
  Entries entries;
  for (int i = 0; i < 3; ++i) {
    entries.Add("all_gather", {4}, {4, -1, 4, 1, -1, i == 1 ? 5 : 4});
  }
  EXPECT_EQ(entries.Match().culprits, Ranks({1}));
  EXPECT_EQ(entries.Match().text, "rank 1 has [4] -> [4][4,1][5], the others [4] -> [4][4,1][4]");
}

TEST(MatchCollective, OtherDtypes) {
  Entries entries;
  entries.Add("all_reduce", {4}, {4}).Add("all_reduce", {4}, {4}).Add("all_reduce", {4}, {4}, "BFloat16");
  EXPECT_EQ(entries.Match().verdict, kDtypeMismatch);
  EXPECT_EQ(entries.Match().culprits, Ranks({2}));
  EXPECT_EQ(entries.Match().text, "rank 2 has BFloat16, the others Float");
}

TEST(MatchCollective, AnotherRootOfABroadcast) {
  Entries entries;
  for (int64_t root : {0, 0, 1}) {
    entries.Add("broadcast", {4}, {4});
    entries.Last().set_peer(root);
  }
  EXPECT_EQ(entries.Match().verdict, kSizeMismatch);
  EXPECT_EQ(entries.Match().culprits, Ranks({2}));
}

TEST(MatchCollective, RootsHaveTensorsThatOthersHaveNot) {
  Entries scatter, gather;
  scatter.Add("scatter", {8}, {4}).Add("scatter", {}, {4});
  gather.Add("gather", {4}, {8}).Add("gather", {4}, {});
  EXPECT_EQ(scatter.Match().verdict, kFullyMatched);
  EXPECT_EQ(gather.Match().verdict, kFullyMatched);
}

TEST(MatchCollective, AllToAllMustAgreeInTheSumOverAllRanks) {
  Entries uneven;
  uneven.Add("all_to_all", {5}, {3}).Add("all_to_all", {3}, {5});
  EXPECT_EQ(uneven.Match().verdict, kFullyMatched);
  EXPECT_EQ(uneven.Match(3).verdict, kUndecided);
  uneven.Add("all_to_all", {4}, {5});
  EXPECT_EQ(uneven.Match().verdict, kSizeMismatch);
  EXPECT_NE(uneven.Match().text.find("12 elements are sent and 13 received"), std::string::npos) << uneven.Match().text;
}

FlightChannel Channel(const Entries& sends, const Entries& receives) {
  FlightChannel channel{0, 3, 7, sends.Parts(), receives.Parts(), true};
  for (FlightPart& part : channel.sends) part.rank = 3;
  for (FlightPart& part : channel.receives) part.rank = 7;
  return channel;
}

TEST(MatchMessage, OfOneSizeMatches) {
  Entries sends, receives;
  sends.Add("send", {4}, {4});
  receives.Add("recv", {4}, {4});
  EXPECT_EQ(MatchMessage(Channel(sends, receives), 0).verdict, kFullyMatched);
}

TEST(MatchMessage, BlamesBothUnlessTheOthersOfTheChannelTell) {
  Entries sends, receives;
  sends.Add("send", {4}, {4});
  receives.Add("recv", {5}, {5});
  EXPECT_EQ(MatchMessage(Channel(sends, receives), 0).culprits, Ranks({3, 7}));
  sends.Add("send", {4}, {4});
  receives.Add("recv", {4}, {4});
  EXPECT_EQ(MatchMessage(Channel(sends, receives), 0).culprits, Ranks({7}));
  EXPECT_EQ(MatchMessage(Channel(sends, receives), 0).text, "rank 3 has [4], rank 7 has [5]");
  EXPECT_EQ(MatchMessage(Channel(sends, receives), 1).verdict, kFullyMatched);
}

TEST(MatchMessage, OfAnotherDtype) {
  Entries sends, receives;
  sends.Add("send", {4}, {4}, "Half");
  receives.Add("recv", {4}, {4}, "Float");
  EXPECT_EQ(MatchMessage(Channel(sends, receives), 0).verdict, kDtypeMismatch);
}

}  // namespace
}  // namespace legoai::comm
