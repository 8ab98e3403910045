#include "core/trace/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/trace/effects.h"
#include "core/trace/testing/program_test_util.h"

namespace legoai::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kSide = 1;

// Gather on a side stream, use on the compute stream, gather again into the same buffer: every wait is needed.
Trace Prefetch() {
  Program b;
  const auto shard = b.External("shard", 16), buffer = b.External("buffer", 64), x = b.Inner(64), y = b.Inner(64);
  for (int round = 0; round < 2; ++round) {
    b.Record(0, 1).Wait(kSide, 1);
    b.Op("lego::all_gather_into", {buffer, shard}, {}, 1, kSide);
    b.Record(kSide, 2).Wait(0, 2);
    b.Op("aten::mul.Tensor", {buffer, buffer}, {round == 0 ? x : y});
  }
  b.Op("aten::add_.Tensor", {shard, x}, {shard}, 1);
  return b.trace();
}

TEST(RacesTest, OrderedProgramHasNone) { EXPECT_THAT(Races(Prefetch()), IsEmpty()); }

TEST(RacesTest, EveryNeededWaitIsMissedWhenDropped) {
  const Trace trace = Prefetch();
  int waits = 0;
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    const auto event = EventOf(trace, trace.instructions[i]);
    if (!event || event->is_record) continue;
    // The first fork orders nothing: the side stream has no earlier use to wait for.
    const bool needed = waits++ != 0;
    Trace dropped = trace;
    dropped.instructions.erase(dropped.instructions.begin() + i);
    EXPECT_EQ(!Races(dropped).empty(), needed) << "wait at instruction " << i;
  }
  EXPECT_EQ(waits, 4);
}

// The definition, spelled out: instructions reach each other along streams and from records to waits; two uses of an element, one
// of them a write, must be joined by a path.
class Reachability {
 public:
  static constexpr int64_t kElements = 4;  // of each storage

  explicit Reachability(const Trace& trace) : trace_(trace), reaches_(trace.instructions.size()) {
    std::map<int64_t, size_t> last_of_stream, last_record;
    for (size_t i = 0; i < reaches_.size(); ++i) {
      reaches_[i].assign(reaches_.size(), false);
      const auto event = EventOf(trace, trace.instructions[i]);
      const int64_t stream = event ? event->stream : trace.instructions[i].stream;
      if (last_of_stream.count(stream)) Follow(last_of_stream[stream], i);
      last_of_stream[stream] = i;
      if (event && event->is_record) last_record[event->event] = i;
      if (event && !event->is_record) Follow(last_record.at(event->event), i);
    }
  }
  bool HasRace() const {
    for (size_t i = 0; i < reaches_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (Conflict(i, j) && !reaches_[i][j]) return true;
      }
    }
    return false;
  }

 private:
  void Follow(size_t before, size_t after) {  // everything before `before` is before `after`
    reaches_[after][before] = true;
    for (size_t i = 0; i < before; ++i) {
      if (reaches_[before][i]) reaches_[after][i] = true;
    }
  }
  // Elements used of each storage, and whether written.
  std::map<std::pair<uint32_t, int64_t>, bool> Uses(size_t index) const {
    const auto& instruction = trace_.instructions[index];
    std::map<std::pair<uint32_t, int64_t>, bool> uses;
    const auto add = [&](uint32_t storage, int64_t first, int64_t count, bool written) {
      for (int64_t i = first; i < first + count; ++i) uses[{storage, i}] |= written;
    };
    if (instruction.kind == Instruction::Kind::kFree) add(instruction.immediate, 0, kElements, true);
    const Operands operands = OperandsOf(trace_, instruction);
    for (const bool written : {false, true}) {
      for (uint32_t value : written ? operands.writes : operands.reads) {
        const Geometry& geometry = trace_.geometries[trace_.values[value].geometry];
        add(trace_.values[value].storage, geometry.offset, geometry.sizes[0], written);
      }
    }
    return uses;
  }
  bool Conflict(size_t a, size_t b) const {
    const auto left = Uses(a), right = Uses(b);
    for (const auto& [element, written] : left) {
      const auto other = right.find(element);
      if (other != right.end() && (written || other->second)) return true;
    }
    return false;
  }

  const Trace& trace_;
  std::vector<std::vector<bool>> reaches_;
};

