#include "core/mesh/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace legoai::mesh {
namespace {

TEST(Mesh, GroupsOfOneRank) {
  const Mesh mesh{.pp = 2, .dp_replicate = 2, .dp_shard = 2, .tp = 2};
  const auto groups = mesh.Groups(13);
  const std::vector<std::pair<std::string, std::vector<int64_t>>> expected = {
      {"world", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
      {"pp", {5, 13}},
      {"dp_replicate", {9, 13}},
      {"dp_shard", {13, 15}},
      {"tp", {12, 13}},
      {"dp", {9, 11, 13, 15}},
      {"pp_ends", {13}},
      {"cp", {13}},
      {"dp_cp", {9, 11, 13, 15}},
      {"dp_shard_cp", {13, 15}},
      {"reshard", {13}},
      {"tp_gather", {13}}};
  ASSERT_EQ(groups.size(), expected.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    EXPECT_EQ(NameOf(groups[i].dim), expected[i].first);
    EXPECT_EQ(groups[i].ranks.List(), expected[i].second) << expected[i].first;
  }
}

TEST(Mesh, TheSequenceIsCutInsideDataParallelAndOutsideTensorParallel) {
  const Mesh mesh{.dp_replicate = 2, .dp_shard = 2, .cp = 2, .tp = 2};
  EXPECT_EQ(mesh.world(), 16);
  EXPECT_EQ(mesh.LineOf(Dim::kCp, 13).List(), (std::vector<int64_t>{13, 15}));
  EXPECT_EQ(mesh.LineOf(Dim::kDpShard, 13).List(), (std::vector<int64_t>{9, 13}));
  EXPECT_EQ(mesh.LineOf(Dim::kDpReplicate, 13).List(), (std::vector<int64_t>{5, 13}));
  EXPECT_EQ(mesh.LineOf(Dim::kDpShardCp, 13).List(), (std::vector<int64_t>{9, 11, 13, 15}));
  EXPECT_EQ(mesh.LineOf(Dim::kDp, 13).List(), (std::vector<int64_t>{1, 5, 9, 13}));
  EXPECT_EQ(mesh.LineOf(Dim::kDpCp, 13).List(), (std::vector<int64_t>{1, 3, 5, 7, 9, 11, 13, 15}));
}

TEST(Mesh, ParametersAreShardedOverNeighboursAfterForward) {
  const Mesh mesh{.pp = 2, .dp_replicate = 2, .dp_shard = 2, .cp = 2, .tp = 2, .reshard = 2, .gathers_beside = true};
  EXPECT_EQ(mesh.LineOf(Dim::kDpShardCp, 13).List(), (std::vector<int64_t>{9, 11, 13, 15}));
  EXPECT_EQ(mesh.LineOf(Dim::kReshard, 13).List(), (std::vector<int64_t>{13, 15}));
  EXPECT_EQ(mesh.LineOf(Dim::kReshard, 26).List(), (std::vector<int64_t>{24, 26}));
  EXPECT_EQ(mesh.LineOf(Dim::kTpGather, 13).List(), (std::vector<int64_t>{12, 13}));
}

// Groups of kReshard part those of kDpShardCp into pieces of neighbours, in order.
TEST(Mesh, ReshardGroupsPartTheShardGroups) {
  for (const int64_t replicate : {1, 3}) {
    for (const auto& [shard, cp, reshard] : {std::array<int64_t, 3>{4, 1, 2}, {2, 3, 2}, {6, 2, 4}, {12, 1, 3}}) {
      for (const int64_t tp : {1, 2}) {
        const Mesh mesh{.dp_replicate = replicate, .dp_shard = shard, .cp = cp, .tp = tp, .reshard = reshard};
        for (int64_t rank = 0; rank < mesh.world(); ++rank) {
          const std::vector<int64_t> all = mesh.LineOf(Dim::kDpShardCp, rank).List();
          const int64_t at = mesh.IndexOf(Dim::kDpShardCp, rank), first = at / reshard * reshard;
          EXPECT_EQ(mesh.LineOf(Dim::kReshard, rank).List(),
                    std::vector<int64_t>(all.begin() + first, all.begin() + first + reshard));
          EXPECT_EQ(mesh.IndexOf(Dim::kReshard, rank), at - first);
        }
      }
    }
  }
}

TEST(Mesh, EndsOfAPipelineTalkWhereTheyShall) {
  const Mesh mesh{.pp = 3, .dp_shard = 2, .tp = 2, .ends_talk = true};
  std::vector<std::vector<int64_t>> lines;
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    const RankLine line = mesh.LineOf(Dim::kPpEnds, rank);
    EXPECT_EQ(line[line.IndexOf(rank)], rank);
    lines.push_back(line.List());
  }
  EXPECT_EQ(lines, (std::vector<std::vector<int64_t>>{
                       {0, 8}, {1, 9}, {2, 10}, {3, 11}, {4}, {5}, {6}, {7}, {0, 8}, {1, 9}, {2, 10}, {3, 11}}));
  const Mesh one{.dp_shard = 2, .ends_talk = true};
  EXPECT_EQ(one.LineOf(Dim::kPpEnds, 1).List(), std::vector<int64_t>{1});
}

// For every mesh of up to 144 ranks: each group holds its rank once, at the index that the mesh says, all members agree about the
// group, and the groups of a dimension part the ranks into pieces of its degree.
TEST(Mesh, GroupsPartTheRanksInEveryDimension) {
  for (const int64_t replicate : {1, 2, 3}) {
    for (const int64_t shard : {1, 2, 4}) {
      for (const int64_t cp_tp : {11, 12, 21, 22}) {
        const int64_t cp = cp_tp / 10, tp = cp_tp % 10;
        for (const int64_t pp : {1, 3}) {
          const Mesh mesh{pp, replicate, shard, cp, tp};
          std::map<Dim, std::set<std::vector<int64_t>>> parts;
          for (int64_t rank = 0; rank < mesh.world(); ++rank) {
            for (const Group& group : mesh.Groups(rank)) {
              const std::vector<int64_t> ranks = group.ranks.List();
              EXPECT_TRUE(std::is_sorted(ranks.begin(), ranks.end()));
              EXPECT_EQ(std::count(ranks.begin(), ranks.end(), rank), 1);
              EXPECT_EQ(group.ranks[mesh.IndexOf(group.dim, rank)], rank);
              EXPECT_EQ(group.ranks.IndexOf(rank), mesh.IndexOf(group.dim, rank));
              EXPECT_EQ(group.ranks.last(), ranks.back());
              parts[group.dim].insert(ranks);
            }
          }
          const std::map<Dim, int64_t> sizes = {{Dim::kWorld, mesh.world()}, {Dim::kPp, pp}, {Dim::kDpReplicate, replicate},
                                                {Dim::kDpShard, shard},      {Dim::kTp, tp}, {Dim::kDp, replicate * shard},
                                                {Dim::kCp, cp},              {Dim::kDpCp, replicate * shard * cp},
                                                {Dim::kDpShardCp, shard * cp}};
          for (const auto& [dim, size] : sizes) {
            EXPECT_EQ(mesh.Size(dim), size) << NameOf(dim);
            EXPECT_EQ(static_cast<int64_t>(parts[dim].size()), mesh.world() / size) << NameOf(dim);
            for (const auto& ranks : parts[dim]) EXPECT_EQ(static_cast<int64_t>(ranks.size()), size) << NameOf(dim);
          }
          for (int64_t stage = 0; stage < pp; ++stage) {
            EXPECT_EQ(mesh.IndexOf(Dim::kPp, mesh.FirstRankOfStage(stage)), stage);
            EXPECT_EQ(mesh.FirstRankOfStage(stage), stage * mesh.world() / pp);
          }
        }
      }
    }
  }
}

TEST(RankLine, KnowsWhoIsInIt) {
  const RankLine line{3, 4, 3};
  EXPECT_EQ(line.List(), (std::vector<int64_t>{3, 7, 11}));
  EXPECT_EQ(line.IndexOf(11), 2);
  for (const int64_t stranger : {-1, 0, 4, 15}) EXPECT_EQ(line.IndexOf(stranger), -1) << stranger;
}

TEST(Dim, NamesReadBack) {
  for (const Dim dim : kAllDims) {
    Dim read = Dim::kWorld;
    EXPECT_TRUE(DimFromName(NameOf(dim), &read));
    EXPECT_EQ(read, dim);
  }
  Dim untouched = Dim::kTp;
  EXPECT_FALSE(DimFromName("ep", &untouched));
  EXPECT_EQ(untouched, Dim::kTp);
}

}  // namespace
}  // namespace legoai::mesh
