// Random histories of worlds with many groups and messages, in which all is well, or one thing is broken: the analysis must blame
// exactly whoever it was.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <random>

#include "core/flight/flight_analysis.h"
#include "core/flight/testing/flight_world.h"

namespace legoai::comm {
namespace {

using Ranks = std::vector<int64_t>;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  template <class T>
  const T& Pick(const std::vector<T>& from) {
    return from[Uniform(0, static_cast<int64_t>(from.size()) - 1)];
  }

  // One dimension of the mesh after another is used, by all of its groups, as the same program on every rank does.
  FlightWorld World(int64_t pp, int64_t dp, int64_t tp, int64_t rounds) {
    FlightWorld world(pp * dp * tp);
    const std::vector<int64_t> groups = world.AddMesh(pp, dp, tp);
    const std::vector<std::vector<int64_t>> dimensions = {
        {groups[0]},
        {groups.begin() + 1, groups.begin() + 1 + dp * tp},
        {groups.begin() + 1 + dp * tp, groups.begin() + 1 + dp * tp + pp * tp},
        {groups.begin() + 1 + dp * tp + pp * tp, groups.end()},
    };
    for (int64_t round = 0; round < rounds; ++round) {
      const int64_t dimension = Uniform(0, 9) == 0 ? 0 : Uniform(1, 3);
      const std::string kind = Pick<std::string>({"all_gather", "reduce_scatter", "all_reduce", "all_to_all"});
      const int64_t rows = Uniform(1, 3), stage = Uniform(0, pp - 1);
      for (int64_t group : dimensions[dimension]) {
        const auto& ranks = world.Ranks(group);
        if (dimension != 1) {
          world.AddCollective(group, kind, rows);
        } else if (pp > 1) {
          world.AddMessage(group, ranks[stage], ranks[(stage + 1) % pp], 4);
        }
      }
    }
    return world;
  }

  FlightWorld SmallWorld() { return World(Uniform(1, 3), Uniform(1, 3), Uniform(1, 4), Uniform(5, 40)); }
  // An operation, and a rank that takes part in it.
  std::pair<int64_t, int64_t> PickIn(const FlightWorld& world) {
    const int64_t operation = Uniform(0, std::ssize(world.operations()) - 1);
    return {Pick(world.operations()[operation].ranks), operation};
  }

 private:
  std::mt19937 engine_;
};

Ranks Culprits(const v1::FlightAnalysis& analysis) { return {analysis.culprits().begin(), analysis.culprits().end()}; }

class RandomWorlds : public testing::Test {
 protected:
  RandomWorlds() { std::printf("seed %u\n", seed_); }
  // Once the launcher has seen who is stopped: it alone, with something that it is missing in, or inside of, where others wait.
  static void ExpectNamed(std::vector<v1::FlightDump> dumps, int64_t rank, bool waited_for) {
    dumps[rank].mutable_condition()->set_fault("unresponsive");
    const auto analysis = AnalyzeFlight(dumps, static_cast<int64_t>(dumps.size()));
    ASSERT_EQ(Culprits(analysis), Ranks({rank})) << analysis.DebugString();
    if (!waited_for) return;
    ASSERT_EQ(analysis.verdict(), "collective_state_mismatch") << analysis.DebugString();
    const v1::FlightFinding& first = analysis.findings(0);
    ASSERT_EQ(Ranks(first.culprits().begin(), first.culprits().end()), Ranks({rank})) << analysis.DebugString();
    const auto& missing = first.missing_ranks();
    const auto& entries = dumps[rank].entries();
    const bool absent = std::count(missing.begin(), missing.end(), rank) > 0;
    const bool inside = std::any_of(entries.begin(), entries.end(), [&](const v1::FlightEntry& entry) {
      const bool same = entry.is_p2p() || entry.collective_seq_id() == first.sequence();  // ranks count their own messages
      return entry.process_group() == first.process_group() && same && entry.state() == "started";
    });
    ASSERT_TRUE(absent || inside) << analysis.DebugString();
  }
  // The same dumps, read of a run of which nobody has said that it hangs.
  static void ExpectNobodyIsBlamedOnRequest(std::vector<v1::FlightDump> dumps) {
    for (auto& dump : dumps) dump.set_reason("read");
    const auto analysis = AnalyzeFlight(dumps, static_cast<int64_t>(dumps.size()));
    ASSERT_EQ(analysis.verdict(), "undecided") << analysis.DebugString();
    ASSERT_EQ(analysis.culprits_size(), 0) << analysis.DebugString();
    for (const auto& finding : analysis.findings()) ASSERT_EQ(finding.culprits_size(), 0) << analysis.DebugString();
  }
  // kRounds times, without the worlds in which nothing runs.
  void ForEachWorld(const std::function<void(Random&, FlightWorld&)>& test) {
    for (uint32_t round = 0; round < kRounds && !HasFatalFailure(); ++round) {
      SCOPED_TRACE(testing::Message() << "seed " << seed_ << ", round " << round);
      Random random(seed_ + round);
      FlightWorld world = random.SmallWorld();
      if (!world.operations().empty()) test(random, world);
    }
  }
  static constexpr uint32_t kRounds = 1500;
  const uint32_t seed_ = std::random_device{}();
};

TEST_F(RandomWorlds, WithoutTroubleAreFullyMatched) {
  for (uint32_t round = 0; round < kRounds / 3; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_ << ", round " << round);
    Random random(seed_ + round);
    FlightWorld world = random.SmallWorld();
    const auto dumps = world.Run(random.Uniform(0, 1) == 0 ? INT64_MAX : random.Uniform(1, 20));
    const auto analysis = AnalyzeFlight(dumps, world.size());
    ASSERT_EQ(analysis.verdict(), "fully_matched") << analysis.DebugString();
    ASSERT_EQ(analysis.culprits_size() + analysis.findings_size() + analysis.ranks_without_dump_size(), 0);
  }
}

