// The events of a trace file in Chrome's JSON object format, as ui.perfetto.dev opens it. Predicted steps (simulator/engine/
// chrome_trace.h) and measured ones (worker/train/step_trace.h) have the same processes, tracks and names by it.
//
// One process for each pipeline stage; in it a track of phases with their modules, and one for each stream. An event is begun, is
// given what belongs to it, and is ended. For one thread. Units: nanoseconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/trace/module_slices.h"
#include "core/trace/trace_text.h"

namespace legoai::graph {

class TraceEvents {
 public:
  static constexpr int64_t kModuleTrack = 1, kFirstStreamTrack = 2;

  // Not owned.
  explicit TraceEvents(TraceFile* file) : file_(file) {}

  // Of the file: its first member is the array of events, the last one "otherData".
  void BeginFile();
  void EndFile(const std::map<std::string, std::string>& about);

  // The process of a stage, with its tracks in the order in which they are shown. `used`: by stream, whether something runs on
  // it; none: no tracks.
  void Stage(int64_t stage, int64_t rank, const std::vector<bool>& used);

  // `kind`: Chrome's letter, "X" for a slice, whose duration is due next.
  void Begin(absl::string_view kind, absl::string_view name, absl::string_view category, int64_t stage, int64_t track,
             int64_t at);
  void Duration(int64_t nanoseconds);
  // Of the event that is being made.
  std::string* text() { return &text_; }
  void End();

  // Slice after slice on the track of modules.
  void Modules(int64_t stage, const std::vector<ModuleSlice>& slices);
  void Counter(int64_t stage, absl::string_view name, int64_t at, int64_t bytes);

 private:
  void Metadata(absl::string_view name, int64_t process, int64_t thread, absl::string_view args);
  void Track(int64_t process, int64_t track, absl::string_view name);

  TraceFile* const file_;
  std::string text_;
  const char* separator_ = "";
};

}  // namespace legoai::graph
