#include "simulator/engine/chrome_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/hardware/catalog.h"
#include "core/trace/annotation.h"
#include "core/trace/testing/trace_builder.h"
#include "proto/testing/assert_ok.h"
#include "proto/testing/seeded_random.h"
#include "simulator/engine/testing/example_pipeline.h"

namespace legoai::sim {
namespace {

using graph::Phase;
using graph::TraceBuilder;
using nlohmann::json;
using testing::Example;

// A slice, counter or end of a flow as Perfetto reads it: microseconds times 1000, the rest cut off.
int64_t NsOf(const json& microseconds) { return static_cast<int64_t>(microseconds.get<double>() * 1000.0); }

struct Slice {
  int64_t begin, end;
  json event;
};
using Track = std::pair<int64_t, int64_t>;  // process and thread
Track TrackOf(const json& event) { return {event.at("pid").get<int64_t>(), event.at("tid").get<int64_t>()}; }

// What a trace file holds, checked by the rules of the format alone.
struct Parsed {
  json file;
  std::map<Track, std::vector<Slice>> tracks;
  std::map<Track, std::string> names;
  std::map<int64_t, std::map<std::string, std::vector<int64_t>>> counters;  // by process and name: values

  explicit Parsed(const std::string& path) : file(json::parse(std::ifstream(path))) {
    for (const json& event : file.at("traceEvents")) {
      const std::string kind = event.at("ph");
      const int64_t process = event.at("pid");
      EXPECT_GT(process, 0) << event;
      if (kind == "X") AddSlice(event);
      if (kind == "C") AddCounter(process, event);
      if (kind == "M" && event.at("name") == "thread_name") names[TrackOf(event)] = event.at("args").at("name");
    }
  }

  std::vector<Slice> Named(const std::string& track) const {
    std::vector<Slice> found;
    for (const auto& [id, name] : names) {
      const auto slices = tracks.find(id);
      if (name == track && slices != tracks.end()) found.insert(found.end(), slices->second.begin(), slices->second.end());
    }
    return found;
  }