TEST(RacesTest, AgreesWithReachabilityOnRandomPrograms) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  int racy = 0;
  constexpr int kPrograms = 2000;
  for (int program = 0; program < kPrograms; ++program) {
    Program b;
    const std::vector<Program::Tensor> tensors = {b.External("x", 16), b.External("y", 16), b.External("z", 16)};
    auto any = [&] {
      const Program::Tensor whole = tensors[random() % tensors.size()];
      const int64_t first = random() % Reachability::kElements;
      return random() % 2 ? whole : b.Part(whole, first, 1 + random() % (Reachability::kElements - first));
    };
    std::vector<int64_t> recorded;
    for (int64_t n = 2 + random() % 12; n > 0; --n) {
      const uint16_t stream = random() % 3;
      switch (random() % 4) {
        case 0: b.Op("f", {any(), any()}, {}, random() % 2, stream); break;
        case 1:
          recorded.push_back(random() % 3);
          b.Record(stream, recorded.back());
          break;
        default:
          if (!recorded.empty()) b.Wait(stream, recorded[random() % recorded.size()]);
      }
    }
    if (random() % 2) b.Free(tensors[random() % tensors.size()]);
    const bool expected = Reachability(b.trace()).HasRace();
    EXPECT_EQ(!Races(b.trace()).empty(), expected) << b.trace().Dump(true);
    racy += expected;
  }
  EXPECT_GT(racy, kPrograms / 20);
  EXPECT_LT(racy, kPrograms * 19 / 20);
}

TEST(RacesTest, AWaitImpliedThroughAThirdStreamIsEnough) {
  Program b;
  const auto x = b.External("x", 16), y = b.Inner(16);
  b.Op("lego::all_reduce_", {x}, {}, 1, 1).Record(1, 1).Wait(2, 1).Record(2, 2).Wait(0, 2).Op("aten::neg", {x}, {y});
  EXPECT_THAT(Races(b.trace()), IsEmpty());
}

TEST(RacesTest, AnEventMeansItsLatestRecord) {
  Program b;
  const auto x = b.External("x", 16), y = b.Inner(16);
  b.Record(1, 1).Op("lego::all_reduce_", {x}, {}, 1, 1).Wait(0, 1).Op("aten::neg", {x}, {y});
  EXPECT_THAT(Races(b.trace()), ElementsAre(HasSubstr("aten::neg (instruction 3, stream 0) is not ordered after")));
}

TEST(RacesTest, FreeIsAnOverwrite) {
  Program b;
  const auto x = b.Inner(16), out = b.External("out", 16);
  b.Op("aten::zeros", {}, {x}).Record(0, 1).Wait(1, 1).Op("lego::reduce_scatter_into", {out, x}, {}, 1, 1).Free(x);
  EXPECT_THAT(Races(b.trace()), ElementsAre(HasSubstr("free (instruction 4, stream 0) overwrites before it was read by")));
}

TEST(RacesTest, WaitForWhatNobodyRecorded) {
  Program b;
  b.Wait(0, 7);
  EXPECT_THAT(Races(b.trace()), ElementsAre(HasSubstr("event 7")));
}

TEST(BadReadsTest, BlankMemoryIsFoundUntilWritten) {
  Program b;
  const auto x = b.Inner(16), y = b.Inner(16), z = b.Inner(16);
  b.Op("aten::empty.memory_format", {}, {x}).Op("aten::neg", {x}, {y});
  b.Op("aten::zero_", {x}, {x}, 1).Op("aten::neg", {x}, {z});
  EXPECT_THAT(BadReads(b.trace()), ElementsAre(HasSubstr("aten::neg reads memory that nothing wrote: storage 0")));
}

TEST(BadReadsTest, ResizedAwayMemoryIsFound) {
  Program b;
  const auto x = b.External("flat", 16), y = b.Inner(16);
  b.ResizeStorage(x, 0).Op("aten::neg", {x}, {y});
  EXPECT_THAT(BadReads(b.trace()), ElementsAre(HasSubstr("resized away: storage 0 flat")));
}

TEST(BadReadsTest, ResizedBackMemoryMustBeWrittenFirst) {
  Program b;
  const auto x = b.External("flat", 16), shard = b.External("shard", 16), y = b.Inner(16), z = b.Inner(16);
  b.ResizeStorage(x, 0).ResizeStorage(x, 16).Op("aten::neg", {x}, {y});
  b.Op("lego::all_gather_into", {x, shard}, {}, 1, 1).Op("aten::neg", {x}, {z});
  EXPECT_EQ(BadReads(b.trace()).size(), 1);
}

TEST(BadReadsTest, ViewsAndLikesReadNoMemory) {
  Program b;
  const auto x = b.Inner(16), y = b.Inner(16);
  b.Op("aten::empty.memory_format", {}, {x}).Op("aten::view", {x}, {x}).Op("aten::zeros_like", {x}, {y});
  EXPECT_THAT(BadReads(b.trace()), IsEmpty());
}

using ::testing::StartsWith;

