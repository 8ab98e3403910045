// `lego schedule`: a pipeline schedule, drawn.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/files.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/timeline.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/job.h"
#include "server/cli/output.h"
#include "server/cli/whatif/svg.h"

namespace legoai::cli {
namespace {

using parallel::Action;
using parallel::Timeline;

constexpr int64_t kMostRanks = 1024, kMostMicrobatches = 4096, kMostChunks = 64;

const char* NameOf(Action::Kind kind) {
  switch (kind) {
    case Action::Kind::kForward: return "forward";
    case Action::Kind::kBackward: return "backward";
    case Action::Kind::kInputGradient: return "gradient of the input";
    case Action::Kind::kWeightGradient: return "gradients of the weights";
  }
  return "";
}

// Forwards blue, backwards and gradients of inputs green, those of weights violet; lighter from chunk to chunk of a rank.
std::string Shade(const Action& action, int64_t ranks) {
  constexpr int kBase[4][3] = {{0x2f, 0x6f, 0xed}, {0x2a, 0x9d, 0x78}, {0x2a, 0x9d, 0x78}, {0x8a, 0x5c, 0xd0}};
  const int* const color = kBase[static_cast<int>(action.kind)];
  const double white = std::min(0.75, 0.25 * static_cast<double>(action.chunk / ranks));
  const auto mixed = [&](int part) { return static_cast<int>(part + (255 - part) * white); };
  return absl::StrFormat("#%02x%02x%02x", mixed(color[0]), mixed(color[1]), mixed(color[2]));
}

std::string Waiting(const Timeline& timeline) {
  return absl::StrFormat("the ranks wait %.1f %% of the time", 100 * timeline.bubble_share);
}

std::string Svg(const Timeline& timeline, const std::string& title) {
  constexpr double kLeft = 72, kTop = 64, kRow = 30, kUnit = 22;
  const auto ranks = static_cast<int64_t>(timeline.ranks.size());
  std::string body = svg::TextAt(
      16, 44, Waiting(timeline) + "; blue: forwards, green: backwards, violet: weight gradients apart; lighter: later chunks");
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const double y = kTop + kRow * static_cast<double>(rank);
    body += svg::TextAt(16, y + 18, absl::StrCat("rank ", rank), "start", svg::kInk);
    body += svg::Box(kLeft, y, kUnit * static_cast<double>(timeline.length), kRow - 4, svg::kGrid);
    for (const Timeline::Span& span : timeline.ranks[rank]) {
      const double x = kLeft + kUnit * static_cast<double>(span.begin),
                   width = kUnit * static_cast<double>(span.end - span.begin);
      body += svg::Box(
          x + 0.5, y, width - 1, kRow - 4, Shade(span.action, ranks).c_str(),
          absl::StrCat(NameOf(span.action.kind), " of microbatch ", span.action.microbatch, ", chunk ", span.action.chunk));
      body += svg::TextAt(x + width / 2, y + 17, absl::StrCat(span.action.microbatch), "middle", "#ffffff",
                          " pointer-events=\"none\"");
    }
  }
  return svg::Document(kLeft + kUnit * static_cast<double>(timeline.length) + 16, kTop + kRow * static_cast<double>(ranks) + 12,
                       title, body);
}

Tree TreeOf(const Timeline& timeline, const parallel::Schedule& schedule, const std::string& name, int64_t microbatches) {
  Tree tree = {{"schedule", name},
               {"ranks", schedule.ranks.size()},
               {"chunks", schedule.placement.chunks},
               {"microbatches", microbatches},
               {"length", timeline.length},
               {"bubble_share", timeline.bubble_share},
               {"in_flight", timeline.in_flight}};
  tree["actions"] = Tree::array();
  for (const auto& spans : timeline.ranks) {
    Tree row = Tree::array();
    for (const Timeline::Span& span : spans) {
      row.push_back({{"action", Print(span.action, schedule.placement.locals() > 1)},
                     {"chunk", span.action.chunk},
                     {"microbatch", span.action.microbatch},
                     {"begin", span.begin},
                     {"end", span.end}});
    }
    tree["actions"].push_back(std::move(row));
  }
  return tree;
}

absl::StatusOr<v1::PipelineSchedule> KindOf(const std::string& name) {
  if (const auto kind = EnumFromText<v1::PipelineSchedule>(name)) return *kind;
  return FieldError("NAME", name,
                    absl::StrCat("must be the path of a .csv file, or one of ",
                                 absl::StrJoin(EnumTexts(v1::PipelineSchedule_descriptor()), ", ")));
}

absl::Status CheckCounts(v1::PipelineSchedule kind, const std::string& name, int64_t ranks, int64_t each, int64_t microbatches) {
  if (const int64_t least = parallel::LeastMicrobatches(kind, ranks); microbatches < least)
    return FieldError("--microbatches", absl::StrCat(microbatches),
                      absl::StrCat("must be ", least, " or more: two for each rank"));
  if (parallel::PlacesChunks(kind, ranks, each * ranks)) return absl::OkStatus();
  for (const int64_t fits : {1, 2}) {
    if (!parallel::PlacesChunks(kind, ranks, fits * ranks)) continue;
    const bool more = parallel::PlacesChunks(kind, ranks, (fits + 1) * ranks);
    return FieldError("--chunks", absl::StrCat(each),
                      absl::StrCat("of each rank, must be ", fits, more ? " or more" : "", " for ", name));
  }
  return absl::OkStatus();
}

// Of --pp, --microbatches and --chunks.
absl::StatusOr<parallel::Schedule> MakeNamed(const std::string& name, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto kind, KindOf(name));
  ASSIGN_OR_RETURN(const auto ranks, arguments.Integer("pp", 1, kMostRanks));
  ASSIGN_OR_RETURN(const auto microbatches, arguments.Integer("microbatches", 1, kMostMicrobatches));
  ASSIGN_OR_RETURN(const auto chunks, arguments.Integer("chunks", 1, kMostChunks));
  if (!ranks) return FieldError("--pp", "", "is needed: the ranks of the pipeline");
  if (!microbatches) return FieldError("--microbatches", "", "is needed: the microbatches of a step");
  const int64_t each = chunks.value_or(*ranks > 1 && parallel::Loops(kind) ? 2 : 1);
  RETURN_IF_ERROR(CheckCounts(kind, name, *ranks, each, *microbatches));
  return parallel::MakeSchedule(kind, *ranks, each * *ranks, *microbatches);
}