 private:
  void AddSlice(const json& event) {
    const int64_t begin = NsOf(event.at("ts")), length = NsOf(event.at("dur"));
    EXPECT_GE(begin, 0) << event;
    EXPECT_GE(length, 0) << event;
    tracks[TrackOf(event)].push_back({begin, begin + length, event});
  }
  void AddCounter(int64_t process, const json& event) {
    counters[process][event.at("name")].push_back(event.at("args").at("bytes"));
  }
};

// Sorted by their beginning, those of one beginning as in the file, each slice lies within those that are open, or begins where
// they have ended.
void ExpectNesting(const Parsed& trace) {
  for (auto [track, slices] : trace.tracks) {
    std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
    std::vector<const Slice*> open;
    for (const Slice& slice : slices) {
      while (!open.empty() && open.back()->end <= slice.begin) open.pop_back();
      if (!open.empty()) {
        ASSERT_LE(slice.end, open.back()->end) << slice.event << "\nwithin " << open.back()->event;
      }
      open.push_back(&slice);
    }
  }
}

// Each track has a name and a place, and each named one has slices.
void ExpectTracksNamed(const Parsed& trace) {
  std::set<Track> placed;
  std::set<int64_t> processes, threads;
  for (const json& event : trace.file.at("traceEvents")) {
    if (event.at("name") == "thread_sort_index") placed.insert(TrackOf(event));
    if (event.at("name") == "process_sort_index") processes.insert(event.at("pid").get<int64_t>());
  }
  for (const auto& [track, name] : trace.names) {
    EXPECT_TRUE(trace.tracks.count(track)) << "empty track " << name;
    EXPECT_TRUE(threads.insert(track.second).second) << "thread " << track.second << " twice";
    EXPECT_FALSE(processes.count(track.second)) << "a thread has the number of a process";
  }
  for (const auto& [track, slices] : trace.tracks) {
    EXPECT_TRUE(trace.names.count(track));
    EXPECT_TRUE(placed.count(track));
    EXPECT_TRUE(processes.count(track.first));
  }
}

// The innermost slice of a track at a moment; fails where there is none.
const Slice* SliceAt(const Parsed& trace, const json& event) {
  const int64_t at = NsOf(event.at("ts"));
  const Slice* found = nullptr;
  const auto track = trace.tracks.find(TrackOf(event));
  if (track == trace.tracks.end()) return nullptr;
  for (const Slice& slice : track->second) {
    if (slice.begin <= at && at < slice.end) found = &slice;
  }
  return found;
}

// By name: the slices that each flow joins.
std::map<std::string, std::vector<std::pair<Slice, Slice>>> Flows(const Parsed& trace) {
  std::map<int64_t, std::vector<json>> ends;
  for (const json& event : trace.file.at("traceEvents")) {
    if (event.at("ph") == "s" || event.at("ph") == "f") ends[event.at("id")].push_back(event);
  }
  std::map<std::string, std::vector<std::pair<Slice, Slice>>> flows;
  for (const auto& [id, pair] : ends) {
    if (pair.size() != 2 || pair[0].at("ph") != "s" || pair[1].at("ph") != "f" || pair[1].at("bp") != "e") {
      ADD_FAILURE() << "flow " << id << " is no pair";
      continue;
    }
    EXPECT_EQ(pair[0].at("name"), pair[1].at("name"));
    EXPECT_EQ(pair[0].at("cat"), pair[1].at("cat"));
    EXPECT_LE(NsOf(pair[0].at("ts")), NsOf(pair[1].at("ts")));
    const Slice *from = SliceAt(trace, pair[0]), *to = SliceAt(trace, pair[1]);
    if (from == nullptr || to == nullptr) {
      ADD_FAILURE() << "an end of flow " << id << " is in no slice";
      continue;
    }
    flows[pair[0].at("name")].emplace_back(*from, *to);
  }
  return flows;
}

Parsed Written(const Example& example, const TraceFileOptions& options = {}, std::string* left_out = nullptr,
               const std::string& name = "trace.json") {
  const std::string path = ::testing::TempDir() + "/" + name;
  const auto report = WriteChromeTrace("--trace", path, example.Source(), options);
  EXPECT_TRUE(report.ok()) << report.status();
  if (report.ok() && left_out != nullptr) *left_out = report->left_out;
  return Parsed(path);
}

TEST(ChromeTraceTest, SlicesNestAndTracksAreNamedWhateverTheStep) {
  SeededRandom random;
  for (int i = 0; i < 12; ++i) {
    const int64_t stages = 1 + random() % 4, microbatches = 1 + random() % 6, width = 1 + random() % 5000;
    SCOPED_TRACE(::testing::Message() << stages << " stages, " << microbatches << " microbatches, width " << width);
    const Example example(stages, microbatches, width);
    for (int64_t limit : {int64_t{0}, int64_t{1} << 40}) {
      const Parsed trace = Written(example, {.task_limit = limit});
      ExpectNesting(trace);
      ExpectTracksNamed(trace);
      const auto flows = Flows(trace);
      EXPECT_EQ(flows.count("message") ? flows.at("message").size() : 0u, static_cast<size_t>(2 * (stages - 1) * microbatches));
      int64_t end = 0;
      for (const auto& [track, slices] : trace.tracks) {
        for (const Slice& slice : slices) end = std::max(end, slice.end);
      }
      EXPECT_NEAR(static_cast<double>(end), example.simulation.step_seconds * 1e9, 1);
    }
  }
}

TEST(ChromeTraceTest, FlowsJoinSendsToReceivesAndCollectivesToWhatWaits) {
  const Example example(3, 4);
  const auto flows = Flows(Written(example));
  ASSERT_EQ(flows.size(), 2u);
  EXPECT_EQ(flows.at("message").size(), 2u * 2 * 4);
  for (const auto& [send, receive] : flows.at("message")) {
    EXPECT_EQ(send.event.at("name"), "lego::send");
    EXPECT_EQ(receive.event.at("name"), "lego::recv");
    for (const char* field : {"microbatch", "phase", "bytes"}) {
      EXPECT_EQ(send.event.at("args").at(field), receive.event.at("args").at(field));
    }
    EXPECT_EQ(std::abs(send.event.at("pid").get<int64_t>() - receive.event.at("pid").get<int64_t>()), 1);
  }
  // Each all-gather and each receive lets an operator of its own stage start.
  EXPECT_EQ(flows.at("wait").size(), 3u * 4 + 2 * 2 * 4);
  for (const auto& [collective, waiting] : flows.at("wait")) {
    EXPECT_EQ(collective.event.at("cat"), "communication");
    EXPECT_EQ(waiting.event.at("cat"), "compute");
    EXPECT_EQ(collective.event.at("pid"), waiting.event.at("pid"));
    EXPECT_GE(waiting.begin, collective.end);
    EXPECT_EQ(collective.event.at("args").at("microbatch"), waiting.event.at("args").at("microbatch"));
  }
}

TEST(ChromeTraceTest, SlicesSayWhatTheirOperatorDoesAndWhatBoundsIt) {
  const Parsed wide = Written(Example(1, 1, 65536)), narrow = Written(Example(1, 1, 1));
  auto args = [](const Parsed& trace, const std::string& name) {
    for (const auto& [track, slices] : trace.tracks) {
      for (const Slice& slice : slices) {
        if (slice.event.at("name") == name) return slice.event.at("args");
      }
    }
    return json();
  };
  const json product = args(wide, "aten::mm"), sum = args(wide, "aten::add_.Tensor"),
             gather = args(wide, "lego::all_gather_into");
  EXPECT_EQ(product.at("shapes"), "bfloat16[65536,512] bfloat16[512,512] -> bfloat16[65536,512]");
  EXPECT_EQ(product.at("flops"), 2.0 * 65536 * 512 * 512);
  EXPECT_EQ(product.at("bytes"), 2 * (2 * 65536 * 512 + 512 * 512));
  EXPECT_EQ(product.at("module"), "model.layers.0.mlp");
  EXPECT_EQ(product.at("phase"), "forward");
  EXPECT_EQ(product.at("microbatch"), 0);
  EXPECT_EQ(sum.at("shapes"), "bfloat16[65536,512] bfloat16[65536,512]");
  EXPECT_EQ(sum.at("bound"), "memory bandwidth");
  EXPECT_EQ(args(narrow, "aten::mm").at("bound"), "launch");
  EXPECT_EQ(gather.at("bytes"), 512 * 512 * 2);
  EXPECT_EQ(gather.at("group"), "dp_shard");
  EXPECT_EQ(gather.at("ranks"), 2);
  EXPECT_EQ(gather.at("link"), "node");
  EXPECT_EQ(gather.at("bound"), "link latency");
  EXPECT_EQ(wide.file.at("otherData").at("model"), "a \"quoted\" name");
  EXPECT_EQ(wide.file.at("otherData").at("left_out"), "nothing");
}

// Arithmetic intensity decides: this product does 512 FLOPs and more for a byte, an H100 fewer than 400.
TEST(ChromeTraceTest, LargeProductsAreBoundByCompute) {
  TraceBuilder b;
  auto x = b.New(v1::BFLOAT16, {8192, 8192}, graph::StorageKind::kExternal);
  auto list = TraceBuilder::List{std::vector<TraceBuilder::Tensor>(40, x)};
  b.Op("aten::mm", {x, x}, {b.New(v1::BFLOAT16, {8192, 8192})});
  b.Op("aten::_foreach_mul_.Tensor", {list, x}, {}, 1);
  Example example(1, 1);
  example.stages = {{&b.trace(), 0, 0}};
  auto roofline = RooflineModel::Create(example.cluster.device());
  example.simulation = *SimulateStep(example.stages, example.cluster, **roofline, CollectiveCostModel(example.cluster));
  example.memory.clear();
  const std::vector<Slice> slices = Written(example).Named("compute");
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].event.at("args").at("bound"), "compute");
  EXPECT_EQ(slices[1].event.at("args").at("shapes"), "bfloat16[8192,8192] bfloat16[8192,8192] and 38 more bfloat16[8192,8192]");
}

