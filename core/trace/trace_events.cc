#include "core/trace/trace_events.h"

#include "absl/strings/str_cat.h"
#include "core/trace/annotation.h"

namespace legoai::graph {
namespace {

// Thread numbers are unique, and none is a process's: Perfetto takes a thread of the same number for the process's own.
constexpr int64_t kThreadsOfProcess = 1000;

// Perfetto hides process 0: it is the idle one.
int64_t ProcessOf(int64_t stage) { return stage + 1; }

}  // namespace

void TraceEvents::BeginFile() { text_ = "{\"traceEvents\":[\n"; }

void TraceEvents::EndFile(const std::map<std::string, std::string>& about) {
  absl::StrAppend(&text_, "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{");
  const char* separator = "";
  for (const auto& [name, value] : about) {
    absl::StrAppend(&text_, separator, Quoted(name), ":", Quoted(value));
    separator = ",";
  }
  absl::StrAppend(&text_, "}}\n");
  file_->Append(text_);
  text_.clear();
}

void TraceEvents::Stage(int64_t stage, int64_t rank, const std::vector<bool>& used) {
  const int64_t process = ProcessOf(stage);
  Metadata("process_name", process, 0, absl::StrCat("\"name\":", Quoted(absl::StrCat("stage ", stage, " (rank ", rank, ")"))));
  Metadata("process_sort_index", process, 0, absl::StrCat("\"sort_index\":", process));
  for (size_t stream = 0; stream < used.size(); ++stream) {
    if (!used[stream]) continue;
    if (stream == comm::kCompute) Track(process, kModuleTrack, "phases and modules");
    Track(process, kFirstStreamTrack + static_cast<int64_t>(stream), comm::StreamName(static_cast<int64_t>(stream)));
  }
}

void TraceEvents::Begin(absl::string_view kind, absl::string_view name, absl::string_view category, int64_t stage, int64_t track,
                        int64_t at) {
  const int64_t process = ProcessOf(stage);
  absl::StrAppend(&text_, separator_, "{\"ph\":\"", kind, "\",\"name\":", Quoted(name), ",\"cat\":\"", category, "\",\"pid\":");
  absl::StrAppend(&text_, process, ",\"tid\":", process * kThreadsOfProcess + track, ",\"ts\":");
  AppendMicroseconds(at, &text_);
}

void TraceEvents::Duration(int64_t nanoseconds) {
  absl::StrAppend(&text_, ",\"dur\":");
  AppendMicroseconds(nanoseconds, &text_);
}

void TraceEvents::End() {
  text_ += '}';
  separator_ = ",\n";
  file_->Append(text_);
  text_.clear();
}

void TraceEvents::Modules(int64_t stage, const std::vector<ModuleSlice>& slices) {
  for (const ModuleSlice& slice : slices) {
    Begin("X", slice.name, "module", stage, kModuleTrack, slice.start);
    Duration(slice.finish - slice.start);
    absl::StrAppend(&text_, ",\"args\":{\"phase\":\"", PhaseName(slice.phase), "\"");
    if (!slice.module.empty()) absl::StrAppend(&text_, ",\"module\":", Quoted(slice.module));
    absl::StrAppend(&text_, "}");
    End();
  }
}

void TraceEvents::Counter(int64_t stage, absl::string_view name, int64_t at, int64_t bytes) {
  absl::StrAppend(&text_, separator_, "{\"ph\":\"C\",\"name\":", Quoted(name), ",\"pid\":", ProcessOf(stage), ",\"ts\":");
  AppendMicroseconds(at, &text_);
  absl::StrAppend(&text_, ",\"args\":{\"bytes\":", bytes, "}");
  End();
}

void TraceEvents::Metadata(absl::string_view name, int64_t process, int64_t thread, absl::string_view args) {
  absl::StrAppend(&text_, separator_, "{\"ph\":\"M\",\"name\":\"", name, "\",\"pid\":", process);
  if (thread > 0) absl::StrAppend(&text_, ",\"tid\":", thread);
  absl::StrAppend(&text_, ",\"args\":{", args, "}");
  End();
}

void TraceEvents::Track(int64_t process, int64_t track, absl::string_view name) {
  const int64_t thread = process * kThreadsOfProcess + track;
  Metadata("thread_name", process, thread, absl::StrCat("\"name\":", Quoted(name)));
  Metadata("thread_sort_index", process, thread, absl::StrCat("\"sort_index\":", track));
}

}  // namespace legoai::graph
