#include "server/cli/whatif/trace_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::cli {
namespace {

using Json = nlohmann::json;

absl::StatusOr<std::string> ReadUnzipped(const std::string& field, const std::string& path, int64_t most_bytes) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rbe"), gzclose);
  if (file == nullptr) {
    const bool none = errno == ENOENT;
    return FieldError(field, path, absl::StrCat("cannot be read: ", std::strerror(errno)),
                      none ? absl::StatusCode::kNotFound : absl::StatusCode::kUnavailable);
  }
  std::string text(1 << 20, '\0');
  size_t size = 0;
  for (;;) {
    if (size == text.size()) text.resize(2 * size);
    const int got = gzread(file.get(), text.data() + size, static_cast<unsigned>(std::min<size_t>(text.size() - size, 1 << 20)));
    if (got < 0) return FieldError(field, path, "is a damaged file, or a folder: give a trace file");
    if (got == 0) break;
    size += static_cast<size_t>(got);
    if (static_cast<int64_t>(size) > most_bytes)
      return FieldError(field, path, absl::StrCat("has more than ", BytesText(static_cast<double>(most_bytes)), " of text"));
  }
  text.resize(size);
  return text;
}

// What is not a text, or not there, is "".
std::string TextOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t NumberOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return 0;
  const double value = found->get<double>();
  return std::isfinite(value) && std::fabs(value) < 1e15 ? std::llround(value) : 0;
}

double AmountOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  const double value = found != object.end() && found->is_number() ? found->get<double>() : 0;
  return std::isfinite(value) && value > 0 ? value : 0;
}

// Of "int64[4] bfloat16[4,8] -> bfloat16[4,8]" the first of floating point, as the cost model takes it.
std::string DTypeOf(const std::string& shapes) {
  for (const absl::string_view tensor : absl::StrSplit(shapes, ' ')) {
    const absl::string_view dtype = tensor.substr(0, tensor.find('['));
    if (absl::StrContains(dtype, "float")) return std::string(dtype);
  }
  return "";
}

// Written with a tenth of a nanosecond more (core/trace/trace_text.h). Below a year.
int64_t Nanoseconds(const Json& event, const char* key) {
  const auto found = event.find(key);
  const double microseconds = found != event.end() && found->is_number() ? found->get<double>() : 0;
  return std::isfinite(microseconds) && std::fabs(microseconds) < 3e13 ? std::llround(1000 * microseconds - 0.1) : 0;
}

// Takes events as they are parsed, so that no more than what is kept of them is in memory.
class Events {
 public:
  void Take(const Json& event) {
    const std::string kind = TextOf(event, "ph");
    if (kind == "M") return Name(event);
    if (kind == "C") return Count(event);
    if (kind != "X") return;
    const std::string category = TextOf(event, "cat");
    if (category == "span") left_out_ = true;
    if (category != "compute" && category != "communication" && category != "wait") return;
    TraceSlice slice;
    slice.name = TextOf(event, "name");
    slice.category = category;
    slice.begin_ns = Nanoseconds(event, "ts");
    slice.end_ns = slice.begin_ns + std::max<int64_t>(0, Nanoseconds(event, "dur"));
    if (const auto args = event.find("args"); args != event.end() && args->is_object()) {
      slice.phase = TextOf(*args, "phase");
      slice.module = TextOf(*args, "module");
      slice.group = TextOf(*args, "group");
      slice.ranks = NumberOf(*args, "ranks");
      if (category == "compute") {
        slice.dtype = DTypeOf(TextOf(*args, "shapes"));
        slice.flops = AmountOf(*args, "flops");
        slice.bytes = AmountOf(*args, "bytes");
      }
    }
    slices_.push_back({NumberOf(event, "pid"), NumberOf(event, "tid"), std::move(slice)});
  }

  // Slices of processes that are no stages, and of tracks without a name, are of no step.
  void Give(StepTraceFile* file) {
    for (const auto& [process, stage] : stages_) {
      file->stages[stage.first].rank = stage.second;
      if (const auto peaks = peaks_.find(process); peaks != peaks_.end()) file->stages[stage.first].peak_bytes = peaks->second;
    }
    for (auto& [process, thread, slice] : slices_) {
      const auto stage = stages_.find(process);
      const auto track = tracks_.find(thread);
      if (stage == stages_.end() || track == tracks_.end()) continue;
      slice.stream = track->second;
      file->stages[stage->second.first].slices.push_back(std::move(slice));
    }
  }

  bool left_out() const { return left_out_; }

 private:
  struct Placed {
    int64_t process, thread;
    TraceSlice slice;
  };

  void Count(const Json& event) {
    const auto args = event.find("args");
    const std::string name = TextOf(event, "name");
    if (args == event.end() || !args->is_object() || name.rfind("memory", 0) != 0) return;
    int64_t& peak = peaks_[NumberOf(event, "pid")][name];
    peak = std::max(peak, NumberOf(*args, "bytes"));
  }

  void Name(const Json& event) {
    const auto args = event.find("args");
    if (args == event.end() || !args->is_object()) return;
    const std::string what = TextOf(event, "name"), name = TextOf(*args, "name");
    if (what == "thread_name") tracks_[NumberOf(event, "tid")] = name;
    long long stage = 0, rank = 0;
    if (what == "process_name" && std::sscanf(name.c_str(), "stage %lld (rank %lld)", &stage, &rank) == 2)
      stages_[NumberOf(event, "pid")] = {stage, rank};
  }

  std::map<int64_t, std::pair<int64_t, int64_t>> stages_;  // by process: stage and rank
  std::map<int64_t, std::string> tracks_;                  // by thread
  std::map<int64_t, std::map<std::string, int64_t>> peaks_;  // by process and counter
  std::vector<Placed> slices_;
  bool left_out_ = false;
};

}  // namespace

std::string StepTraceFile::About(const std::string& name) const {
  const auto found = about.find(name);
  return found != about.end() ? found->second : "";
}

absl::StatusOr<StepTraceFile> ReadStepTrace(const std::string& field, const std::string& path, int64_t most_bytes) {
  ASSIGN_OR_RETURN(const std::string text, ReadUnzipped(field, path, most_bytes));
  const char* const what = "is no trace file of a step: give one of `lego simulate --trace` or of metrics.trace_steps";
  Events events;
  constexpr int kEventDepth = 2;  // in the array, which is in the object of the file
  bool in_events = false;
  const auto take = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key) in_events = parsed == "traceEvents";
    if (!in_events || depth != kEventDepth || event != Json::parse_event_t::object_end) return true;
    events.Take(parsed);
    return false;
  };
  const Json json = Json::parse(text, take, /*allow_exceptions=*/false);
  if (!json.is_object()) return FieldError(field, path, what);
  StepTraceFile file;
  if (const auto about = json.find("otherData"); about != json.end() && about->is_object()) {
    for (const auto& [name, value] : about->items()) {
      if (value.is_string()) file.about[name] = value.get<std::string>();
    }
  }
  events.Give(&file);
  if (file.stages.empty() || file.About("made_by").empty()) return FieldError(field, path, what);
  if (events.left_out())
    return FieldError(field, path, "does not show all operators one by one: write it with `lego simulate --full-trace`");
  return file;
}

}  // namespace legoai::cli