TEST_F(RandomWorlds, WhoHangsIsBlamedAndNobodyElse) {
  int64_t hangs = 0, chains = 0;
  ForEachWorld([&](Random& random, FlightWorld& world) {
    const auto [rank, operation] = random.PickIn(world);
    world.Hang(rank, operation);
    const auto dumps = world.Run(random.Uniform(0, 1) == 0 ? INT64_MAX : random.Uniform(6, 20), random.Uniform(0, 3));
    const auto analysis = AnalyzeFlight(dumps, world.size());
    if (world.stuck().empty()) {
      ASSERT_EQ(analysis.verdict(), "fully_matched") << analysis.DebugString();
      return;
    }
    ASSERT_EQ(analysis.verdict(), "collective_state_mismatch") << analysis.DebugString();
    ASSERT_EQ(Culprits(analysis), Ranks({rank})) << analysis.DebugString();
    ExpectNobodyIsBlamedOnRequest(dumps);
    ++hangs;
    chains += analysis.findings_size() > 1;
  });
  std::printf("%ld hangs, %ld of them with chains\n", static_cast<long>(hangs), static_cast<long>(chains));
  EXPECT_GT(hangs, kRounds / 4);
  EXPECT_GT(chains, kRounds / 10);
}

// Some operations go on beside others, and the rank that hangs has queued or started some ahead. Where it hangs inside of what
// all are inside of, it may be named among these; but nobody else is ever blamed.
TEST_F(RandomWorlds, NobodyElseIsBlamedForWhoFrozeWithSeveralStreams) {
  int64_t named = 0, unnamed = 0;
  ForEachWorld([&](Random& random, FlightWorld& world) {
    const auto operations = static_cast<int64_t>(world.operations().size());
    for (int64_t operation = 0; operation < operations; ++operation) {
      if (random.Uniform(0, 2) == 0) world.MakeAsynchronous(operation);
    }
    const auto [rank, operation] = random.PickIn(world);
    std::vector<std::string> states(random.Uniform(0, 3));
    for (std::string& state : states) state = random.Uniform(0, 1) == 0 ? "scheduled" : "started";
    world.Hang(rank, operation, states);
    const auto dumps = world.Run(INT64_MAX, random.Uniform(0, 3));
    const auto analysis = AnalyzeFlight(dumps, world.size());
    const Ranks culprits = Culprits(analysis);
    const bool among = culprits.size() > 1 && analysis.text().find("one of them holds it up") != std::string::npos &&
                       std::count(culprits.begin(), culprits.end(), rank) == 1;
    ASSERT_TRUE(culprits.empty() || culprits == Ranks({rank}) || among) << rank << " hangs\n" << analysis.DebugString();
    ExpectNamed(dumps, rank, !world.stuck().empty());
    if (world.stuck().empty()) return;
    const bool started = std::count(states.begin(), states.end(), "started") > 0;
    ASSERT_TRUE(started || culprits == Ranks({rank})) << analysis.DebugString();
    ++(culprits == Ranks({rank}) ? named : unnamed);
  });
  std::printf("named alone in %ld, not in %ld\n", static_cast<long>(named), static_cast<long>(unnamed));
  EXPECT_GT(named, unnamed);
}

