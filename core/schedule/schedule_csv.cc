#include "core/schedule/schedule_csv.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/schedule/lowering.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::parallel {
namespace {

using Kind = Action::Kind;

constexpr int64_t kMostRanks = 4096, kMostOfEach = 1 << 20;  // of chunks and of microbatches
constexpr char kActionKinds[] = "FBIW";

// What PyTorch adds when it compiles a schedule, longer names before those that they begin with.
constexpr const char* kCompiled[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "OVERLAP_F_B"};

class Reader {
 public:
  Reader(absl::string_view field, const std::string& text) : field_(field), text_(text) {}

  absl::StatusOr<Schedule> Run() {
    RETURN_IF_ERROR(ReadLines());
    RETURN_IF_ERROR(Place());
    if (const auto fault = FindFault(schedule_, microbatches_)) return Failed(*fault);
    const absl::Status lowered = CheckLowered(Lower(schedule_));
    if (!lowered.ok()) return Wrong("", std::string(lowered.message()));
    return std::move(schedule_);
  }

 private:
  absl::Status Wrong(absl::string_view value, const std::string& remedy) const {
    return FieldError(std::string(field_), CutText(std::string(value)), remedy);
  }
  static std::string At(size_t rank, size_t column) { return absl::StrCat("line ", rank + 1, ", column ", column + 1); }

  absl::Status ReadLines() {
    std::vector<absl::string_view> lines = absl::StrSplit(text_, '\n');
    while (!lines.empty() && absl::StripAsciiWhitespace(lines.back()).empty()) lines.pop_back();
    const auto count = static_cast<int64_t>(lines.size());
    if (count < 2 || count > kMostRanks)
      return Wrong(absl::StrCat(count, count == 1 ? " line" : " lines"),
                   absl::StrCat("has a line for each rank of the pipeline: 2 to ", kMostRanks));
    for (size_t rank = 0; rank < lines.size(); ++rank) RETURN_IF_ERROR(ReadLine(rank, lines[rank]));
    return absl::OkStatus();
  }

  absl::Status ReadLine(size_t rank, absl::string_view line) {
    const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
    schedule_.ranks.emplace_back();
    columns_.emplace_back();
    for (size_t column = 0; column < cells.size(); ++column) {
      const absl::string_view cell = absl::StripAsciiWhitespace(cells[column]);
      if (cell.empty()) continue;
      const auto action = Read(cell);
      if (!action) return NoAction(cell, At(rank, column));
      microbatches_ = std::max<int64_t>(microbatches_, action->microbatch + 1);
      schedule_.ranks.back().push_back(*action);
      columns_.back().push_back(column);
    }
    if (!schedule_.ranks.back().empty()) return absl::OkStatus();
    return Wrong(absl::StrCat("line ", rank + 1), "has no action: each line is what a rank of the pipeline does");
  }

  // "2F0": chunk, kind, microbatch.
  static std::optional<Action> Read(absl::string_view cell) {
    const size_t kind = cell.find_first_not_of("0123456789");
    if (kind == 0 || kind == absl::string_view::npos) return std::nullopt;
    const char* const known = std::find(kActionKinds, kActionKinds + 4, cell[kind]);
    int64_t chunk = 0, microbatch = 0;
    const absl::string_view number = cell.substr(kind + 1);
    if (known == kActionKinds + 4 || number.empty() || !absl::ascii_isdigit(number[0])) return std::nullopt;
    if (!absl::SimpleAtoi(cell.substr(0, kind), &chunk) || !absl::SimpleAtoi(number, &microbatch)) return std::nullopt;
    if (chunk >= kMostOfEach || microbatch >= kMostOfEach) return std::nullopt;
    return Action{static_cast<Kind>(known - kActionKinds), static_cast<int32_t>(chunk), static_cast<int32_t>(microbatch)};
  }