// The file says all.
absl::StatusOr<parallel::Schedule> ReadListed(const std::string& path, const Arguments& arguments) {
  for (const char* const option : {"pp", "microbatches", "chunks"}) {
    if (arguments.Has(option))
      return FieldError(absl::StrCat("--", option), arguments.Text(option), "cannot go with a file, which says it: leave it out");
  }
  ASSIGN_OR_RETURN(const auto text, ReadFileOf("NAME", path, kMostTextBytes, "give the path of a CSV file"));
  return parallel::ParseScheduleCsv("NAME", text);
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  const std::string& name = arguments.positional()[0];
  ASSIGN_OR_RETURN(const auto path, OutputPath(arguments, "svg"));
  ASSIGN_OR_RETURN(const auto csv, OutputPath(arguments, "csv"));
  ASSIGN_OR_RETURN(const auto schedule,
                   absl::EndsWith(name, ".csv") ? ReadListed(name, arguments) : MakeNamed(name, arguments));
  const int64_t ranks = schedule.placement.ranks, chunks = schedule.placement.chunks;
  const int64_t microbatches = parallel::MicrobatchesOf(schedule);
  const Timeline timeline = parallel::TimelineOf(schedule);
  const std::string title =
      absl::StrCat(name, ": ", ranks, " ranks, ", chunks, " chunks, ", microbatches, " microbatches");
  const bool parts = parallel::PartsBackward(schedule);
  if (arguments.format() == Format::kTable) {
    Print(absl::StrCat(TimelineText(timeline), "\n", title, "; ", Waiting(timeline), "\n",
                       "most microbatches in flight, by rank: ", absl::StrJoin(timeline.in_flight, ", "),
                       chunks > ranks ? " (chunk by chunk)" : "", "\n",
                       "F forward, B backward of a microbatch, which takes twice as long",
                       parts ? "; I and W: the gradients of its input and of the weights apart" : "",
                       chunks > ranks ? "; before it the chunk" : "", "; a dot: waits\n"));
  } else {
    Print(TreeText(arguments.format(), TreeOf(timeline, schedule, name, microbatches)));
  }
  for (const auto& [file, text] : {std::pair(path, Svg(timeline, title)), {csv, parallel::ScheduleToCsv(schedule)}}) {
    if (file.empty()) continue;
    RETURN_IF_ERROR(checkpoint::WriteFile(file, text));
    std::fprintf(stderr, "wrote %s\n", file.c_str());
  }
  return kDone;
}

}  // namespace

Command ScheduleCommand() {
  CommandSpec spec;
  spec.name = "schedule";
  spec.summary = "Draws a pipeline schedule: what each rank does when, how long it waits, how many microbatches it holds.";
  spec.positional = "NAME";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {{"pp", "P", "ranks of the pipeline"},
                  {"microbatches", "M", "microbatches of a step"},
                  {"chunks", "N", "of each rank (1, or 2 of schedules that loop)"},
                  {"svg", "FILE", "draws it"},
                  {"csv", "FILE", "writes it, to be changed and used as parallelism.pipeline_parallel_schedule_csv"}};
  spec.details =
      "NAME is a value of parallelism.pipeline_parallel_schedule, drawn for --pp ranks and --microbatches, or a .csv file of "
      "PyTorch's format, which says these itself. Times are those of equal chunks, messages take none.";
  spec.example = "lego schedule Interleaved1F1B --pp 4 --microbatches 8 --svg schedule.svg";
  return {spec, Run};
}

}  // namespace legoai::cli
