#include "server/rpc/predicted_traces.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::server {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLook{100};

// A folder of this call's own, which goes with it.
class TemporaryFolder {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Make() {
    std::error_code error;
    std::string path = (fs::temp_directory_path(error) / "legoai-trace-XXXXXX").string();
    if (error || mkdtemp(path.data()) == nullptr) {
      return absl::UnavailableError(absl::StrCat("the server can make no folder ", path,
                                                 " for the trace: TMPDIR of the server must name a folder that it may write to"));
    }
    return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(path));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string File() const { return path_ + "/trace.json.gz"; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace

PredictedTraces::PredictedTraces(Simulate simulate) : simulate_(std::move(simulate)) {}

absl::StatusOr<std::string> PredictedTraces::Get(const v1::SimRequest& request, const Cancelled& cancelled) {
  const std::string key = request.SerializeAsString();
  {
    MutexLock lock(mutex_);
    while (true) {
      if (const auto found = Find(key)) return *found;
      if (being_made_.insert(key).second) break;
      if (cancelled && cancelled()) return absl::CancelledError("the caller has left");
      changed_.WaitFor(lock, kLook);
    }
  }
  auto made = Make(request, cancelled);
  const MutexLock lock(mutex_);
  being_made_.erase(key);
  if (made.ok()) Keep(key, std::make_shared<const std::string>(*made));
  changed_.NotifyAll();
  return made;
}

std::shared_ptr<const std::string> PredictedTraces::Find(const std::string& key) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Trace& trace) { return trace.key == key; });
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return found->gzip;
}

void PredictedTraces::Keep(const std::string& key, std::shared_ptr<const std::string> gzip) {
  kept_.push_front({key, std::move(gzip)});
  int64_t bytes = 0;
  for (auto trace = kept_.begin(); trace != kept_.end();) {
    bytes += static_cast<int64_t>(trace->gzip->size() + trace->key.size());
    trace = bytes > kPredictedTracesBytes ? kept_.erase(trace) : std::next(trace);
  }
}

absl::StatusOr<std::string> PredictedTraces::Make(v1::SimRequest request, const Cancelled& cancelled) const {
  ASSIGN_OR_RETURN(const auto folder, TemporaryFolder::Make());
  request.set_chrome_trace_path(folder->File());
  const auto estimate = simulate_(request, cancelled);
  if (!estimate.ok()) return estimate.status();
  auto trace = ReadFile(folder->File(), kPredictedTraceBytes);
  std::error_code error;
  if (const auto bytes = fs::file_size(folder->File(), error); !error && bytes > static_cast<uint64_t>(kPredictedTraceBytes)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the trace has ", BytesText(static_cast<double>(bytes)), ", and a server gives ",
        BytesText(static_cast<double>(kPredictedTraceBytes)), " at most: `lego simulate --trace FILE` writes it"));
  }
  if (!trace.ok()) return absl::UnavailableError(absl::StrCat("the trace cannot be read back: ", trace.status().message()));
  return trace;
}

}  // namespace legoai::server
