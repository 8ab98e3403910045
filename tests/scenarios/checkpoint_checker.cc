#include "tests/scenarios/checkpoint_checker.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/manifest.h"

namespace legoai::scenarios {
namespace {

namespace fs = std::filesystem;
using Rules = std::vector<std::string>;

constexpr char kOtherBuilds[] = "";  // are not refused
// An end may take its time just before, and be stored just after a commit.
constexpr int64_t kRaceUs = 1'000'000;

absl::Status ReadBytes(checkpoint::CheckpointReader& reader) {
  const v1::CheckpointManifest manifest = reader.manifest();
  for (const v1::CheckpointChunk& chunk : manifest.chunks()) {
    std::vector<char> bytes(chunk.bytes());
    const checkpoint::Rectangle part = {{chunk.offsets().begin(), chunk.offsets().end()},
                                        {chunk.sizes().begin(), chunk.sizes().end()}};
    const std::vector<int64_t> shape(chunk.global_shape().begin(), chunk.global_shape().end());
    const absl::Status read = reader.ReadRectangle(chunk.name(), chunk.dtype(), shape, part, bytes.data());
    if (!read.ok()) return read;
  }
  return absl::OkStatus();
}

absl::Status Load(const JobHistory& history, const v1::Checkpoint& checkpoint, const std::string& root) {
  auto reader = checkpoint::CheckpointReader::Open(root, checkpoint.step(), kOtherBuilds);
  if (!reader.ok()) return reader.status();
  if (absl::Status read = ReadBytes(*reader); !read.ok()) return read;
  const auto digest = checkpoint::ManifestDigest(root, checkpoint.step());
  if (!digest.ok()) return digest.status();
  if (*digest != checkpoint.digest())
    return absl::DataLossError(absl::StrCat("its digest ", *digest, " is not the one that was committed"));
  const int64_t samples = checkpoint.step() * history.job.spec().recipe().training().global_batch_size();
  if (reader->manifest().next_sample() != samples)
    return absl::DataLossError(absl::StrCat("goes on with sample ", reader->manifest().next_sample(), " instead of ", samples));
  return absl::OkStatus();
}

// As it will be once its prepared manifest is put in its place, in a folder of our own.
absl::Status LoadPrepared(const JobHistory& history, const v1::Checkpoint& checkpoint, const std::string& scratch) {
  const fs::path step = checkpoint::StepDirectory(checkpoint.directory(), checkpoint.step());
  const fs::path shadow = checkpoint::StepDirectory(scratch, checkpoint.step());
  std::error_code error;
  fs::remove_all(scratch, error);
  fs::create_directories(shadow, error);
  for (const auto& entry : fs::directory_iterator(step, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code link_error;
    fs::create_symlink(entry.path(), shadow / (name == "manifest.pb.tmp" ? "manifest.pb" : name), link_error);
  }
  return Load(history, checkpoint, scratch);
}

std::string Text(const JobHistory& history, const v1::Checkpoint& checkpoint) {
  return absl::StrCat("step ", checkpoint.step(), " of epoch ", checkpoint.epoch(), " of ", history.job.name());
}

bool IsInPlace(const v1::Checkpoint& checkpoint) {
  return fs::exists(checkpoint::StepDirectory(checkpoint.directory(), checkpoint.step()) + "/manifest.pb");
}

// `demanded`: nobody may have removed it. `last`: nothing that was committed in its epoch after it is in its place.
void CheckOne(const JobHistory& history, const v1::Checkpoint& checkpoint, bool demanded, bool last, const std::string& scratch,
              Rules* rules) {
  if (!checkpoint.damage().empty() || (checkpoint.has_remove_time_us() && !demanded)) return;
  if (checkpoint.has_remove_time_us())
    rules->push_back(absl::StrCat("what is to be kept is listed: ", Text(history, checkpoint), " is not"));
  absl::Status loaded = Load(history, checkpoint, checkpoint.directory());
  if (!loaded.ok() && last) {
    const absl::Status prepared = LoadPrepared(history, checkpoint, scratch);
    // Neither: it may have been put in its place meanwhile.
    loaded = prepared.ok() ? prepared : Load(history, checkpoint, checkpoint.directory());
  }
  // What may be removed loses its manifest first, and the server hears of it afterwards.
  const bool removed = !demanded && !IsInPlace(checkpoint);
  if (!loaded.ok() && !removed)
    rules->push_back(
        absl::StrCat("every committed checkpoint loads: ", Text(history, checkpoint), ": ", std::string(loaded.message())));
}

// Whether the attempt that it names was under way when it was committed.
bool WasUnderWay(const JobHistory& history, const v1::Checkpoint& checkpoint) {
  const size_t index = checkpoint.attempt() - 1;
  if (index >= history.attempts.size() || history.attempts[index].epoch() != checkpoint.epoch()) return false;
  const v1::Attempt& attempt = history.attempts[index];
  if (checkpoint.time_us() < attempt.start_time_us()) return false;
  if (index + 1 < history.attempts.size()) return checkpoint.time_us() <= history.attempts[index + 1].start_time_us();
  return !attempt.has_end_time_us() || checkpoint.time_us() <= attempt.end_time_us() + kRaceUs;
}

}  // namespace

Rules CheckCommits(const JobHistory& history) {
  Rules rules;
  const std::string& name = history.job.name();
  const v1::Checkpoint* last = nullptr;
  for (const v1::Checkpoint& checkpoint : history.checkpoints) {
    const std::string what = Text(history, checkpoint);
    if (checkpoint.damage().empty()) {
      if (last != nullptr && (checkpoint.step() <= last->step() || checkpoint.epoch() < last->epoch()))
        rules.push_back(
            absl::StrCat("steps are committed in order: ", what, " after step ", last->step(), " of epoch ", last->epoch()));
      last = &checkpoint;
    }
    if (!WasUnderWay(history, checkpoint))
      rules.push_back(absl::StrCat("nothing is committed but by the attempt under way: ", what));
  }
  for (const v1::Attempt& attempt : history.attempts) {
    int64_t committed = history.job.starts_from().step();  // of the job that it tries again
    for (const v1::Checkpoint& checkpoint : history.checkpoints) {
      const bool damaged = checkpoint.has_damage_time_us() && checkpoint.damage_time_us() <= attempt.start_time_us();
      if (checkpoint.epoch() < attempt.epoch() && !damaged) committed = std::max(committed, checkpoint.step());
    }
    // Then it goes on from an older one of the job that it tries again, which is looked at on its own.
    const bool start_passed = history.job.starts_from().step() == committed && !history.job.starts_from().damage().empty();
    if (attempt.resume_step() != committed && !start_passed)
      rules.push_back(absl::StrCat("an attempt goes on from the last committed step: attempt ", attempt.attempt(), " of ", name,
                                   " from ", attempt.resume_step(), ", and ", committed, " was committed"));
  }
  const int64_t damaged = std::count_if(history.checkpoints.begin(), history.checkpoints.end(),
                                        [](const v1::Checkpoint& one) { return !one.damage().empty(); });
  // A retry may have found those damaged that it began with, and which are not its own.
  const bool found_by_itself =
      !history.job.has_starts_from() && history.job.state() != v1::FAILED && history.job.state() != v1::CANCELLED;
  if (found_by_itself && damaged != history.job.steps_back())
    rules.push_back(absl::StrCat("each step back is of a damaged checkpoint: ", name, " counts ", history.job.steps_back(),
                                 ", and damaged are ", damaged));
  const int64_t newest = last == nullptr ? 0 : last->step();
  if (newest != history.job.committed_step())
    rules.push_back(absl::StrCat("the committed step is that of the last checkpoint: ", name, " says ",
                                 history.job.committed_step(), ", stored is ", newest));
  const int64_t saved = std::max(newest, history.job.starts_from().step());
  if (history.job.state() == v1::SUCCEEDED && saved != history.job.spec().recipe().training().steps())
    rules.push_back(absl::StrCat("a job that succeeded has saved its last step: ", name, " saved ", saved));
  return rules;
}

Rules CheckCheckpoints(const JobHistory& history, int64_t keep_latest, const std::string& scratch) {
  Rules rules;
  std::map<int64_t, std::vector<const v1::Checkpoint*>> epochs;
  for (const v1::Checkpoint& checkpoint : history.checkpoints) epochs[checkpoint.epoch()].push_back(&checkpoint);
  const size_t most = keep_latest > 0 ? static_cast<size_t>(keep_latest) : SIZE_MAX;
  bool needed = true;  // no later epoch has as many as are to be kept
  for (auto epoch = epochs.rbegin(); epoch != epochs.rend(); ++epoch) {
    const auto& saved = epoch->second;
    const size_t demanded = needed ? std::min(saved.size(), most) : 0;
    bool last = true;
    for (size_t i = saved.size(); i-- > 0;) {
      const bool in_place = IsInPlace(*saved[i]);
      CheckOne(history, *saved[i], i + demanded >= saved.size(), last, scratch, &rules);
      last = last && !in_place;
    }
    needed = needed && saved.size() < most;
  }
  return rules;
}

}  // namespace legoai::scenarios