TEST(ChromeTraceTest, ModulesAreNestedUnderTheirPhase) {
  const Parsed trace = Written(Example(1, 2));
  std::vector<std::string> lines;
  std::vector<Slice> open;
  for (const Slice& slice : trace.Named("phases and modules")) {
    while (!open.empty() && open.back().end <= slice.begin) open.pop_back();
    lines.push_back(std::string(open.size(), ' ') + slice.event.at("name").get<std::string>());
    open.push_back(slice);
  }
  const std::vector<std::string> first = {
      "forward of microbatch 0", " model", "  layers.0", "   mlp", "   norm", "  layers.1", "   mlp"};
  ASSERT_GT(lines.size(), first.size());
  EXPECT_EQ(std::vector<std::string>(lines.begin(), lines.begin() + 7), first);
  const auto backward = std::find(lines.begin(), lines.end(), "backward of microbatch 0");
  ASSERT_NE(backward, lines.end());
  EXPECT_EQ(*(backward + 1), " recompute");
  EXPECT_EQ(*(backward + 2), "  model");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), " model"), 4);
  EXPECT_EQ(lines.back(), "optimizer");
}

TEST(ChromeTraceTest, AboveTheLimitOnlyFirstAndLastAreDrawnOneByOne) {
  const Example example(2, 5);
  std::string left_out;
  const Parsed all = Written(example, {.task_limit = example.Tasks()}, &left_out);
  EXPECT_EQ(left_out, "");
  EXPECT_TRUE(all.Named("phases and modules").size() > 2 * 5 * 2);
  const Parsed some = Written(example, {.task_limit = example.Tasks() - 1}, &left_out);
  EXPECT_NE(left_out.find(" of " + std::to_string(example.Tasks()) + " operators"), std::string::npos) << left_out;
  EXPECT_EQ(some.file.at("otherData").at("left_out"), left_out);
  int64_t drawn = 0, summarized = 0;
  for (const auto& [track, slices] : some.tracks) {
    for (const Slice& slice : slices) {
      const json& args = slice.event.at("args");
      const std::string category = slice.event.at("cat");
      if (category == "module") continue;
      const bool end = !args.contains("microbatch") || args.at("microbatch") == 0 || args.at("microbatch") == 4;
      const bool message = slice.event.at("name") == "lego::send" || slice.event.at("name") == "lego::recv";
      EXPECT_EQ(category == "span", !end && !message) << slice.event;
      drawn += category != "span";
      if (category == "span") summarized += args.at("operators").get<int64_t>();
    }
  }
  EXPECT_EQ(left_out.substr(0, left_out.find(' ')), std::to_string(drawn));
  EXPECT_EQ(drawn + summarized, example.Tasks());
  // Where operators are not drawn, the span that stands for them reaches from the first to the last.
  const auto find = [](const std::vector<Slice>& slices, const std::string& name) {
    const auto found = std::find_if(slices.begin(), slices.end(), [&](auto& slice) { return slice.event.at("name") == name; });
    return found == slices.end() ? std::pair<int64_t, int64_t>() : std::pair(found->begin, found->end);
  };
  EXPECT_EQ(find(some.Named("compute"), "forward of microbatch 2"),
            find(all.Named("phases and modules"), "forward of microbatch 2"));
  EXPECT_GT(find(some.Named("compute"), "forward of microbatch 2").second, 0);
  // Whatever the limit, "full" draws everything.
  EXPECT_EQ(Written(example, {.full = true, .task_limit = 0}, &left_out).file, all.file);
  EXPECT_EQ(left_out, "");
}