  absl::Status NoAction(absl::string_view cell, const std::string& at) const {
    for (const char* const name : kCompiled) {
      if (cell.find(name) == absl::string_view::npos) continue;
      return Wrong(cell, absl::StrCat(at, ": ", name, " is of PyTorch's compiled format; give the \"compute_only\" one, which ",
                                      "has F, B, I and W alone: what else a rank must do is known from these"));
    }
    return Wrong(cell, absl::StrCat(at, ": is no action: write the chunk, F, B, I or W, and the microbatch, such as 2F0"));
  }

  // Finds out where the chunks lie.
  absl::Status Place() {
    std::vector<std::pair<int64_t, std::string>> rank_of;  // by chunk, and where the file says so
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (size_t i = 0; i < schedule_.ranks[rank].size(); ++i) {
        const auto chunk = static_cast<size_t>(schedule_.ranks[rank][i].chunk);
        if (rank_of.size() <= chunk) rank_of.resize(chunk + 1, {-1, ""});
        auto& [known, where] = rank_of[chunk];
        if (known >= 0 && known != static_cast<int64_t>(rank))
          return Wrong(Print(schedule_.ranks[rank][i], true),
                       absl::StrCat(At(rank, columns_[rank][i]), ": chunk ", chunk, " is of line ", known + 1, ", as ", where,
                                    " says: a chunk lies on one rank"));
        if (known < 0) rank_of[chunk] = {static_cast<int64_t>(rank), At(rank, columns_[rank][i])};
      }
    }
    const auto ranks = static_cast<int64_t>(schedule_.ranks.size()), chunks = static_cast<int64_t>(rank_of.size());
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (rank_of[chunk].first < 0)
        return Wrong(absl::StrCat("chunk ", chunk),
                     absl::StrCat("is in no cell, and chunk ", chunks - 1, " is: none is left out"));
    }
    if (chunks % ranks != 0)
      return Wrong(absl::StrCat(chunks, " chunks"),
                   absl::StrCat("must be a multiple of the ", ranks, " lines: all ranks have as many"));
    int64_t first_wrong = 0;
    for (const bool in_v : {false, true}) {
      const Placement placement{ranks, chunks, in_v};
      int64_t chunk = 0;
      while (chunk < chunks && placement.RankOf(chunk) == rank_of[chunk].first) ++chunk;
      first_wrong = std::max(first_wrong, chunk);
      if (chunk < chunks) continue;
      schedule_.placement = placement;
      return absl::OkStatus();
    }
    return Wrong(absl::StrCat("chunk ", first_wrong),
                 absl::StrCat(rank_of[first_wrong].second, ": chunks go round the lines (line 1 has 0, ", ranks,
                              " and so on) or lie in a V (line 1 has 0, ", 2 * ranks - 1, " and so on)"));
  }

  absl::Status Failed(const ScheduleFault& fault) const {
    std::string cells;
    std::vector<std::string> where;
    for (const auto& [rank, action] : fault.places) {
      const bool at_end = action == schedule_.ranks[rank].size();
      absl::StrAppend(&cells, cells.empty() ? "" : " ", at_end ? "" : Print(schedule_.ranks[rank][action], true));
      where.push_back(at_end ? absl::StrCat("line ", rank + 1) : At(rank, columns_[rank][action]));
    }
    return Wrong(cells, absl::StrCat(absl::StrJoin(where, "; "), ": ", fault.why));
  }

  absl::string_view field_;
  const std::string& text_;
  Schedule schedule_;
  std::vector<std::vector<size_t>> columns_;  // of the actions
  int64_t microbatches_ = 0;
};

}  // namespace

absl::StatusOr<Schedule> ParseScheduleCsv(absl::string_view field, const std::string& text) { return Reader(field, text).Run(); }

std::string ScheduleToCsv(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& actions : schedule.ranks) {
    const auto print = [](std::string* out, const Action& action) { *out += Print(action, /*with_chunk=*/true); };
    absl::StrAppend(&text, absl::StrJoin(actions, ",", print), "\n");
  }
  return text;
}

}  // namespace legoai::parallel