TEST_F(RandomWorlds, WhoLeftNoDumpIsBlamed) {
  ForEachWorld([&](Random& random, FlightWorld& world) {
    const auto [rank, operation] = random.PickIn(world);
    world.Hang(rank, operation);
    auto dumps = world.Run();
    dumps.erase(dumps.begin() + rank);
    const auto analysis = AnalyzeFlight(dumps, world.size());
    ASSERT_EQ(analysis.ranks_without_dump_size(), 1);
    EXPECT_EQ(analysis.ranks_without_dump(0), rank);
    ASSERT_EQ(analysis.verdict(), world.stuck().empty() ? "fully_matched" : "undecided") << analysis.DebugString();
    ASSERT_EQ(Culprits(analysis), world.stuck().empty() ? Ranks() : Ranks({rank})) << analysis.DebugString();
  });
}

TEST_F(RandomWorlds, WhoEnteredSomethingElseIsBlamed) {
  int64_t alone = 0;
  ForEachWorld([&](Random& random, FlightWorld& world) {
    const int64_t number = random.Uniform(0, static_cast<int64_t>(world.operations().size()) - 1);
    const FlightWorld::Operation operation = world.operations()[number];
    if (operation.ranks.size() < 2) return;
    const int64_t rank = random.Pick(operation.ranks);
    const bool message = operation.kind == "send";
    const int64_t how = random.Uniform(message ? 1 : 0, 2);
    const std::string verdict =
        std::vector<std::string>{"collective_type_mismatch", "size_or_syntax_mismatch", "collective_dtype_mismatch"}[how];
    world.Alter(rank, number, [&](v1::FlightEntry* entry) {
      if (how == 0) entry->set_profiling_name("gloo:barrier");
      if (how == 1) entry->set_input_sizes(0, entry->input_sizes(0) + 1);
      if (how == 2) entry->set_dtype("Half");
    });
    const auto dumps = world.Run(INT64_MAX, random.Uniform(0, 3));
    const auto analysis = AnalyzeFlight(dumps, world.size());
    ASSERT_EQ(analysis.verdict(), verdict) << analysis.DebugString();
    const Ranks culprits = Culprits(analysis);
    if (operation.ranks.size() > 2) {
      ASSERT_EQ(culprits, Ranks({rank})) << analysis.DebugString();
    } else {  // one against one: one of the two at least, and nobody else
      for (int64_t culprit : culprits) ASSERT_TRUE(culprit == operation.ranks[0] || culprit == operation.ranks[1]);
      ASSERT_TRUE(std::count(culprits.begin(), culprits.end(), rank)) << analysis.DebugString();
    }
    alone += culprits.size() == 1;
  });
  EXPECT_GT(alone, kRounds / 10);
}

TEST_F(RandomWorlds, OrderOfDumpsMattersNothing) {
  for (uint32_t round = 0; round < 100; ++round) {
    Random random(seed_ + round);
    FlightWorld world = random.SmallWorld();
    if (world.operations().empty()) continue;
    world.Hang(random.Uniform(0, world.size() - 1), random.Uniform(0, static_cast<int64_t>(world.operations().size()) - 1));
    auto dumps = world.Run();
    const auto once = AnalyzeFlight(dumps, world.size());
    std::reverse(dumps.begin(), dumps.end());
    auto again = AnalyzeFlight(dumps, world.size());
    EXPECT_EQ(again.verdict(), once.verdict());
    EXPECT_EQ(Culprits(again), Culprits(once));
    EXPECT_EQ(again.matched(), once.matched());
    EXPECT_EQ(again.findings_size(), once.findings_size());
  }
}

TEST_F(RandomWorlds, OfAThousandRanks) {
  Random random(seed_);
  FlightWorld world = random.World(4, 32, 8, 300);
  int64_t operation = static_cast<int64_t>(world.operations().size()) * 3 / 4;
  while (world.operations()[operation].ranks.size() < 2) ++operation;
  const int64_t rank = world.operations()[operation].ranks[1];
  world.Hang(rank, operation);
  const auto dumps = world.Run();
  int64_t entries = 0;
  for (const auto& dump : dumps) entries += dump.entries_size();
  const auto before = std::chrono::steady_clock::now();
  const auto analysis = AnalyzeFlight(dumps, world.size());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  std::printf("%ld ranks, %ld entries: %.3f s\n", static_cast<long>(world.size()), static_cast<long>(entries), took.count());
  EXPECT_EQ(Culprits(analysis), Ranks({rank})) << analysis.text();
}

}  // namespace
}  // namespace legoai::comm