void ExpectPeaks(const Example& example, const Parsed& trace, size_t most_points) {
  for (size_t i = 0; i < example.stages.size(); ++i) {
    const auto& counters = trace.counters.at(static_cast<int64_t>(i) + 1);
    const auto& all = counters.at("memory");
    EXPECT_EQ(*std::max_element(all.begin(), all.end()), example.memory[i].peak_requested_bytes);
    EXPECT_EQ(all.back(), example.memory[i].live_bytes.back());
    for (const auto& [name, values] : counters) {
      EXPECT_LE(values.size(), most_points) << name;
      EXPECT_GT(*std::max_element(values.begin(), values.end()), 0) << name << " is empty";
    }
  }
}

TEST(ChromeTraceTest, CountersAreThinnedButKeepTheirPeaks) {
  const Example example(2, 20);
  std::string left_out;
  const Parsed whole = Written(example, {}, &left_out), thin = Written(example, {.counter_points = 16}, &left_out);
  ExpectPeaks(example, whole, 1000);
  ExpectPeaks(example, thin, 16);
  EXPECT_NE(left_out.find("16 points"), std::string::npos) << left_out;
  EXPECT_GT(whole.counters.at(1).at("memory").size(), 16u);
}

TEST(ChromeTraceTest, MemoryTimelinesHaveCountersAndNothingElse) {
  const Example example(2, 3);
  const std::string path = ::testing::TempDir() + "/memory.json";
  ASSERT_OK_AND_ASSIGN(const auto report, WriteMemoryTimeline("--memory-timeline", path, example.Source()));
  const Parsed trace(path);
  ExpectPeaks(example, trace, 1000);
  for (const json& event : trace.file.at("traceEvents")) {
    EXPECT_TRUE(event.at("ph") == "C" || (event.at("ph") == "M" && !event.contains("tid"))) << event;
  }
  EXPECT_EQ(trace.counters, Written(example).counters);
}

}  // namespace
}  // namespace legoai::sim
