#include "tests/scenarios/checkpoint_checker.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/chunks.h"
#include "core/checkpoint/manifest.h"

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

// When; null: nobody has spoiled it.
const int64_t* SpoiledAt(const Spoiled* spoiled, const v1::Checkpoint& checkpoint) {
  if (spoiled == nullptr) return nullptr;
  const auto found = spoiled->find(checkpoint::StepDirectory(checkpoint.directory(), checkpoint.step()));
  return found == spoiled->end() ? nullptr : &found->second;
}

bool FoundDamaged(const v1::Checkpoint& checkpoint, int64_t by_us) {
  return checkpoint.has_damage_time_us() && checkpoint.damage_time_us() <= by_us;
}

// What an attempt had to go on from; null: it is no checkpoint of the job's own.
const v1::Checkpoint* LastBefore(const JobHistory& history, const v1::Attempt& attempt) {
  const v1::Checkpoint* last = nullptr;
  for (const v1::Checkpoint& checkpoint : history.checkpoints) {
    if (checkpoint.epoch() >= attempt.epoch() || FoundDamaged(checkpoint, attempt.start_time_us())) continue;
    if (last == nullptr || checkpoint.step() > last->step()) last = &checkpoint;
  }
  return last;
}

// Of one that somebody has spoiled: it is found damaged, or nobody has gone on from it since, or it loads all the same.
void CheckSpoiled(const JobHistory& history, const v1::Checkpoint& checkpoint, int64_t spoiled_us, Rules* rules) {
  if (checkpoint.has_damage_time_us() || Load(history, checkpoint, checkpoint.directory()).ok()) return;
  for (const v1::Attempt& attempt : history.attempts) {
    if (attempt.start_time_us() < spoiled_us || LastBefore(history, attempt) != &checkpoint) continue;
    for (const v1::Checkpoint& next : history.checkpoints) {
      if (next.attempt() == attempt.attempt())
        rules->push_back(absl::StrCat("nobody goes on from what does not load: attempt ", attempt.attempt(), " from ",
                                      Text(history, checkpoint), " to step ", next.step()));
    }
  }
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

void CheckOrder(const JobHistory& history, Rules* rules) {
  const auto& all = history.checkpoints;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!WasUnderWay(history, all[i]))
      rules->push_back(absl::StrCat("nothing is committed but by the attempt under way: ", Text(history, all[i])));
    for (size_t j = 0; j < all.size(); ++j) {
      const v1::Checkpoint &a = all[i], &b = all[j];
      const bool listed = i >= j || a.step() < b.step() || (a.step() == b.step() && a.epoch() < b.epoch());
      const bool behind = a.epoch() < b.epoch() && a.step() >= b.step() && !FoundDamaged(a, b.time_us());
      if (!listed || behind)
        rules->push_back(
            absl::StrCat("steps are committed in order: ", Text(history, b), " after step ", a.step(), " of epoch ", a.epoch()));
    }
  }
}

void CheckResumes(const JobHistory& history, Rules* rules) {
  const v1::Job& job = history.job;
  for (const v1::Attempt& attempt : history.attempts) {
    const v1::Checkpoint* const last = LastBefore(history, attempt);
    // Where the checkpoints of another job turn out damaged, an earlier one of that job takes their place.
    if (last == nullptr && job.has_starts_from() && job.steps_back() > 0) continue;
    const int64_t due = last != nullptr ? last->step() : job.starts_from().step();
    // Another retry of that job had found it before this attempt began.
    const bool passed_over = last == nullptr && history.start && FoundDamaged(*history.start, attempt.start_time_us());
    if (passed_over && attempt.resume_step() < due) continue;
    if (attempt.resume_step() != due)
      rules->push_back(absl::StrCat("an attempt goes on from the last committed step: attempt ", attempt.attempt(), " of ",
                                    job.name(), " from ", attempt.resume_step(), ", and ", due, " was committed"));
  }
}

}  // namespace