Trace Chain(const std::vector<std::string>& names) {
  Program b;
  auto x = b.External("x", 16);
  for (const auto& name : names) {
    const auto y = b.Inner(16);
    b.Op(name, {x}, {y});
    x = y;
  }
  return b.trace();
}

TEST(DifferencesTest, SameProgram) { EXPECT_THAT(Differences(Chain({"a", "b"}), Chain({"a", "b"})), IsEmpty()); }

TEST(DifferencesTest, OneReplacedOperator) {
  EXPECT_THAT(Differences(Chain({"a", "b", "c"}), Chain({"a", "x", "c"})), ElementsAre(StartsWith("- 1 "), StartsWith("+ 1 ")));
}

TEST(DifferencesTest, WiringCountsWhenSignaturesAgree) {
  Program a, b;
  for (Program* t : {&a, &b}) {
    const auto x = t->External("x", 16), y = t->Inner(16), z = t->Inner(16), w = t->Inner(16);
    t->Op("f", {x}, {y}).Op("f", {x}, {z}).Op("g", {t == &a ? y : z}, {w});
  }
  EXPECT_THAT(Differences(a.trace(), b.trace()), ElementsAre(StartsWith("wiring at 2: ")));
}

TEST(DifferencesTest, ModuleAndCategoryAndOutputsCount) {
  Trace a = Chain({"a"}), b = a;
  b.modules.push_back("layer");
  b.instructions[0].module = 1;
  EXPECT_THAT(Differences(a, b), ElementsAre(HasSubstr("in ''"), HasSubstr("in 'layer'")));
  b = a;
  b.storages[1].category = Category::kActivationGradient;
  EXPECT_THAT(Differences(a, b), ElementsAre(StartsWith("storage s1")));
  b = a;
  b.outputs["loss"] = 1;
  EXPECT_THAT(Differences(a, b), ElementsAre("+ output loss"));
}

TEST(DifferencesTest, KindsOfStoragesAndContentsOfConstantsCount) {
  Trace a = Chain({"a"});
  a.storages.push_back({4, StorageKind::kConstant, Category::kOther, "?2", "abcd"});
  Trace b = a;
  b.storages[2].contents = "abce";
  EXPECT_THAT(Differences(a, b), ElementsAre("storage s2: constants of different contents"));
  b = a;
  b.storages[2].kind = StorageKind::kExternal;
  EXPECT_THAT(Differences(a, b), ElementsAre(StartsWith("storage s2: ?2 4 bytes, kind ")));
}

TEST(DifferencesTest, GroupsCountByNameAndRanks) {
  Trace a = Chain({"a"});
  a.groups = {{mesh::Dim::kWorld, {0, 1, 4}}, {mesh::Dim::kTp, {0, 1, 2}}};
  Trace b = a;
  EXPECT_THAT(Differences(a, b), IsEmpty());
  b.groups[1].ranks.stride = 2;
  EXPECT_THAT(Differences(a, b), ElementsAre("group 1: tp of 2 ranks from 0 by 1 | tp of 2 ranks from 0 by 2"));
  b.groups[1] = {mesh::Dim::kDp, {0, 1, 2}};
  EXPECT_THAT(Differences(a, b), ElementsAre("group 1: tp of 2 ranks from 0 by 1 | dp of 2 ranks from 0 by 1"));
  b.groups.pop_back();
  EXPECT_THAT(Differences(a, b), ElementsAre("group 1: tp of 2 ranks from 0 by 1 | none"));
}

TEST(DifferencesTest, HopelesslyDifferentProgramsAreCutShort) {
  EXPECT_THAT(Differences(Chain(std::vector<std::string>(3000, "a")), Chain(std::vector<std::string>(3000, "b"))),
              ElementsAre(HasSubstr("from instruction 0")));
}

// The number of lines is the length of the shortest edit script, as a table over all prefixes gives it.
int64_t EditDistance(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::vector<int64_t>> cost(a.size() + 1, std::vector<int64_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
      } else {
        cost[i][j] = a[i - 1] == b[j - 1] ? cost[i - 1][j - 1] : 1 + std::min(cost[i - 1][j], cost[i][j - 1]);
      }
    }
  }
  return cost[a.size()][b.size()];
}

TEST(DifferencesTest, EditScriptIsShortest) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> names[2];
    for (auto& list : names) {
      list.push_back("start");  // the operator that reads the input is like no other
      for (int64_t n = random() % 12; n > 0; --n) list.push_back(std::string(1, 'a' + random() % 3));
    }
    const auto lines = Differences(Chain(names[0]), Chain(names[1]), 100);
    EXPECT_EQ(static_cast<int64_t>(lines.size()), EditDistance(names[0], names[1]));
  }
}

}  // namespace
}  // namespace legoai::graph