Rules CheckCommits(const JobHistory& history) {
  Rules rules;
  const std::string& name = history.job.name();
  CheckOrder(history, &rules);
  CheckResumes(history, &rules);
  int64_t newest = 0, damaged = 0;
  for (const v1::Checkpoint& checkpoint : history.checkpoints) {
    const bool whole = checkpoint.damage().empty();
    damaged += !whole;
    if (whole) newest = std::max(newest, checkpoint.step());
  }
  // A retry may have found one damaged that is not its own; a damaged one of a job that had ended, a retry of it has found.
  const bool of_its_own =
      !history.job.has_starts_from() && history.job.state() != v1::FAILED && history.job.state() != v1::CANCELLED;
  if (of_its_own && damaged != history.job.steps_back())
    rules.push_back(absl::StrCat("each step back is of a damaged checkpoint: ", name, " counts ", history.job.steps_back(),
                                 ", and damaged are ", damaged));
  if (newest != history.job.committed_step())
    rules.push_back(absl::StrCat("the committed step is that of the last checkpoint: ", name, " says ",
                                 history.job.committed_step(), ", stored is ", newest));
  const int64_t saved = std::max(newest, history.job.starts_from().step());
  if (history.job.state() == v1::SUCCEEDED && saved != history.job.spec().recipe().training().steps())
    rules.push_back(absl::StrCat("a job that succeeded has saved its last step: ", name, " saved ", saved));
  return rules;
}

Rules CheckStops(const JobHistory& history) {
  Rules rules;
  const std::string& name = history.job.name();
  for (size_t i = 0; i < history.attempts.size(); ++i) {
    const v1::Attempt& attempt = history.attempts[i];
    if (!attempt.has_saved_step()) continue;
    const std::string what = absl::StrCat("attempt ", attempt.attempt(), " of ", name, " saved step ", attempt.saved_step());
    if (attempt.state() != "stopped" || attempt.last_step() != attempt.saved_step())
      rules.push_back(absl::StrCat("what a stop saves is the last step: ", what, ", is ", attempt.state(), " and did ",
                                   attempt.last_step()));
    const auto saved = std::find_if(history.checkpoints.rbegin(), history.checkpoints.rend(), [&](const v1::Checkpoint& one) {
      return one.step() == attempt.saved_step() && one.epoch() <= attempt.epoch();
    });
    if (saved == history.checkpoints.rend()) {
      rules.push_back(absl::StrCat("what a stop saves is committed: ", what, ", and there is no such checkpoint"));
    } else if (i + 1 < history.attempts.size() && saved->damage().empty() &&
               history.attempts[i + 1].resume_step() != attempt.saved_step()) {
      rules.push_back(absl::StrCat("no step is done twice after a stop that saved: ", what, ", and the next one goes on from ",
                                   history.attempts[i + 1].resume_step()));
    }
  }
  const int64_t lost = std::count_if(history.transitions.begin(), history.transitions.end(), [](const v1::Transition& one) {
    return one.to() == v1::RESTARTING && one.from() != v1::PLANNING;
  });
  if (lost != history.job.restarts())
    rules.push_back(
        absl::StrCat("only what is lost is a restart: ", name, " counts ", history.job.restarts(), ", and lost ", lost));
  return rules;
}

Rules CheckCheckpoints(const JobHistory& history, int64_t keep_latest, const std::string& scratch, const Spoiled* spoiled) {
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
      const int64_t* const harmed_us = SpoiledAt(spoiled, *saved[i]);
      const bool in_place = IsInPlace(*saved[i]);
      if (harmed_us != nullptr) {
        CheckSpoiled(history, *saved[i], *harmed_us, &rules);
      } else {
        CheckOne(history, *saved[i], i + demanded >= saved.size(), last, scratch, &rules);
      }
      if (spoiled != nullptr && harmed_us == nullptr && !saved[i]->damage().empty())
        rules.push_back(
            absl::StrCat("nothing is called damaged that is whole: ", Text(history, *saved[i]), ": ", saved[i]->damage()));
      last = last && !in_place;
    }
    needed = needed && saved.size() < most;
  }
  return rules;
}

}  // namespace legoai::scenarios
